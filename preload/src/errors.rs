//! The meanings of the API's codes. A code is 0 or a negated errno.

use core::ffi::{CStr, c_int};

/// Returns the meaning of a code as a C string.
pub fn meaning(code: c_int) -> &'static CStr {
    match code.wrapping_neg() {
        0 => c"done",
        libc::EINVAL => c"an argument makes no sense, or there is no whole page in the range",
        libc::ENOSYS => c"this kernel has no KSM",
        libc::ENOMEM => c"part of the range is not mapped, or there is no memory to part merged pages",
        libc::EAGAIN => c"the kernel is short of memory just now: try again",
        libc::ENOENT => c"there is no ksmith daemon: nothing listens at its socket",
        libc::EACCES => c"this user may not ask the daemon: see [user] in its configuration",
        libc::EPERM => {
            c"refused: ksmith_reason says why if it was the daemon; else this program has sandboxed itself"
        }
        libc::EDQUOT => c"the budget of this user is used up: ksmith_reason says until when",
        libc::EBUSY => c"another thread is doing this already: try again",
        libc::ETIMEDOUT => c"no answer in the given time",
        libc::EPROTO => c"the daemon's answer makes no sense: it may be another version of ksmith",
        libc::EOPNOTSUPP => c"the daemon does not know this request: it is older than this library",
        libc::ENODATA => c"neither daemon nor kernel can tell, or /proc/self can't be read",
        libc::ECONNRESET => c"the daemon ended the connection",
        _ => c"unexpected error: the code is a negated errno",
    }
}

/// Converts a result to a code.
pub fn code(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.wrapping_neg(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_meaning() {
        assert_eq!((code(Ok(())), code(Err(libc::EBUSY))), (0, -libc::EBUSY));
        assert_eq!(meaning(0), c"done");
        assert_ne!(meaning(-libc::EBUSY), meaning(-4711));
        for code in [c_int::MIN, 5, -1] {
            assert!(!meaning(code).is_empty());
        }
    }
}
