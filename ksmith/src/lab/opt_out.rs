//! Taking a whole process back from KSM, from inside.

#![allow(unsafe_code, reason = "rustix has no PR_SET_MEMORY_MERGE")]

use std::io;

/// `PR_SET_MEMORY_MERGE` of `include/uapi/linux/prctl.h` (6.4).
const PR_SET_MEMORY_MERGE: libc::c_int = 67;

/// Takes back the opt-in of this process: what is merged is unmerged, and nothing is marked any more.
///
/// # Errors
/// The kernel has no such prctl, or no memory to unmerge into.
pub fn opt_out() -> io::Result<()> {
    // SAFETY: this prctl takes plain numbers and changes no content.
    match unsafe { libc::prctl(PR_SET_MEMORY_MERGE, 0, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
