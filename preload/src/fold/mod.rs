//! Folding: discards the zero pages of a range without ksmd. They read as zero, and use memory only after the next
//! write to them.
//!
//! The caller guarantees that nothing writes to the range meanwhile. So a page that was zero when it was read is zero
//! when it is discarded.

mod chunk;
mod discards;
mod pagemap;
mod windows;
mod zero;

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

use self::chunk::ChunkFolder;
use self::pagemap::PagemapFile;
use self::windows::WindowList;
use crate::marks;
use crate::state::{self, PreloadMode};
use crate::sys::{self, Errno};

/// Limit of threads in one call.
const MOST_THREADS: usize = 64;

/// Layout of `struct ksmith_folded` of `ksmith.h`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FoldCounts {
    /// Bytes returned to the kernel.
    pub folded: u64,
    /// Bytes of resident memory that were read.
    pub looked: u64,
    /// Bytes in resident pages that use no memory of this process alone: shared since a fork, merged by KSM, or the
    /// kernel's zero page.
    pub shared: u64,
    /// Bytes in zero pages that are locked by mlock(2).
    pub locked: u64,
    /// Bytes in zero pages of huge pages that are mostly in use.
    pub huge: u64,
    /// Bytes of mappings of another kind.
    pub other: u64,
    /// Time of the call.
    pub nanoseconds: u64,
    /// Number of threads that folded.
    pub threads: u64,
}

impl FoldCounts {
    /// Adds the result of another thread.
    fn add(&mut self, other: &Self) {
        for (sum, part) in [
            (&mut self.folded, other.folded),
            (&mut self.looked, other.looked),
            (&mut self.shared, other.shared),
            (&mut self.locked, other.locked),
            (&mut self.huge, other.huge),
            (&mut self.other, other.other),
            (&mut self.threads, other.threads),
        ] {
            *sum = sum.saturating_add(part);
        }
    }
}

/// One call, shared by its threads.
#[derive(Debug)]
struct FoldJob {
    windows: WindowList,
    pagemap: PagemapFile,
    error: AtomicI32,
}

/// A thread's share of a call.
#[derive(Debug)]
struct FoldShare<'a> {
    job: &'a FoldJob,
    folded: FoldCounts,
}

/// Folds the whole pages of a range in `threads` threads; 0 stands for 1.
///
/// # Errors
/// `EINVAL`: there is no whole page. `EPERM`: the program has sandboxed itself. `ENODATA`: the files of `/proc/self`
/// can't be read. Others are the kernel's, such as `ENOMEM`.
///
/// # Safety
/// Until this returns the range stays mapped, no thread writes to it, and no I/O into it is in progress.
pub unsafe fn fold(start: usize, length: usize, threads: usize) -> Result<FoldCounts, Errno> {
    let end = marks::floor(start.checked_add(length).ok_or(libc::EINVAL)?);
    let start = marks::ceil(start);
    if start >= end {
        return Err(libc::EINVAL);
    }
    if state::mode() == PreloadMode::Quiet {
        return Err(libc::EPERM);
    }
    let begin = sys::now();
    let windows = WindowList::from_maps(start, end)?;
    let pagemap = PagemapFile::open().map_err(|_| libc::ENODATA)?;
    let threads = threads.min(windows.count()).clamp(1, MOST_THREADS);
    let other = windows.other;
    let job = FoldJob { windows, pagemap, error: AtomicI32::new(0) };
    let mut folded = run_threads(&job, threads);
    match job.error.load(Relaxed) {
        0 => {
            folded.other = other;
            folded.nanoseconds = sys::now().saturating_sub(begin);
            Ok(folded)
        }
        errno => Err(errno),
    }
}

/// Folds in the calling thread and in additional ones. If one can't be started, the others do its work.
fn run_threads(job: &FoldJob, threads: usize) -> FoldCounts {
    let mut shares = [const { None::<FoldShare<'_>> }; MOST_THREADS];
    let mut started = [const { None::<libc::pthread_t> }; MOST_THREADS];
    for (share, thread) in shares.iter_mut().zip(&mut started).take(threads.saturating_sub(1)) {
        let share = core::ptr::from_mut(share.insert(FoldShare { job, folded: FoldCounts::default() }));
        // SAFETY: the thread alone uses the share until it is joined below.
        *thread = unsafe { sys::start_thread(core::ptr::null(), enter, share.cast()) };
    }
    let mut own = FoldShare { job, folded: FoldCounts::default() };
    fold_windows(&mut own);
    for (share, thread) in shares.iter().zip(started) {
        if let Some(thread) = thread {
            // SAFETY: a thread that was started, and is joined once.
            sys::quietly(|| unsafe { libc::pthread_join(thread, core::ptr::null_mut()) });
            own.folded.add(&share.as_ref().map_or(FoldCounts::default(), |share| share.folded));
        }
    }
    own.folded
}

extern "C" fn enter(share: *mut c_void) -> *mut c_void {
    // SAFETY: `run_threads` passes a share, which no other thread uses until this one has ended.
    fold_windows(unsafe { &mut *share.cast::<FoldShare<'_>>() });
    core::ptr::null_mut()
}

/// Folds windows until none is left, or a thread has failed.
fn fold_windows(share: &mut FoldShare<'_>) {
    let job = share.job;
    share.folded.threads = 1;
    let mut folder = ChunkFolder::new(&job.pagemap, &mut share.folded);
    while let Some(window) = job.windows.next() {
        if job.error.load(Relaxed) != 0 {
            return;
        }
        // SAFETY: within the range of `fold`: its caller promises this.
        if let Err(errno) = unsafe { folder.fold_window(window) } {
            job.error.store(errno, Relaxed);
            return;
        }
    }
}
