//! Begins threads and robust mutexes beside folding: `fold/gate.rs` says why.

use core::ffi::{c_int, c_void};

use crate::fold::gate::CHUNKS;
use crate::next::Next;
use crate::thread::{self, Start};

static INITIALISE: Next = Next::new(c"pthread_mutex_init");

type Initialise = unsafe extern "C" fn(*mut libc::pthread_mutex_t, *const libc::pthread_mutexattr_t) -> c_int;

/// Finds the next functions, while the process has one thread.
pub fn find_next() {
    let _ = thread::CREATE.address();
    let _ = INITIALISE.address();
}

/// Interposed pthread_create(3), with the same contract.
///
/// # Safety
/// As pthread_create(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are the caller's.
    CHUNKS.pass(|| unsafe { thread::create(thread, attributes, start, argument) })
}

/// Interposed pthread_mutex_init(3), with the same contract.
///
/// # Safety
/// As pthread_mutex_init(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut libc::pthread_mutex_t,
    attributes: *const libc::pthread_mutexattr_t,
) -> c_int {
    let Some(next) = INITIALISE.address() else { return libc::EAGAIN };
    // SAFETY: the next function of this name is of this type, and the arguments are the caller's.
    let initialise = || unsafe { core::mem::transmute::<usize, Initialise>(next)(mutex, attributes) };
    let mut robust = libc::PTHREAD_MUTEX_STALLED;
    // SAFETY: the caller's attributes; the place is ours.
    let is_robust = !attributes.is_null()
        && unsafe { libc::pthread_mutexattr_getrobust(attributes, &raw mut robust) } == 0
        && robust == libc::PTHREAD_MUTEX_ROBUST;
    if is_robust { CHUNKS.pass(initialise) } else { initialise() }
}
