//! Ends the library's thread for calls that change the identity of the process. libc makes such a call in each thread,
//! and aborts the program if the results differ, as they do after a thread has dropped its own capabilities.

use core::ffi::c_int;

use crate::helper;
use crate::next::NextFunction;
use crate::syscall::call_as_libc;

/// Interposes a function of numbers (or, of one, an address) that libc makes by the system call of this name.
macro_rules! interposed {
    ($($next:ident $name:ident($($argument:ident: $kind:ty),*) by $call:ident;)*) => {
        $(
            static $next: NextFunction = {
                let name = concat!(stringify!($name), "\0");
                match core::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
                    Ok(name) => NextFunction::new(name),
                    Err(_) => NextFunction::new(c""),
                }
            };

            #[doc = concat!("Interposed ", stringify!($name), "(2), with the same contract.")]
            ///
            /// # Safety
            /// As the call.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
                helper::without(|| match $next.address() {
                    Some(next) => {
                        // SAFETY: the next function of this name is of this type, and the arguments are the caller's.
                        unsafe { core::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> c_int>(next)($($argument),*) }
                    }
                    // SAFETY: the same call without libc, the arguments being the caller's.
                    None => unsafe { call_as_libc(libc::$call, [$($argument as usize),*]) as c_int },
                })
            }
        )*

        /// Finds the next functions, while the process has one thread.
        pub fn find_next() {
            $( let _ = $next.address(); )*
        }
    };
}

interposed! {
    SETUID setuid(user: libc::uid_t) by SYS_setuid;
    SETGID setgid(group: libc::gid_t) by SYS_setgid;
    SETREUID setreuid(real: libc::uid_t, effective: libc::uid_t) by SYS_setreuid;
    SETREGID setregid(real: libc::gid_t, effective: libc::gid_t) by SYS_setregid;
    SETRESUID setresuid(real: libc::uid_t, effective: libc::uid_t, saved: libc::uid_t) by SYS_setresuid;
    SETRESGID setresgid(real: libc::gid_t, effective: libc::gid_t, saved: libc::gid_t) by SYS_setresgid;
    SETGROUPS setgroups(count: libc::size_t, groups: *const libc::gid_t) by SYS_setgroups;
}
