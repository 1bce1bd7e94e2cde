//! Threads of the library's own, and the function of libc that makes threads: the one of this name may be the library's.

use core::ffi::{c_int, c_void};

use crate::next::Next;

/// The function pthread_create(3) of libc.
pub static CREATE: Next = Next::new(c"pthread_create");

/// What a thread begins with.
pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;

type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// Makes a thread by libc.
///
/// # Safety
/// As pthread_create(3).
pub unsafe fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    let Some(next) = CREATE.address() else { return libc::EAGAIN };
    // SAFETY: libc's function of this name is of this type, and the arguments are the caller's.
    unsafe { core::mem::transmute::<usize, Create>(next)(thread, attributes, start, argument) }
}
