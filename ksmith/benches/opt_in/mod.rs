//! Programs that start with mergeable memory.

#![allow(unsafe_code, reason = "rustix has no PR_SET_MEMORY_MERGE")]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Has all memory of the program mergeable (`PR_SET_MEMORY_MERGE` of include/uapi/linux/prctl.h, 6.4).
pub fn opt_in(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec the closure makes one system call, which takes plain numbers.
    unsafe {
        command.pre_exec(|| match libc::prctl(67, 1, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    }
}
