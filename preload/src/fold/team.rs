//! The threads of one call, and their memory.
//!
//! Each has a table of descriptors of its own, without those of the program: a child that another thread forks meanwhile gets no
//! userfaultfd, which would hold off the wake-up at its end, and a program that closes all descriptors does not close this one.
//! Their stacks lie in memory of the library's own, so that no folding thread protects another's.

use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI32, AtomicU32};

use super::count::Folded;
use super::list::List;
use super::own::Own;
use super::window::{self, Folder, Reads, SCRATCH};
use super::{MOST_THREADS, Request};
use crate::sys::{self, Errno};
use crate::thread;

/// Stack of a thread that folds, in bytes, with the program's static thread data. Most of it is never touched.
const STACK: usize = 8 << 20;

/// What the threads of a call share.
#[derive(Debug)]
pub struct Job<'a> {
    /// The windows that are folded.
    pub list: &'a List,
    /// How memory is read.
    pub reads: Reads,
    /// What is to be done.
    pub request: Request,
    /// How writers are kept out, as a number of [`super::count::Method`].
    method: AtomicU32,
    error: AtomicI32,
}

impl<'a> Job<'a> {
    /// A job that has not begun.
    pub const fn new(list: &'a List, reads: Reads, request: Request) -> Self {
        Self { list, reads, request, method: AtomicU32::new(0), error: AtomicI32::new(0) }
    }
}

/// What was done, and the CPU time that it took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done {
    /// What was found.
    pub counts: Folded,
    /// CPU time of all threads in nanoseconds.
    pub cpu: u64,
}

/// What a thread is given, and what it gives back.
struct Share<'a> {
    job: &'a Job<'a>,
    own: Own,
    scratch: usize,
    done: Done,
}

/// Memory of the library's own, which is unmapped on drop.
struct Block {
    start: usize,
    bytes: usize,
}

impl Block {
    fn of(bytes: usize) -> Result<Self, Errno> {
        Ok(Self { start: sys::map(bytes)?, bytes })
    }

    fn span(&self) -> (usize, usize) {
        (self.start, self.start.saturating_add(self.bytes))
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        sys::unmap(self.start, self.bytes);
    }
}

/// Does the job in so many threads. The caller waits, or works itself where nothing has to be kept out. Where one of several
/// threads can't be started the rest do its work.
///
/// # Errors
/// The kernel's, as `ENOMEM`. `EAGAIN`: no thread could be started.
pub fn run(job: &Job<'_>, threads: usize) -> Result<Done, Errno> {
    let scratch = Block::of(threads.saturating_mul(SCRATCH))?;
    let stacks = Block::of(threads.saturating_mul(STACK))?;
    // A child of fork has all stacks: libc goes through its list of them there.
    let _ = sys::madvise(stacks.start, stacks.bytes, libc::MADV_DOFORK);
    let _ = sys::madvise(stacks.start, stacks.bytes, libc::MADV_NOHUGEPAGE);
    let own = Own::of_this_thread([job.list.block(), stacks.span(), scratch.span()]);
    let share = |number: usize| {
        let scratch = scratch.start.saturating_add(number.saturating_mul(SCRATCH));
        Share { job, own, scratch, done: Done::default() }
    };
    let mut sum = Done::default();
    if job.request.is_still && threads == 1 {
        let mut share = share(0);
        work(&mut share);
        sum = share.done;
        sum.counts.threads = 1;
    } else {
        let mut started = [const { None::<libc::pthread_t> }; MOST_THREADS];
        let mut shares = [const { None }; MOST_THREADS];
        for (number, (place, kept)) in started.iter_mut().zip(&mut shares).enumerate().take(threads) {
            let stack = stacks.start.saturating_add(number.saturating_mul(STACK));
            *place = start(core::ptr::from_mut(kept.insert(share(number))).cast(), stack);
        }
        for (thread, share) in started.iter_mut().zip(&mut shares) {
            let (Some(thread), Some(share)) = (thread.take(), share) else { continue };
            // SAFETY: a thread that was started, and is joined once. Its share lives until now.
            sys::quietly(|| unsafe { libc::pthread_join(thread, core::ptr::null_mut()) });
            sum.counts.add(&share.done.counts);
            sum.counts.threads = sum.counts.threads.saturating_add(1);
            sum.cpu = sum.cpu.saturating_add(share.done.cpu);
        }
    }
    sum.counts.method = job.method.load(Relaxed);
    match job.error.load(Relaxed) {
        0 if sum.counts.threads == 0 => Err(libc::EAGAIN),
        0 => Ok(sum),
        errno => Err(errno),
    }
}

/// Starts a thread on a stack of ours. The lowest page of it stops what would grow over it.
fn start(share: *mut c_void, stack: usize) -> Option<libc::pthread_t> {
    sys::guard_page(stack);
    sys::quietly(|| {
        // SAFETY: plain structures of C, which their functions fill in before they are used; the share and the stack outlive the
        // thread, which is joined.
        unsafe {
            let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
            let mut new: libc::pthread_t = core::mem::zeroed();
            if libc::pthread_attr_init(&raw mut attributes) != 0 {
                return None;
            }
            let place = core::ptr::with_exposed_provenance_mut(stack);
            libc::pthread_attr_setstack(&raw mut attributes, place, STACK);
            // The program's signals are for its own threads; a thread inherits the mask of the one that makes it.
            let made = sys::without_signals(|| thread::create(&raw mut new, &raw const attributes, enter, share));
            libc::pthread_attr_destroy(&raw mut attributes);
            (made == 0).then_some(new)
        }
    })
}

extern "C" fn enter(share: *mut c_void) -> *mut c_void {
    // SAFETY: `run` passes a share, which no other thread uses until this one has ended.
    let share = unsafe { &mut *share.cast::<Share<'_>>() };
    let before = sys::thread_cpu();
    match sys::leave_descriptors() {
        Ok(()) => work(share),
        Err(errno) => share.job.error.store(errno, Relaxed),
    }
    share.done.cpu = sys::thread_cpu().saturating_sub(before);
    core::ptr::null_mut()
}

/// Folds windows until none is left.
fn work(share: &mut Share<'_>) {
    let job = share.job;
    let fail = |errno: Errno| job.error.store(errno, Relaxed);
    // Asked for in this thread: a userfaultfd in the program's table, however short, might be a child's too.
    match window::method(job.request.is_still, job.request.is_without_io) {
        Ok(method) => job.method.store(method as u32, Relaxed),
        Err(errno) => return fail(errno),
    }
    let mut folder = match Folder::new(job.reads, &job.request, share.own, share.scratch) {
        Ok(folder) => folder,
        Err(errno) => return fail(errno),
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
    share.done.counts = folder.counts;
}
