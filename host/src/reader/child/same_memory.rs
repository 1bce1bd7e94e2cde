//! Comparing the memory maps of processes. The kernel waits for locks of both, which a process can keep for ever.

#![allow(unsafe_code, reason = "kcmp has no wrapper")]

/// `KCMP_VM` in `include/uapi/linux/kcmp.h`.
const KCMP_VM: libc::c_int = 1;

/// Returns true if two processes share one memory map; false also without the permission to compare them, or if the
/// kernel can't (`CONFIG_KCMP`).
pub(super) fn have_one_memory(one: u64, other: u64) -> bool {
    let (Ok(one), Ok(other)) = (libc::pid_t::try_from(one), libc::pid_t::try_from(other)) else { return false };
    let unused: libc::c_ulong = 0;
    // SAFETY: kcmp takes five numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, unused, unused) == 0 }
}
