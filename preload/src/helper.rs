//! The library's thread, for memory that no intercepted call shows. In madvise mode it sweeps the map of the process,
//! and in guided mode it requests ranges from the daemon. In other modes there is none. It is started with the program
//! or at the first large block, and in a child of a fork at the first large mapping or block there.
//!
//! Its name shows its progress: `ksmith` at first, then `ksmith N` after N replies of the daemon. `ksmith run` reads
//! this name to scan after the ranges are marked.
//!
//! A second thread slows down a program with one thread, because glibc's malloc takes locks from then on. So by default
//! the thread is started only in a program that has threads already.
//!
//! The kernel allows some calls only to a process with one thread. [`without`] ends the thread for such a call, and
//! [`end_for_good`] before the program filters system calls.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use crate::client::RequestDeadline;
use crate::state::{self, PreloadMode};
use crate::sys::OwnedDescriptor;
use crate::text::{self, LineBuffer};
use crate::{guided, marks, process, sweep, sys};

/// The thread of a memory ([`process::number`], the upper half): its TID, or one of the three numbers below. A child of
/// fork has another memory, and so no thread; a child of vfork has its parent's.
static HELPER: AtomicU64 = AtomicU64::new(0);

/// No thread.
const NONE: u32 = 0;
/// A thread that has not reported its TID yet.
const STARTING: u32 = u32::MAX;
/// No thread, now and later: the program filters system calls, or no thread could be started.
const NEVER: u32 = u32::MAX - 1;

/// The process that has the thread, which no child has.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Timeout of [`without`] for the end of the thread, in nanoseconds. The thread may be unmerging.
const LAST_PATIENCE: u64 = 10_000_000_000;

/// True if the thread is also started in a program with one thread.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Address of glibc's flag for a single thread (`__libc_single_threaded`, since 2.32).
static IS_SINGLE: AtomicPtr<AtomicU8> = AtomicPtr::new(core::ptr::null_mut());

/// Size of the thread's stack in bytes.
const STACK: usize = 256 << 10;

/// Timeout for the daemon's ranges, in milliseconds.
const PATIENCE: i32 = 60_000;

/// Finds glibc's flag, while the library is loaded.
pub fn find(is_wanted: bool) {
    IS_WANTED.store(is_wanted, Relaxed);
    // SAFETY: the name ends in a zero byte.
    let found = sys::quietly(|| unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) });
    IS_SINGLE.store(found.cast(), Relaxed);
}

/// Returns true if the program has one thread only. Where glibc has no flag, this is assumed.
fn is_single() -> bool {
    // SAFETY: null, or glibc's variable of one byte.
    unsafe { IS_SINGLE.load(Relaxed).as_ref() }.is_none_or(|is_single| is_single.load(Relaxed) != 0)
}

/// The word in [`HELPER`] for a thread of a memory.
fn word(memory: i32, thread: u32) -> u64 {
    u64::from(memory.cast_unsigned()) << 32 | u64::from(thread)
}

/// The thread of a memory in a word of [`HELPER`].
fn thread_in(word: u64, memory: i32) -> u32 {
    if (word >> 32) as u32 == memory.cast_unsigned() { word as u32 } else { NONE }
}

/// Starts the thread, if it is wanted and not running yet. Must not be called in a signal handler.
pub fn wake() {
    if !has_rounds() || is_single() && !IS_WANTED.load(Relaxed) {
        return;
    }
    let memory = process::number();
    let before = HELPER.load(Relaxed);
    if thread_in(before, memory) == NONE
        && HELPER.compare_exchange(before, word(memory, STARTING), SeqCst, Relaxed).is_ok()
        && !start()
    {
        HELPER.store(word(memory, NEVER), SeqCst);
    }
}

/// Returns true if the mode needs the thread.
fn has_rounds() -> bool {
    state::interval() != 0 && matches!(state::mode(), PreloadMode::Guided | PreloadMode::Madvise)
}

fn start() -> bool {
    marks::forget_movers();
    state::ENDS_HELPER.store(0, SeqCst);
    PROCESS.store(sys::pid(), SeqCst);
    // SAFETY: a plain structure of C, which its function fills in before it is used; the routine needs no argument.
    sys::quietly(|| unsafe {
        let mut attributes: libc::pthread_attr_t = core::mem::zeroed();
        if libc::pthread_attr_init(&raw mut attributes) != 0 {
            return false;
        }
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let thread = sys::start_thread(&raw const attributes, run, core::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        thread.is_some()
    })
}

/// Ends the thread, if this process has one, and waits until the kernel has removed it. Until then the process does not
/// count as single-threaded. Gives up after `patience`. Returns the word of the thread that has ended.
fn end(memory: i32, patience: Option<u64>) -> Option<u64> {
    let begin = sys::now();
    loop {
        let before = HELPER.load(SeqCst);
        let patience = match thread_in(before, memory) {
            NONE | NEVER => return None,
            // A signal handler that interrupted the start must not wait for it for ever.
            STARTING => patience.or(Some(LAST_PATIENCE)),
            _ if PROCESS.load(SeqCst) != sys::pid() => return None,
            thread => {
                if !sys::has_thread(thread.cast_signed()) {
                    return Some(before);
                }
                state::ENDS_HELPER.store(1, SeqCst);
                sys::wake(&state::ENDS_HELPER);
                patience
            }
        };
        if patience.is_some_and(|patience| sys::now().saturating_sub(begin) > patience) {
            return Some(before);
        }
        sys::nap(100_000);
    }
}

/// Makes a call while the library has no thread in this process. The next large mapping or block starts the thread
/// again.
pub fn without<T>(call: impl FnOnce() -> T) -> T {
    if state::mode() == PreloadMode::Quiet {
        return call();
    }
    let memory = process::number();
    let ended = end(memory, Some(LAST_PATIENCE));
    let result = call();
    if let Some(ended) = ended {
        state::ENDS_HELPER.store(0, SeqCst);
        let _ = HELPER.compare_exchange(ended, word(memory, NONE), SeqCst, Relaxed);
    }
    result
}

/// Ends the thread of this process permanently. The mode is [`PreloadMode::Quiet`] already.
pub fn end_for_good() {
    let memory = process::number();
    let ended = end(memory, None);
    let before = ended.unwrap_or_else(|| HELPER.load(SeqCst));
    // In a child of vfork the thread is its parent's.
    if (ended.is_some() || thread_in(before, memory) == NONE)
        && HELPER.compare_exchange(before, word(memory, NEVER), SeqCst, Relaxed).is_err()
    {
        // Another thread of the program has begun to start one since.
        let _ = end(memory, None);
    }
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    HELPER.store(word(process::number(), sys::tid().cast_unsigned()), SeqCst);
    if state::ends_helper() || !has_rounds() {
        return core::ptr::null_mut();
    }
    sys::set_thread_name(c"ksmith");
    let (mut wait, mut followed) = (1_u64, 0_u64);
    loop {
        for _ in 0..wait {
            sys::sleep_while_zero(&state::ENDS_HELPER, 1_000_000_000);
            // The program ends with its last thread, which must not be this one.
            if state::ends_helper() || !has_rounds() || is_alone() {
                return core::ptr::null_mut();
            }
        }
        let is_done = match state::mode() {
            PreloadMode::Guided => {
                let is_done = guided::follow(RequestDeadline::in_milliseconds(PATIENCE).for_helper()).is_ok();
                if is_done && state::mode() == PreloadMode::Guided {
                    followed = followed.saturating_add(1);
                    let _ = CStr::from_bytes_with_nul(name(followed).bytes()).map(sys::set_thread_name);
                }
                is_done
            }
            PreloadMode::Madvise => {
                sweep::sweep_if_cheap();
                true
            }
            PreloadMode::Idle | PreloadMode::Prctl | PreloadMode::Quiet => return core::ptr::null_mut(),
        };
        // A daemon that does not answer is asked less and less often.
        wait = if is_done { state::interval() } else { wait.saturating_mul(2).min(64) };
    }
}

/// Returns the thread's name after `followed` replies. The kernel keeps 15 bytes and a zero.
fn name(followed: u64) -> LineBuffer<16> {
    LineBuffer::new().add(b"ksmith ").add_number(followed % 100_000_000).add(b"\0")
}

/// Returns true if the program's first thread has ended and only this thread is left.
fn is_alone() -> bool {
    let mut buffer = [0_u8; 512];
    let Ok(file) = OwnedDescriptor::open(c"/proc/self/stat") else { return false };
    let Ok(read) = file.read(&mut buffer) else { return false };
    buffer.get(..read).is_some_and(is_alone_by)
}

/// Returns true if the text of `/proc/PID/stat` shows state Z and at most two threads.
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
