//! A thread of the library, for memory that no intercepted call shows, and to fold. It is started with the program or at the
//! first large block, and in a child of a fork at the first large mapping or block there.
//!
//! Its name shows its progress: `ksmith` at first, then `ksmith N` after N answers of the daemon. `ksmith run`
//! reads this name to scan after the ranges are marked.
//!
//! A second thread makes a program with one thread slower, because glibc's malloc takes locks from then on. So by
//! default the thread is started only in a program that has threads already.
//!
//! The kernel allows some calls only to a process with one thread. [`without`] ends the thread for such a call.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, Ordering::Relaxed};

use crate::client::Deadline;
use crate::fold::auto::{self, Auto};
use crate::state::{self, Mode};
use crate::sys::Descriptor;
use crate::text::{self, Line};
use crate::{guided, marks, process, sweep, sys};

/// The memory ([`process::number`]) that has the thread. A child of fork has none; a child of vfork has its
/// parent's.
static STARTED: AtomicI32 = AtomicI32::new(0);

/// The TID of the thread: 0 if there is none, [`STARTING`] until it is known. The next variable holds the PID of the process
/// that has the thread, which no child has.
static THREAD: AtomicI32 = AtomicI32::new(0);
static PROCESS: AtomicI32 = AtomicI32::new(0);
const STARTING: i32 = -1;

/// The longest wait for the end of the thread, in nanoseconds. It may be unmerging.
const LAST_PATIENCE: u64 = 10_000_000_000;

/// Whether the thread is started in a program with one thread too.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Address of glibc's flag for a single thread (`__libc_single_threaded`, since 2.32).
static IS_SINGLE: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());

/// Size of the thread's stack in bytes.
const STACK: usize = 256 << 10;

/// The longest wait for the daemon's ranges, in milliseconds.
const PATIENCE: i32 = 60_000;

/// Finds glibc's flag, while the library is loaded.
pub fn find(is_wanted: bool) {
    IS_WANTED.store(is_wanted, Relaxed);
    // SAFETY: the name ends in a zero byte.
    let found = sys::quietly(|| unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) });
    IS_SINGLE.store(found.cast(), Relaxed);
}

/// Whether the program has one thread only. Where glibc has no flag, this is assumed.
fn is_single() -> bool {
    // SAFETY: null, or glibc's variable of one byte.
    unsafe { IS_SINGLE.load(Relaxed).as_ref() }.is_none_or(|is_single| is_single.load(Relaxed) != 0)
}

/// Starts the thread, if it is wanted and not running yet. Must not be called in a signal handler.
pub fn wake() {
    if state::mode() == Mode::Quiet || !has_rounds() && !auto::is_wanted() {
        return;
    }
    if is_single() && !IS_WANTED.load(Relaxed) {
        return;
    }
    let own = process::number();
    let before = STARTED.load(Relaxed);
    if before != own && STARTED.compare_exchange(before, own, Relaxed, Relaxed).is_ok() {
        sys::quietly(start);
    }
}

/// Whether there is more to do than to fold.
fn has_rounds() -> bool {
    state::interval() != 0 && matches!(state::mode(), Mode::Guided | Mode::Madvise)
}

fn start() {
    marks::forget_movers();
    // SAFETY: plain C structures, which their functions initialise before they are used. A failure to start the
    // thread is ignored.
    unsafe {
        let mut all: libc::sigset_t = core::mem::zeroed();
        let mut before: libc::sigset_t = core::mem::zeroed();
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        let mut thread: libc::pthread_t = core::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return;
        }
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        // The program's signals are for its own threads; a new thread inherits the mask of its creator.
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        PROCESS.store(sys::pid(), Relaxed);
        THREAD.store(STARTING, Relaxed);
        if crate::thread::create(&raw mut thread, &raw const attributes, run, core::ptr::null_mut()) != 0 {
            THREAD.store(0, Relaxed);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
    }
}

/// Makes a call while the library has no thread in this process. The thread starts again with the next large mapping or
/// block.
pub fn without<T>(call: impl FnOnce() -> T) -> T {
    let has_thread = THREAD.load(Relaxed) != 0 && PROCESS.load(Relaxed) == sys::pid();
    if !has_thread || state::mode() == Mode::Quiet {
        return call();
    }
    state::ENDS_HELPER.store(1, Relaxed);
    sys::wake(&state::ENDS_HELPER);
    let deadline = sys::now().saturating_add(LAST_PATIENCE);
    while is_there() && sys::now() < deadline {
        sys::nap(100_000);
    }
    let result = call();
    THREAD.store(0, Relaxed);
    STARTED.store(0, Relaxed);
    state::ENDS_HELPER.store(0, Relaxed);
    result
}

/// Whether the kernel still has the thread. Until it has forgotten a thread that has ended, the process does not count as
/// one with a single thread.
fn is_there() -> bool {
    let thread = THREAD.load(Relaxed);
    thread == STARTING || sys::has_thread(thread)
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    THREAD.store(sys::tid(), Relaxed);
    let _ = sys::prctl(libc::PR_SET_NAME, c"ksmith".as_ptr() as usize);
    let (mut wait, mut followed) = (1_u64, 0_u64);
    let mut folder = Auto::new();
    loop {
        for _ in 0..wait {
            let ticks = if auto::is_wanted() { auto::TICKS } else { 1 };
            for _ in 0..ticks {
                sys::sleep_while_zero(&state::ENDS_HELPER, 1_000_000_000 / ticks);
                // The program ends with its last thread, which must not be this one.
                if state::ends_helper() || is_alone() {
                    return core::ptr::null_mut();
                }
                if state::mode() != Mode::Quiet {
                    folder.tick();
                }
            }
        }
        let is_done = match state::mode() {
            Mode::Guided if has_rounds() => {
                let is_done = guided::follow(Deadline::in_milliseconds(PATIENCE).of_helper()).is_ok();
                if is_done && state::mode() == Mode::Guided {
                    followed = followed.saturating_add(1);
                    let _ = sys::prctl(libc::PR_SET_NAME, name(followed).bytes().as_ptr() as usize);
                }
                is_done
            }
            Mode::Madvise if has_rounds() => {
                sweep::sweep_if_cheap();
                true
            }
            Mode::Idle | Mode::Prctl | Mode::Guided | Mode::Madvise if auto::is_wanted() => true,
            _ => return core::ptr::null_mut(),
        };
        // A daemon that does not answer is asked less and less often.
        wait = if is_done { state::interval().max(1) } else { wait.saturating_mul(2).min(64) };
    }
}

/// The thread's name after `followed` answers. The kernel keeps 15 bytes and a zero.
fn name(followed: u64) -> Line<16> {
    Line::new().add(b"ksmith ").add_number(followed % 100_000_000).add(b"\0")
}

/// Whether the program's first thread has ended and only this thread is left.
fn is_alone() -> bool {
    let mut buffer = [0_u8; 512];
    let Ok(file) = Descriptor::open(c"/proc/self/stat") else { return false };
    let Ok(read) = file.read(&mut buffer) else { return false };
    buffer.get(..read).is_some_and(is_alone_by)
}

/// Whether the text of `/proc/PID/stat` shows state Z and at most two threads.
fn is_alone_by(stat: &[u8]) -> bool {
    let Some(name_end) = stat.iter().rposition(|&byte| byte == b')') else { return false };
    let mut fields = text::words(stat.get(name_end.saturating_add(1)..).unwrap_or_default());
    let is_ended = fields.next() == Some(b"Z");
    // num_threads is field 20 of the file, where state is field 3.
    is_ended && fields.nth(16).and_then(text::decimal).is_some_and(|threads| threads <= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_how_many_answers_were_followed() {
        assert_eq!(name(7).bytes(), b"ksmith 7\0");
        let long = name(99_999_999);
        assert_eq!((long.bytes().len(), long.bytes().last()), (16, Some(&0)), "no longer than the kernel keeps");
    }

    #[test]
    fn the_last_thread_is_recognised_by_stat() {
        let stat = |state: &str, threads: u32| {
            format!("7 (a) b) {state} 1 7 7 0 -1 4194304 100 0 0 0 0 0 0 0 20 0 {threads} 0 3141 0 0")
        };
        assert!(is_alone_by(stat("Z", 2).as_bytes()));
        assert!(!is_alone_by(stat("Z", 3).as_bytes()));
        assert!(!is_alone_by(stat("S", 2).as_bytes()));
        assert!(!is_alone_by(b""));
        assert!(!is_alone());
        // The fields of the real file are where they are expected. Threads of other tests start and end
        // meanwhile.
        let agree = || {
            let text = std::fs::read("/proc/self/stat").unwrap();
            let end = text.iter().rposition(|&byte| byte == b')').unwrap();
            let threads = text::words(&text[end + 1..]).nth(17).and_then(text::decimal);
            threads == Some(std::fs::read_dir("/proc/self/task").unwrap().count() as u64)
        };
        assert!((0..1000).any(|_| agree()));
    }
}
