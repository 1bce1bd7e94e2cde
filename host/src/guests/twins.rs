//! Processes that share one memory map: made by `clone(CLONE_VM)` without `CLONE_THREAD`, as the helpers of user-mode
//! Linux are. Each shows all of it as its own.

#![allow(unsafe_code, reason = "kcmp has no wrapper")]

/// `KCMP_VM` in `include/uapi/linux/kcmp.h`.
const KCMP_VM: libc::c_int = 1;

/// Returns true if two processes share one memory map; false also without the permission to compare them, or if the
/// kernel can't (`CONFIG_KCMP`).
pub(super) fn have_one_memory(one: u32, other: u32) -> bool {
    let (Ok(one), Ok(other)) = (libc::pid_t::try_from(one), libc::pid_t::try_from(other)) else { return false };
    let unused: libc::c_ulong = 0;
    // SAFETY: kcmp takes five numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, KCMP_VM, unused, unused) == 0 }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_has_its_own_memory_and_we_have_ours() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = std::process::id();
        assert!(have_one_memory(own, own));
        assert!(!have_one_memory(own, child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!have_one_memory(own, u32::MAX));
    }
}
