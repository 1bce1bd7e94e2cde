//! Programs that end with the bench that started them.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Makes the kernel send the process a signal when the bench ends, however it ends.
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    let ask = move || Ok(set_parent_process_death_signal(Some(signal))?);
    #[allow(unsafe_code, reason = "the kernel is asked between fork and exec")]
    // SAFETY: the closure makes one system call without pointers.
    unsafe {
        command.pre_exec(ask);
    }
}
