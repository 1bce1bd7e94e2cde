//! System calls without libc: its function syscall(2) is interposed (`hooks/sandbox.rs`).
//!
//! They leave `errno` alone.

use core::ffi::{c_int, c_long};

/// The `errno` of a failed call.
pub type Errno = c_int;

/// Maximum number of arguments of a system call.
const MOST_ARGUMENTS: usize = 6;

/// The greatest error number: the kernel returns it negated.
const LAST_ERRNO: usize = 4095;

/// Makes a system call.
///
/// # Safety
/// As the call. Pointers among the arguments are valid for it.
pub unsafe fn call<const COUNT: usize>(number: c_long, arguments: [usize; COUNT]) -> Result<usize, Errno> {
    let mut all = [0_usize; MOST_ARGUMENTS];
    all.iter_mut().zip(arguments).for_each(|(place, argument)| *place = argument);
    // SAFETY: as promised by the caller.
    let result = unsafe { enter(number, all) };
    match result.wrapping_neg() {
        errno @ 1..=LAST_ERRNO => Err(errno as Errno),
        _ => Ok(result),
    }
}

/// Makes a system call on behalf of the program, with libc's convention: -1 and `errno` on failure.
///
/// # Safety
/// As [`call`].
#[cfg(not(test))]
#[cold]
pub unsafe fn call_as_libc<const COUNT: usize>(number: c_long, arguments: [usize; COUNT]) -> c_long {
    // SAFETY: as promised by the caller.
    match unsafe { call(number, arguments) } {
        Ok(result) => result as c_long,
        Err(errno) => {
            // SAFETY: this thread's errno.
            unsafe { *libc::__errno_location() = errno };
            -1
        }
    }
}

/// Enters the kernel. Returns what it returns.
///
/// # Safety
/// As [`call`].
#[cfg(target_arch = "x86_64")]
unsafe fn enter(number: c_long, arguments: [usize; MOST_ARGUMENTS]) -> usize {
    let [a, b, c, d, e, f] = arguments;
    let result: usize;
    // SAFETY: as promised by the caller; the registers are those of the kernel's convention.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as usize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Enters the kernel. Returns what it returns.
///
/// # Safety
/// As [`call`].
#[cfg(target_arch = "aarch64")]
unsafe fn enter(number: c_long, arguments: [usize; MOST_ARGUMENTS]) -> usize {
    let [a, b, c, d, e, f] = arguments;
    let result: usize;
    // SAFETY: as promised by the caller; the registers are those of the kernel's convention.
    unsafe {
        core::arch::asm!(
            "svc 0",
            in("x8") number as usize,
            inlateout("x0") a => result,
            in("x1") b, in("x2") c, in("x3") d, in("x4") e, in("x5") f,
            options(nostack),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_errors_are_told_apart_and_errno_stays() {
        // SAFETY: plain numbers, a descriptor that there is not, and this thread's errno.
        unsafe {
            *libc::__errno_location() = 4711;
            assert_eq!(call(libc::SYS_getpid, []), Ok(std::process::id() as usize));
            assert_eq!(call(libc::SYS_close, [usize::MAX]), Err(libc::EBADF));
            assert_eq!(*libc::__errno_location(), 4711);
        }
    }

    #[test]
    fn all_six_arguments_arrive() {
        use std::os::{fd::AsRawFd, unix::fs::FileExt};
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let mut expected = [0; 64];
        file.read_exact_at(&mut expected, 4096).unwrap();
        let (access, flags) = (libc::PROT_READ as usize, libc::MAP_PRIVATE as usize);
        // SAFETY: a new mapping of a file, which is read and unmapped.
        unsafe {
            let start = call(libc::SYS_mmap, [0, 4096, access, flags, file.as_raw_fd() as usize, 4096]).unwrap();
            let bytes = *core::ptr::with_exposed_provenance::<[u8; 64]>(start);
            assert_eq!(call(libc::SYS_munmap, [start, 4096]), Ok(0));
            assert_eq!(bytes, expected);
        }
    }
}
