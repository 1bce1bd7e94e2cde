//! Folding: zero pages are given back by the program itself, without ksmd.
//!
//! A page of zeros that is resident costs as much as any other. What was folded reads as zero, costs nothing, and is a page
//! again with the first write. `window.rs` has the states of a page and why no write is lost.

pub mod auto;
mod count;
mod list;
mod own;
mod resident;
mod userfault;
mod window;
mod zero;

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

pub use self::count::Folded;
use self::count::Method;
use self::list::List;
use self::window::{Folder, Reads};
use crate::state::{self, Mode};
use crate::sys::{self, Errno};
use crate::{lock::Exclusive, marks, process};

/// Threads of one call at most.
pub const MOST_THREADS: usize = 64;

/// Stack of a thread that folds, in bytes.
const STACK: usize = 1 << 20;

/// What is to be folded, and what the caller promises.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Threads, that of the caller included.
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

/// What the threads of a call share.
struct Job<'a> {
    list: &'a List,
    reads: Reads,
    request: Request,
    page: usize,
    error: AtomicI32,
}

/// Folds the whole pages of a range, which stays mapped until this returns.
///
/// # Errors
/// `EINVAL`: there is no whole page. `EBUSY`: another thread folds. `EPERM`, `ENOSYS`: writers can't be kept out, and the caller
/// promised too little. Others of the kernel's, as `ENOMEM`.
pub fn fold(start: usize, length: usize, request: Request) -> Result<Folded, Errno> {
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
pub fn fold_all(request: Request) -> Result<Folded, Errno> {
    run(0, usize::MAX, Reads::Copied, Request { is_still: false, is_without_io: false, ..request })
}

fn run(start: usize, end: usize, reads: Reads, request: Request) -> Result<Folded, Errno> {
    if state::mode() == Mode::Quiet {
        return Err(libc::EPERM);
    }
    let Some(_call) = CALL.take() else { return Err(libc::EBUSY) };
    let begin = sys::now();
    let method = window::method(request.is_still, request.is_without_io)?;
    let list = List::of(start, end)?;
    let job = Job { list: &list, reads, request, page: marks::page(), error: AtomicI32::new(0) };
    let wanted = request.threads.clamp(1, MOST_THREADS).min(list.length().max(1));
    GOES_ON.store(process::number(), Relaxed);
    let mut counts = in_threads(&job, wanted);
    GOES_ON.store(0, Relaxed);
    counts.other = counts.other.saturating_add(list.other);
    counts.nanoseconds = sys::now().saturating_sub(begin);
    counts.method = method as u32;
    match job.error.load(Relaxed) {
        0 => Ok(counts),
        errno => Err(errno),
    }
}

/// What a thread is given, and what it gives back.
struct Share<'a> {
    job: &'a Job<'a>,
    counts: Folded,
}

/// Runs the job in this thread and in others. Where one can't be started the rest do its work.
fn in_threads(job: &Job<'_>, wanted: usize) -> Folded {
    let mut others = [const { None::<libc::pthread_t> }; MOST_THREADS];
    let mut shares = [const { None }; MOST_THREADS];
    for (place, share) in others.iter_mut().zip(&mut shares).take(wanted.saturating_sub(1)) {
        let share = share.insert(Share { job, counts: Folded::default() });
        *place = start(core::ptr::from_mut(share).cast());
    }
    let mut counts = work(job);
    counts.threads = 1;
    for (thread, share) in others.iter_mut().zip(&mut shares) {
        let Some(thread) = thread.take() else { continue };
        // SAFETY: a thread that was started, and is joined once. Its share lives until now.
        sys::quietly(|| unsafe { libc::pthread_join(thread, core::ptr::null_mut()) });
        if let Some(share) = share {
            counts.add(&share.counts);
            counts.threads = counts.threads.saturating_add(1);
        }
    }
    counts
}

fn start(share: *mut c_void) -> Option<libc::pthread_t> {
    sys::quietly(|| {
        // SAFETY: plain structures of C, which their functions fill in before they are used; the share outlives the thread,
        // which is joined.
        unsafe {
            let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
            let mut thread: libc::pthread_t = core::mem::zeroed();
            if libc::pthread_attr_init(&raw mut attributes) != 0 {
                return None;
            }
            libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
            // The program's signals are for its own threads; a thread inherits the mask of the one that makes it.
            let made =
                sys::without_signals(|| libc::pthread_create(&raw mut thread, &raw const attributes, enter, share));
            libc::pthread_attr_destroy(&raw mut attributes);
            (made == 0).then_some(thread)
        }
    })
}

extern "C" fn enter(share: *mut c_void) -> *mut c_void {
    // SAFETY: `in_threads` passes a share, which no other thread uses until this one has ended.
    let share = unsafe { &mut *share.cast::<Share<'_>>() };
    share.counts = work(share.job);
    core::ptr::null_mut()
}

/// Folds windows until none is left.
fn work(job: &Job<'_>) -> Folded {
    let Request { is_still, is_without_io, .. } = job.request;
    let fail = |errno: Errno| job.error.store(errno, Relaxed);
    let mut folder = match Folder::new(job.reads, is_still, is_without_io, job.page) {
        Ok(folder) => folder,
        Err(errno) => {
            fail(errno);
            return Folded::default();
        }
    };
    while let Some(part) = job.list.next() {
        if let Err(errno) = folder.fold(part.start, part.end) {
            fail(errno);
            break;
        }
        if job.error.load(Relaxed) != 0 {
            break;
        }
    }
    folder.counts
}

const _: () = assert!(Method::Full as u32 == 1 && Method::User as u32 == 2 && Method::Still as u32 == 3);
