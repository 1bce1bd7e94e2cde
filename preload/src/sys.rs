//! System calls that leave `errno` as it was.

use core::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::AtomicU32;

pub use crate::syscall::Errno;
use crate::syscall::call;

/// Runs `call` and restores `errno` after it.
pub fn quietly<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: this thread always has a place for errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    let result = call();
    // SAFETY: as above.
    unsafe { *errno = before };
    result
}

/// Converts the result of a libc function that returns -1 on failure, before `errno` is restored.
fn outcome(result: c_long) -> Result<usize, Errno> {
    if result == -1 {
        // SAFETY: this thread's errno.
        return Err(unsafe { *libc::__errno_location() });
    }
    usize::try_from(result).map_err(|_| libc::EOVERFLOW)
}

/// Advice of madvise(2) that changes no content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum MemoryAdvice {
    /// ksmd may merge the range.
    Mergeable = libc::MADV_MERGEABLE,
    /// ksmd may no longer merge the range; merged pages have been copied when the call returns.
    Unmergeable = libc::MADV_UNMERGEABLE,
    /// Huge pages are wanted.
    HugePage = libc::MADV_HUGEPAGE,
    /// The range was not used lately. For a part of a huge page the kernel splits it.
    Cold = libc::MADV_COLD,
    /// The range is to be in the page table, as by a read of each page (5.14).
    PopulateRead = libc::MADV_POPULATE_READ,
}

/// Calls madvise(2) on a range.
pub fn madvise(start: usize, length: usize, advice: MemoryAdvice) -> Result<(), Errno> {
    // SAFETY: advice of this type changes no content, whatever the range is.
    unsafe { call(libc::SYS_madvise, [start, length, advice as usize]) }.map(drop)
}

/// Returns true if a page is in memory (mincore(2)), also while the kernel moves it.
pub fn is_resident(page: usize) -> Result<bool, Errno> {
    let mut state = 0_u8;
    // SAFETY: writes one byte for a range of one byte, to `state`.
    unsafe { call(libc::SYS_mincore, [page, 1, (&raw mut state) as usize]) }?;
    Ok(state & 1 != 0)
}

/// Discards a range: private anonymous memory reads as zero from then on.
///
/// # Safety
/// The range is private anonymous memory of zeros, to which nothing writes meanwhile.
pub unsafe fn discard(start: usize, length: usize) -> Result<(), Errno> {
    // SAFETY: reads as zero before and after, as promised by the caller.
    unsafe { call(libc::SYS_madvise, [start, length, libc::MADV_DONTNEED as usize]) }.map(drop)
}

/// A range of memory (`struct iovec`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct MemoryRange {
    /// The address of its first byte.
    pub start: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// Discards many ranges by one call. Returns the number of discarded bytes: it stops at the first error.
///
/// # Errors
/// The kernel's: before Linux 6.14 it does not do this.
///
/// # Safety
/// As [`discard`], for each range.
pub unsafe fn discard_all(ranges: &[MemoryRange]) -> Result<usize, Errno> {
    /// `PIDFD_SELF_THREAD_GROUP` of include/uapi/linux/pidfd.h (6.14).
    const THIS_PROCESS: c_int = -10001;
    let (first, count) = (ranges.as_ptr() as usize, ranges.len());
    let advice = libc::MADV_DONTNEED as usize;
    // SAFETY: reads as zero before and after, as promised by the caller; the ranges are laid out as the call reads them.
    unsafe { call(libc::SYS_process_madvise, [THIS_PROCESS as usize, first, count, advice, 0]) }
}

/// `PR_SET_MEMORY_MERGE` and `PR_GET_MEMORY_MERGE` of include/uapi/linux/prctl.h (6.4).
const PR_SET_MEMORY_MERGE: usize = 67;
const PR_GET_MEMORY_MERGE: usize = 68;

/// Offers all memory of this process to KSM, now and later, or withdraws it.
pub fn set_memory_merge(is_merged: bool) -> Result<(), Errno> {
    // SAFETY: plain numbers; merging changes no content.
    unsafe { call(libc::SYS_prctl, [PR_SET_MEMORY_MERGE, usize::from(is_merged), 0, 0, 0]) }.map(drop)
}

/// Returns true if all memory of this process is offered to KSM.
pub fn has_memory_merge() -> bool {
    // SAFETY: plain numbers.
    let has = unsafe { call(libc::SYS_prctl, [PR_GET_MEMORY_MERGE, 0, 0, 0, 0]) };
    has == Ok(1)
}

/// Names this thread. The kernel keeps 15 bytes.
pub fn set_thread_name(name: &CStr) {
    // SAFETY: a string that ends in a zero byte, which is copied.
    let _ = unsafe { call(libc::SYS_prctl, [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0]) };
}

/// Maps private memory of zeros, without touching it.
pub fn map(length: usize) -> Result<usize, Errno> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice.
    unsafe { call(libc::SYS_mmap, [0, length, access as usize, flags as usize, usize::MAX, 0]) }
}

/// Unmaps a range of memory.
///
/// # Safety
/// The range is what [`map`] returned, and is not used any more.
pub unsafe fn unmap(start: usize, length: usize) {
    // SAFETY: as promised by the caller.
    let _ = unsafe { call(libc::SYS_munmap, [start, length]) };
}

/// Maps a page of zeros that is empty again in a child of a fork.
pub fn page_wiped_on_fork() -> Option<*mut c_void> {
    const LENGTH: usize = 4096;
    let page = map(LENGTH).ok()?;
    // SAFETY: a page of the library's own, which holds zeros.
    let advised = unsafe { call(libc::SYS_madvise, [page, LENGTH, libc::MADV_WIPEONFORK as usize]) };
    if advised.is_err() {
        // SAFETY: the new mapping, which no other code knows.
        unsafe { unmap(page, LENGTH) };
        return None;
    }
    Some(core::ptr::with_exposed_provenance_mut(page))
}

/// A thread's start routine.
pub type ThreadRoutine = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a thread of the library, which takes no signal: those of the program are for its own threads.
///
/// # Safety
/// The attributes are null or initialised. The routine may be called with the argument in another thread.
pub unsafe fn start_thread(
    attributes: *const libc::pthread_attr_t,
    routine: ThreadRoutine,
    argument: *mut c_void,
) -> Option<libc::pthread_t> {
    // SAFETY: plain structures of C, which their functions fill in before they are used; the rest as promised by the caller.
    quietly(|| unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = core::mem::zeroed();
        // A new thread inherits the mask of its creator.
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let failed = libc::pthread_create(&raw mut thread, attributes, routine, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        (failed == 0).then_some(thread)
    })
}

/// Returns the PID of this process. It is not cached, because a fork changes it.
pub fn pid() -> c_int {
    // SAFETY: takes nothing.
    unsafe { call(libc::SYS_getpid, []) }.map_or(0, |pid| pid as c_int)
}

/// Returns the TID of this thread.
pub fn tid() -> c_int {
    // SAFETY: takes nothing.
    unsafe { call(libc::SYS_gettid, []) }.map_or(0, |tid| tid as c_int)
}

/// Returns true if the kernel has a thread of this process. A thread that has ended counts until the kernel has removed
/// it.
pub fn has_thread(tid: c_int) -> bool {
    // SAFETY: plain numbers; signal 0 is sent to no thread.
    let sent = unsafe { call(libc::SYS_tgkill, [pid() as usize, tid as usize, 0]) };
    sent != Err(libc::ESRCH)
}

/// Sleeps while `word` is 0, for at most this many nanoseconds.
pub fn sleep_while_zero(word: &AtomicU32, nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as c_long,
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    let (word, time) = (word.as_ptr() as usize, (&raw const time) as usize);
    // SAFETY: the word and the time live as long as the call, which reads them only.
    let _ = unsafe { call(libc::SYS_futex, [word, operation as usize, 0, time]) };
}

/// Sleeps for less than a second.
pub fn nap(nanoseconds: c_long) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: the pointer is to a valid time, and the remaining time is not requested.
    let _ = unsafe { call(libc::SYS_nanosleep, [(&raw const time) as usize, 0]) };
}

/// Wakes the threads that sleep on `word`.
pub fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is an address to the call, which neither reads nor writes it.
    let _ = unsafe { call(libc::SYS_futex, [word.as_ptr() as usize, operation as usize, c_int::MAX as usize]) };
}

/// An owned file descriptor, which is closed on drop. It is never kept across calls, because a program may close
/// unknown descriptors.
#[derive(Debug)]
pub struct OwnedDescriptor(c_int);

impl OwnedDescriptor {
    /// Opens a file for reading.
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let arguments = [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, 0];
        // SAFETY: a path that ends in a zero byte.
        unsafe { call(libc::SYS_openat, arguments) }.map(|opened| Self(opened as c_int))
    }

    /// Calls ioctl(2).
    ///
    /// # Safety
    /// The request takes a structure of this type, and pointers in it are valid for the request.
    pub unsafe fn control<T>(&self, request: c_ulong, argument: &mut T) -> Result<usize, Errno> {
        let argument = core::ptr::from_mut(argument) as usize;
        // SAFETY: as promised by the caller; the structure lives as long as the call.
        unsafe { call(libc::SYS_ioctl, [self.0 as usize, request as usize, argument]) }
    }

    /// Reads plain numbers at an offset. Returns the number of bytes read.
    pub fn read_at(&self, numbers: &mut [u64], offset: usize) -> Result<usize, Errno> {
        let (start, length) = (numbers.as_mut_ptr() as usize, size_of_val(numbers));
        // SAFETY: the numbers are ours, take that many bytes, and have a value for any bytes.
        unsafe { call(libc::SYS_pread64, [self.0 as usize, start, length, offset]) }
    }

    /// Creates a Unix stream socket.
    pub fn socket() -> Result<Self, Errno> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain numbers.
        quietly(|| outcome(c_long::from(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })))
            .map(|descriptor| Self(descriptor as c_int))
    }

    /// Reads into `buffer`. Returns 0 at the end, and retries after a signal.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            let (start, length) = (buffer.as_mut_ptr() as usize, buffer.len());
            // SAFETY: the buffer is ours and that long.
            let read = unsafe { call(libc::SYS_read, [self.0 as usize, start, length]) };
            if read != Err(libc::EINTR) {
                return read;
            }
        }
    }

    /// Connects a socket to a path.
    ///
    /// # Errors
    /// The kernel's, or `ENAMETOOLONG` for a length beyond that of an address.
    pub fn connect(&self, address: &libc::sockaddr_un, length: usize) -> Result<(), Errno> {
        if length > size_of_val(address) {
            return Err(libc::ENAMETOOLONG);
        }
        let address = core::ptr::from_ref(address).cast();
        // SAFETY: the address is valid for all its bytes, and `length` is no more.
        quietly(|| outcome(c_long::from(unsafe { libc::connect(self.0, address, length as libc::socklen_t) })))
            .map(drop)
    }

    /// Sends bytes, without SIGPIPE if the other end is closed.
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let start = bytes.as_ptr().cast();
        // SAFETY: the bytes are valid for their length.
        quietly(|| outcome(unsafe { libc::send(self.0, start, bytes.len(), libc::MSG_NOSIGNAL) } as c_long))
    }

    /// Waits for `events` for at most `milliseconds` (-1: forever). Returns `false` on a time-out.
    pub fn wait(&self, events: i16, milliseconds: c_int) -> Result<bool, Errno> {
        let mut poll = libc::pollfd { fd: self.0, events, revents: 0 };
        // SAFETY: an array of one element on our stack.
        quietly(|| outcome(c_long::from(unsafe { libc::poll(&raw mut poll, 1, milliseconds) })))
            .map(|ready| ready > 0)
    }
}

impl Drop for OwnedDescriptor {
    fn drop(&mut self) {
        // SAFETY: ours, and closed once.
        let _ = unsafe { call(libc::SYS_close, [self.0 as usize]) };
    }
}

/// Returns the nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Returns the nanoseconds of the coarse monotonic clock: precise to a few milliseconds, for a tenth of the cost.
pub fn about_now() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is ours.
    quietly(|| unsafe { libc::clock_gettime(which, &raw mut time) });
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Writes to standard error.
pub fn say(bytes: &[u8]) {
    // SAFETY: the bytes are valid for their length. A failed write is ignored.
    let _ = unsafe { call(libc::SYS_write, [2, bytes.as_ptr() as usize, bytes.len()]) };
}
