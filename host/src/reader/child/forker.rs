//! The thread that forks all reading children.
//!
//! A child ends with the thread that forked it, at any moment. This one lasts as long as the process, so any thread may
//! read with any child.

use std::io;
use std::mem::MaybeUninit;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::ReaderChild;
use crate::reader::graves;

/// The longest wait for a child. A fork copies page tables, on a host that may be short of CPU.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request for a child: where it is sent.
type ForkOrder = Sender<io::Result<ReaderChild>>;

static FORKER: Mutex<Option<Sender<ForkOrder>>> = Mutex::new(None);

/// Forks a child.
///
/// # Errors
/// The kernel has no thread, process or descriptor left.
pub(in super::super) fn start_child() -> io::Result<ReaderChild> {
    let (order, child) = channel();
    {
        let mut forker = FORKER.lock().unwrap_or_else(PoisonError::into_inner);
        let unsent = match &*forker {
            Some(orders) => orders.send(order).err().map(|unsent| unsent.0),
            None => Some(order),
        };
        // The first time, and after a fault of the thread.
        if let Some(order) = unsent {
            forker.insert(start_thread()?).send(order).map_err(io::Error::other)?;
        }
    }
    child.recv_timeout(PATIENCE).map_err(io::Error::other)?
}

fn start_thread() -> io::Result<Sender<ForkOrder>> {
    let (orders, inbox) = channel::<ForkOrder>();
    thread::Builder::new().name("ksmith-forker".to_owned()).spawn(move || {
        block_signals();
        for order in inbox {
            if let Err(unwanted) = order.send(ReaderChild::start())
                && let Ok(child) = unwanted.0
            {
                graves::kill_child(child, None);
            }
        }
    })?;
    Ok(orders)
}

/// Leaves all signals to other threads: some wait for theirs by a signalfd, which a thread that does not block them would
/// take away.
#[allow(unsafe_code, reason = "no safe wrapper is at hand")]
fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set before it is read, and a null pointer asks for no old one.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
    }
}
