//! Ends the library's thread for the calls that only a single-threaded process may make: to create a user namespace, as
//! `unshare -U`, bubblewrap and browsers do, and to enter another namespace.

use core::ffi::c_int;

use crate::helper;
use crate::next::NextFunction;
use crate::syscall::call_as_libc;

type OfFlags = unsafe extern "C" fn(c_int) -> c_int;
type OfDescriptor = unsafe extern "C" fn(c_int, c_int) -> c_int;

static UNSHARE: NextFunction = NextFunction::new(c"unshare");
static SETNS: NextFunction = NextFunction::new(c"setns");

/// Flags that the kernel refuses to a process with several threads (`check_unshare_flags` of `kernel/fork.c`).
const ALONE_TO_LEAVE: c_int = libc::CLONE_NEWUSER | libc::CLONE_THREAD | libc::CLONE_SIGHAND | libc::CLONE_VM;

/// The same for setns(2): `userns_install`, `mntns_install` and `timens_install`.
const ALONE_TO_ENTER: c_int = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | CLONE_NEWTIME;

/// `CLONE_NEWTIME` of `include/uapi/linux/sched.h`.
const CLONE_NEWTIME: c_int = 0x80;

/// Finds the next functions, while the process has one thread.
pub fn find_next() {
    for next in [&UNSHARE, &SETNS] {
        let _ = next.address();
    }
}

/// Interposed unshare(2), with the same contract.
///
/// # Safety
/// As unshare(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let call = || match UNSHARE.address() {
        // SAFETY: the next function of this name is of this type, and the argument is the caller's.
        Some(next) => unsafe { core::mem::transmute::<usize, OfFlags>(next)(flags) },
        // SAFETY: the same call without libc, the argument being the caller's.
        None => unsafe { call_as_libc(libc::SYS_unshare, [flags as usize]) as c_int },
    };
    if flags & ALONE_TO_LEAVE != 0 { helper::without(call) } else { call() }
}

/// Interposed setns(2), with the same contract.
///
/// # Safety
/// As setns(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setns(descriptor: c_int, kinds: c_int) -> c_int {
    let call = || match SETNS.address() {
        // SAFETY: the next function of this name is of this type, and the arguments are the caller's.
        Some(next) => unsafe { core::mem::transmute::<usize, OfDescriptor>(next)(descriptor, kinds) },
        // SAFETY: the same call without libc, the arguments being the caller's.
        None => unsafe { call_as_libc(libc::SYS_setns, [descriptor as usize, kinds as usize]) as c_int },
    };
    // 0 allows any kind.
    if kinds == 0 || kinds & ALONE_TO_ENTER != 0 { helper::without(call) } else { call() }
}
