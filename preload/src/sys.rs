//! System calls that leave `errno` as it was.

use core::ffi::{CStr, c_int, c_long, c_ulong};
use core::sync::atomic::AtomicU32;

/// The `errno` of a failed call.
pub type Errno = c_int;

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

/// The result of a C call that returns -1 on failure, taken before `errno` is restored.
fn outcome(result: c_long) -> Result<usize, Errno> {
    if result == -1 {
        // SAFETY: this thread's errno.
        return Err(unsafe { *libc::__errno_location() });
    }
    usize::try_from(result).map_err(|_| libc::EOVERFLOW)
}

/// Calls madvise(2) by its number, because the function of this name may be our own.
pub fn madvise(start: usize, length: usize, advice: c_int) -> Result<(), Errno> {
    // SAFETY: callers pass only advice that changes no content: on merging and on huge pages.
    quietly(|| outcome(unsafe { libc::syscall(libc::SYS_madvise, start, length, advice) })).map(drop)
}

/// Calls prctl(2) with an option that takes a plain number.
pub fn prctl(option: c_int, value: usize) -> Result<usize, Errno> {
    // SAFETY: callers pass options that take plain numbers or, for PR_SET_NAME, a string of this library.
    quietly(|| outcome(unsafe { libc::syscall(libc::SYS_prctl, option, value, 0, 0, 0) }))
}

/// Maps a page of zeros that is empty again in a child of a fork.
pub fn page_wiped_on_fork() -> Option<*mut libc::c_void> {
    const LENGTH: usize = 4096;
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let page =
        quietly(|| outcome(unsafe { libc::syscall(libc::SYS_mmap, 0_usize, LENGTH, access, flags, -1, 0_usize) }))
            .ok()?;
    if madvise(page, LENGTH, libc::MADV_WIPEONFORK).is_err() {
        // SAFETY: the new mapping, which no other code knows.
        quietly(|| unsafe { libc::syscall(libc::SYS_munmap, page, LENGTH) });
        return None;
    }
    Some(core::ptr::with_exposed_provenance_mut(page))
}

/// Maps private memory of zeros, without touching it. It is not there in a child of a fork.
pub fn map(length: usize) -> Result<usize, Errno> {
    let (access, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start =
        quietly(|| outcome(unsafe { libc::syscall(libc::SYS_mmap, 0_usize, length, access, flags, -1, 0_usize) }))?;
    let _ = madvise(start, length, libc::MADV_DONTFORK);
    Ok(start)
}

/// Unmaps memory of the library's own, or such that the program wants unmapped.
pub fn unmap(start: usize, length: usize) {
    // SAFETY: callers pass what `map` or `reserve` gave, or the end of what the program makes smaller.
    let _ = quietly(|| unsafe { libc::syscall(libc::SYS_munmap, start, length) });
}

/// Moves a range, from its first byte to before the second, to an address, or resizes it in its place.
pub fn remap(range: (usize, usize), length: usize, to: Option<usize>) -> Result<usize, Errno> {
    let (start, old_length) = (range.0, range.1.saturating_sub(range.0));
    let flags = if to.is_some() { libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED } else { 0 };
    let to = to.unwrap_or(0);
    // SAFETY: callers pass memory that the program wants moved, and an address that `reserve` gave.
    quietly(|| outcome(unsafe { libc::syscall(libc::SYS_mremap, start, old_length, length, flags, to) }))
}

/// Reserves addresses without any access: at this address, whatever is there, or at one of the kernel's choice.
pub fn reserve(address: Option<usize>, length: usize) -> Result<usize, Errno> {
    map_without_access(address.unwrap_or(0), length, if address.is_some() { libc::MAP_FIXED } else { 0 })
}

/// Reserves these addresses, if nothing is there.
pub fn reserve_unused(address: usize, length: usize) -> Result<(), Errno> {
    match map_without_access(address, length, libc::MAP_FIXED_NOREPLACE) {
        Ok(given) if given == address => Ok(()),
        // A kernel before 4.17 takes the address for a hint.
        Ok(given) => {
            unmap(given, length);
            Err(libc::EEXIST)
        }
        Err(errno) => Err(errno),
    }
}

fn map_without_access(address: usize, length: usize, flags: c_int) -> Result<usize, Errno> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let access = libc::PROT_NONE;
    // SAFETY: replaces nothing but what the program wants replaced.
    quietly(|| outcome(unsafe { libc::syscall(libc::SYS_mmap, address, length, access, flags, -1, 0_usize) }))
}

/// Takes all access from the first page of memory of the library's own.
pub fn guard_page(start: usize) {
    const LENGTH: usize = 4096;
    // SAFETY: callers pass what `map` gave, and do not use that page.
    quietly(|| unsafe { libc::syscall(libc::SYS_mprotect, start, LENGTH, libc::PROT_NONE) });
}

/// Gives this thread a table of descriptors of its own, which is empty. The other threads keep theirs.
pub fn leave_descriptors() -> Result<(), Errno> {
    /// `CLOSE_RANGE_UNSHARE` of include/uapi/linux/close_range.h (5.9).
    const UNSHARE: c_int = 1 << 1;
    // SAFETY: plain numbers; no descriptor is known to code that this thread runs.
    quietly(|| outcome(unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, UNSHARE) })).map(drop)
}

/// A piece of memory (`struct iovec`).
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Place(libc::iovec);

impl Place {
    /// That of so many bytes from `start` on.
    pub const fn of(start: usize, length: usize) -> Self {
        Self(libc::iovec { iov_base: core::ptr::without_provenance_mut(start), iov_len: length })
    }
}

/// Copies pieces of memory of this process, which have `length` bytes together, one behind another: returns how many bytes could be
/// read.
pub fn copy_own(from: &[Place], to: usize, length: usize) -> Result<usize, Errno> {
    let local = Place::of(to, length);
    let (local, remote, count) = (&raw const local, from.as_ptr(), from.len());
    // SAFETY: `to` is memory of the library's own of that length, or a page of the program's that is put back; what can't be read or
    // written to is an error.
    quietly(|| outcome(unsafe { libc::syscall(libc::SYS_process_vm_readv, pid(), local, 1, remote, count, 0) }))
}

/// Runs `work` while this thread takes no signal.
pub fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: plain structures, which the functions fill in.
    let before = unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    };
    let result = work();
    // SAFETY: the mask that was before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut()) };
    result
}

/// The address of this thread's `errno`, which lies among its thread data.
pub fn errno_place() -> usize {
    // SAFETY: this thread always has a place for errno.
    unsafe { libc::__errno_location() }.expose_provenance()
}

/// The PID of this process. It is not cached, because a fork changes it.
pub fn pid() -> c_int {
    // SAFETY: takes nothing and can't fail.
    quietly(|| unsafe { libc::syscall(libc::SYS_getpid) }) as c_int
}

/// The effective user of this process, which is what a socket's other end is told.
pub fn user() -> u32 {
    // SAFETY: takes nothing and can't fail.
    quietly(|| unsafe { libc::syscall(libc::SYS_geteuid) }) as u32
}

/// The TID of this thread.
pub fn tid() -> c_int {
    // SAFETY: takes nothing and can't fail.
    quietly(|| unsafe { libc::syscall(libc::SYS_gettid) }) as c_int
}

/// Whether a thread of this process is there. One that has ended is there until the kernel has forgotten it.
pub fn has_thread(tid: c_int) -> bool {
    // SAFETY: plain numbers; signal 0 is sent to no thread.
    quietly(|| outcome(unsafe { libc::syscall(libc::SYS_tgkill, pid(), tid, 0) })) != Err(libc::ESRCH)
}

/// Sleeps, for as long as `word` is 0 at most.
pub fn sleep_while_zero(word: &AtomicU32, nanoseconds: u64) {
    let time = libc::timespec {
        tv_sec: (nanoseconds / 1_000_000_000) as libc::time_t,
        tv_nsec: (nanoseconds % 1_000_000_000) as c_long,
    };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the process, and the time is only read.
    quietly(|| unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 0, &raw const time) });
}

/// Sleeps for less than a second.
pub fn nap(nanoseconds: c_long) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: the pointer is to a valid time, and the remaining time is not requested.
    quietly(|| unsafe { libc::nanosleep(&raw const time, core::ptr::null_mut()) });
}

/// Wakes the threads that sleep on `word`.
pub fn wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the process.
    quietly(|| unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, c_int::MAX) });
}

/// A descriptor, which is closed on drop. It is never kept across calls, because a program may close unknown
/// descriptors.
#[derive(Debug)]
pub struct Descriptor(c_int);

impl Descriptor {
    /// Opens a file for reading.
    pub fn open(path: &CStr) -> Result<Self, Errno> {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let path = path.as_ptr();
        // SAFETY: a path that ends in a zero byte.
        let opened =
            quietly(|| outcome(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) }))?;
        Ok(Self(opened as c_int))
    }

    /// Opens a file for reading and writing.
    pub fn open_to_write(path: &CStr) -> Result<Self, Errno> {
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        let path = path.as_ptr();
        // SAFETY: a path that ends in a zero byte.
        let opened =
            quietly(|| outcome(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) }))?;
        Ok(Self(opened as c_int))
    }

    /// Makes a system call that takes flags and returns a descriptor.
    pub fn of_call(number: c_long, flags: c_int) -> Result<Self, Errno> {
        // SAFETY: a plain number goes in.
        quietly(|| outcome(unsafe { libc::syscall(number, flags) })).map(|descriptor| Self(descriptor as c_int))
    }

    /// Takes over a descriptor that the kernel has put into an event for this reader.
    pub const fn of_event(descriptor: c_int) -> Self {
        Self(descriptor)
    }

    /// Makes an ioctl(2) that takes a plain number and returns a descriptor.
    pub fn control_new(&self, request: c_ulong, argument: c_int) -> Result<Self, Errno> {
        // SAFETY: a plain number goes in.
        quietly(|| outcome(unsafe { libc::syscall(libc::SYS_ioctl, self.0, request, argument) }))
            .map(|descriptor| Self(descriptor as c_int))
    }

    /// Makes an ioctl(2) with a structure of its kind. Goes on after a signal.
    pub fn control<T>(&self, request: c_ulong, argument: &mut T) -> Result<usize, Errno> {
        loop {
            let place = core::ptr::from_mut(argument);
            // SAFETY: callers pass the structure that the request takes, which lives as long as the call.
            let made = quietly(|| outcome(unsafe { libc::syscall(libc::SYS_ioctl, self.0, request, place) }));
            if made != Err(libc::EINTR) {
                return made;
            }
        }
    }

    /// Reads into a structure of plain numbers.
    pub fn read_into<T: Copy>(&self, place: &mut T) -> Result<usize, Errno> {
        let start = core::ptr::from_mut(place).cast::<u8>();
        // SAFETY: the structure is ours, that long, and any bytes are values of it.
        self.read(unsafe { core::slice::from_raw_parts_mut(start, size_of::<T>()) })
    }

    /// Reads a plain number at an offset.
    pub fn read_at(&self, place: &mut u64, offset: usize) -> Result<usize, Errno> {
        let (start, length) = (core::ptr::from_mut(place), size_of::<u64>());
        // SAFETY: the place is ours and that long.
        quietly(|| outcome(unsafe { libc::syscall(libc::SYS_pread64, self.0, start, length, offset) }))
    }

    /// Makes a Unix stream socket.
    pub fn socket() -> Result<Self, Errno> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: plain numbers.
        quietly(|| outcome(c_long::from(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })))
            .map(|descriptor| Self(descriptor as c_int))
    }

    /// Reads into `buffer`. Returns 0 at the end, and goes on after a signal.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            let (start, length) = (buffer.as_mut_ptr(), buffer.len());
            // SAFETY: the buffer is ours and that long.
            let read = quietly(|| outcome(unsafe { libc::syscall(libc::SYS_read, self.0, start, length) }));
            if read != Err(libc::EINTR) {
                return read;
            }
        }
    }

    /// Connects a socket to a path.
    pub fn connect(&self, address: &libc::sockaddr_un, length: usize) -> Result<(), Errno> {
        let address = core::ptr::from_ref(address).cast();
        // SAFETY: the address is valid for `length` bytes, which the caller has from the path.
        quietly(|| outcome(c_long::from(unsafe { libc::connect(self.0, address, length as libc::socklen_t) })))
            .map(drop)
    }

    /// Sends bytes, without SIGPIPE if the other end is closed.
    pub fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        let start = bytes.as_ptr().cast();
        // SAFETY: the bytes are valid for their length.
        quietly(|| outcome(unsafe { libc::send(self.0, start, bytes.len(), libc::MSG_NOSIGNAL) } as c_long))
    }

    /// Waits for `events` for at most `milliseconds` (-1: for ever). Returns `false` on a time-out.
    pub fn wait(&self, events: i16, milliseconds: c_int) -> Result<bool, Errno> {
        let mut poll = libc::pollfd { fd: self.0, events, revents: 0 };
        // SAFETY: an array of one element on our stack.
        quietly(|| outcome(c_long::from(unsafe { libc::poll(&raw mut poll, 1, milliseconds) })))
            .map(|ready| ready > 0)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: ours, and closed once.
        quietly(|| unsafe { libc::syscall(libc::SYS_close, self.0) });
    }
}

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of the monotonic clock, precise to a few milliseconds, for a tenth of the cost.
pub fn about_now() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// Nanoseconds of CPU time of this thread.
pub fn thread_cpu() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// When a file was last written to, in nanoseconds; 0 if it can't be told.
pub fn written(path: &CStr) -> u64 {
    // SAFETY: a path that ends in a zero byte, and a plain structure of ours.
    let (result, found) = quietly(|| unsafe {
        let mut found: libc::stat = core::mem::zeroed();
        (libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), &raw mut found, 0), found)
    });
    let nanoseconds = (found.st_mtime as u64).wrapping_mul(1_000_000_000).wrapping_add(found.st_mtime_nsec as u64);
    if result == 0 { nanoseconds } else { 0 }
}

/// Writes a short file by one call. A failed write is ignored.
pub fn write_file(path: &CStr, bytes: &[u8]) {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let mode = 0o600;
    // SAFETY: a path that ends in a zero byte.
    let opened =
        quietly(|| outcome(unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, mode) }));
    if let Ok(opened) = opened {
        let file = Descriptor(opened as c_int);
        // SAFETY: the bytes are valid for their length.
        quietly(|| unsafe { libc::syscall(libc::SYS_write, file.0, bytes.as_ptr(), bytes.len()) });
    }
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
    quietly(|| unsafe { libc::syscall(libc::SYS_write, 2, bytes.as_ptr(), bytes.len()) });
}
