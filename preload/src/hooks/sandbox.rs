//! Ends the library's thread and all system calls of the library before the program filters system calls by seccomp(2).
//! An unexpected call may end the program, and a filter may be set in all threads at once
//! (`SECCOMP_FILTER_FLAG_TSYNC`).
//!
//! libc has no function for seccomp(2): libseccomp and others make it by syscall(2), which is interposed for that.

use core::ffi::{c_int, c_long};

use crate::helper;
use crate::next::NextFunction;
use crate::syscall::call_as_libc;

static PRCTL: NextFunction = NextFunction::new(c"prctl");
static SYSCALL: NextFunction = NextFunction::new(c"syscall");

type Prctl = unsafe extern "C" fn(c_int, usize, usize, usize, usize) -> c_int;
type Syscall = unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;

/// Finds the next functions, while the process has one thread.
pub fn find_next() {
    for next in [&PRCTL, &SYSCALL] {
        let _ = next.address();
    }
}

/// Returns true if an option of prctl(2) begins or sets a filter.
fn begins_sandbox(option: c_int) -> bool {
    matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS)
}

/// Returns true if an operation of seccomp(2) sets a filter. Others ask what the kernel has.
fn sets_filter(operation: usize) -> bool {
    [libc::SECCOMP_SET_MODE_STRICT, libc::SECCOMP_SET_MODE_FILTER].contains(&(operation as u32))
}

/// Ends the library's part in this process.
#[cold]
fn shut_down() {
    super::be_quiet();
    helper::end_for_good();
}

/// Interposed prctl(2), with the same contract.
///
/// # Safety
/// As prctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    if begins_sandbox(option) {
        shut_down();
    }
    match PRCTL.address() {
        // SAFETY: the next function takes these in the same registers, and the arguments are the caller's.
        Some(next) => unsafe { core::mem::transmute::<usize, Prctl>(next)(option, a, b, c, d) },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe { call_as_libc(libc::SYS_prctl, [option as usize, a, b, c, d]) as c_int },
    }
}

/// Interposed syscall(2), with the same contract. All arguments are passed on, even those that the call does not have,
/// as libc's function does. The last is on the stack on x86-64. Except for two calls this takes two comparisons and a
/// jump.
///
/// # Safety
/// As syscall(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    match (number, SYSCALL.known()) {
        (libc::SYS_seccomp | libc::SYS_prctl, _) | (_, None) => {
            // SAFETY: the arguments are the caller's.
            unsafe { syscall_after_a_look(number, a, b, c, d, e, f) }
        }
        // SAFETY: the next function takes these in the same places, and the arguments are the caller's.
        (_, Some(next)) => unsafe { core::mem::transmute::<usize, Syscall>(next)(number, a, b, c, d, e, f) },
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn syscall_after_a_look(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    let begins = match number {
        libc::SYS_seccomp => sets_filter(a),
        libc::SYS_prctl => begins_sandbox(a as c_int),
        _ => false,
    };
    if begins {
        shut_down();
    }
    match SYSCALL.address() {
        // SAFETY: the next function takes these in the same places, and the arguments are the caller's.
        Some(next) => unsafe { core::mem::transmute::<usize, Syscall>(next)(number, a, b, c, d, e, f) },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe { call_as_libc(number, [a, b, c, d, e, f]) },
    }
}
