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

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

pub use self::count::Folded;
use self::count::Method;
use self::list::List;
pub use self::team::Done;
use self::team::Job;
use self::window::Reads;
use crate::state::{self, Mode};
use crate::sys::{self, Errno};
use crate::{lock::Exclusive, marks};

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

/// Whether there has been a call, in this memory or in that which it is a copy of.
static HAS_FOLDED: AtomicBool = AtomicBool::new(false);

/// Whether memory of this process may have been folded at any time.
pub fn has_folded() -> bool {
    HAS_FOLDED.load(SeqCst)
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
    let list = List::of(start, end)?;
    let job = Job::new(&list, reads, request);
    let wanted = request.threads.clamp(1, MOST_THREADS).min(list.length().max(1));
    HAS_FOLDED.store(true, SeqCst);
    let mut done = team::run(&job, wanted)?;
    let counts = &mut done.counts;
    counts.other = counts.other.saturating_add(list.other);
    counts.nanoseconds = sys::now().saturating_sub(begin);
    Ok(done)
}

const _: () = assert!(Method::Full as u32 == 1 && Method::User as u32 == 2 && Method::Still as u32 == 3);
