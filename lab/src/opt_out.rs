//! Withdraws the whole process from KSM.

#![allow(unsafe_code, reason = "rustix has no PR_SET_MEMORY_MERGE")]

use std::io;

/// `PR_SET_MEMORY_MERGE` of `include/uapi/linux/prctl.h` (6.4).
const PR_SET_MEMORY_MERGE: libc::c_int = 67;

/// Withdraws the opt-in of this process. The kernel unmerges its pages and offers no memory any more.
///
/// # Errors
/// The kernel lacks this prctl, or has no free memory for the unmerged pages.
pub fn opt_out() -> io::Result<()> {
    // SAFETY: this prctl takes plain numbers and changes no content.
    match unsafe { libc::prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
