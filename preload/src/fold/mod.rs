//! Folding: zero pages are given back by the program itself, without ksmd.
//!
//! A page of zeros that is resident costs as much as any other. What was folded reads as zero, costs nothing, and is a page
//! again with the first write. `window.rs` has the states of a page and why no write is lost.

pub mod auto;
mod count;
pub mod gate;
mod list;
mod own;
mod resident;
mod team;
mod userfault;
mod window;
mod zero;

use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

pub use self::count::Folded;
use self::count::Method;
use self::list::List;
pub use self::team::Done;
use self::team::Job;
use self::window::Reads;
use crate::state::{self, Mode};
use crate::sys::{self, Errno};
use crate::{lock::Exclusive, marks, process};

/// Threads of one call at most.
pub const MOST_THREADS: usize = 64;

/// What is to be folded, and what the caller promises.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// The number of threads.
    pub threads: usize,
    /// Nothing writes to the range meanwhile: no thread and no device.
    pub is_still: bool,
    /// No system call writes to the range meanwhile, and no thread has its stack there.
    pub is_without_io: bool,
}

/// One call at a time: two would find each other's memory taken.
static CALL: Exclusive<()> = Exclusive::new(());

/// The memory ([`process::number`]) in which a call goes on, or 0.
static GOES_ON: AtomicI32 = AtomicI32::new(0);

/// Whether memory of this process is folded just now.
pub fn is_going_on() -> bool {
    match GOES_ON.load(Relaxed) {
        0 => false,
        number => number == process::number(),
    }
}

/// Folds the whole pages of a range, which stays mapped until this returns.
///
/// # Errors
/// `EINVAL`: there is no whole page. `EBUSY`: another thread folds. `EPERM`, `ENOSYS`: writers can't be kept out, and the caller
/// promised too little. `EAGAIN`: no thread could be started. Others of the kernel's, as `ENOMEM`.
pub fn fold(start: usize, length: usize, request: Request) -> Result<Done, Errno> {
    let end = marks::floor(start.checked_add(length).ok_or(libc::EINVAL)?);
    let start = marks::ceil(start);
    if start >= end {
        return Err(libc::EINVAL);
    }
    run(start, end, Reads::InPlace, request)
}

/// Folds all private anonymous memory of the process, but the stacks and data of the folding threads.
///
/// # Errors
/// As of `fold`. Only a full userfaultfd keeps all writers out of memory that the caller does not know.
pub fn fold_all(request: Request) -> Result<Done, Errno> {
    run(0, usize::MAX, Reads::Copied, Request { is_still: false, is_without_io: false, ..request })
}

fn run(start: usize, end: usize, reads: Reads, request: Request) -> Result<Done, Errno> {
    if state::mode() == Mode::Quiet {
        return Err(libc::EPERM);
    }
    let Some(_call) = CALL.take() else { return Err(libc::EBUSY) };
    let begin = sys::now();
    let method = window::method(request.is_still, request.is_without_io)?;
    let list = List::of(start, end)?;
    let job = Job::new(&list, reads, request);
    let wanted = request.threads.clamp(1, MOST_THREADS).min(list.length().max(1));
    GOES_ON.store(process::number(), Relaxed);
    let done = team::run(&job, wanted);
    GOES_ON.store(0, Relaxed);
    let mut done = done?;
    let counts = &mut done.counts;
    counts.other = counts.other.saturating_add(list.other);
    counts.nanoseconds = sys::now().saturating_sub(begin);
    counts.method = method as u32;
    Ok(done)
}

const _: () = assert!(Method::Full as u32 == 1 && Method::User as u32 == 2 && Method::Still as u32 == 3);
