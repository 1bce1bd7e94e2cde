//! Stops all system calls of the library when the program sandboxes itself, because an unexpected one may kill
//! it.

use core::ffi::c_int;

use crate::next::Next;

static PRCTL: Next = Next::new(c"prctl");

/// Interposed prctl(2), with the same contract. A filter of system calls begins with `PR_SET_NO_NEW_PRIVS` or
/// with the filter itself.
///
/// # Safety
/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) {
        super::be_quiet();
    }
    match PRCTL.address() {
        // SAFETY: the next function takes these in the same registers, and the arguments are the caller's.
        Some(next) => unsafe {
            type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
            core::mem::transmute::<usize, Prctl>(next)(option, a, b, c, d)
        },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe { libc::syscall(libc::SYS_prctl, option, a, b, c, d) as c_int },
    }
}
