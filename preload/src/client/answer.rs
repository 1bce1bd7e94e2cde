//! The last line of the daemon's reply.

use crate::sys::Errno;

/// The outcome in the last line of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinalLine<'a> {
    /// A line `ok …`: the request was granted.
    Granted,
    /// A line `error KIND TEXT`: the request was refused.
    Refused {
        /// The error kind, as an errno.
        errno: Errno,
        /// The text of the reason.
        reason: &'a [u8],
    },
}

impl<'a> FinalLine<'a> {
    /// Parses a line. `None` if it is not the last line of a reply.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        if line == b"ok" || line.starts_with(b"ok ") {
            return Some(Self::Granted);
        }
        let rest = line.strip_prefix(b"error")?;
        let rest = match rest.strip_prefix(b" ") {
            Some(rest) => rest,
            None if rest.is_empty() => rest,
            None => return None,
        };
        let (kind, reason) = match rest.iter().position(|&byte| byte == b' ') {
            Some(end) => (rest.get(..end)?, rest.get(end.checked_add(1)?..)?),
            None => (rest, &b""[..]),
        };
        let errno = match kind {
            b"budget" => libc::EDQUOT,
            b"busy" => libc::EBUSY,
            b"refused" => libc::EPERM,
            b"denied" => libc::EACCES,
            b"usage" => libc::EOPNOTSUPP,
            _ => libc::EPROTO,
        };
        // An unknown kind is part of the reason.
        let reason = if errno == libc::EPROTO { rest } else { reason };
        Some(Self::Refused { errno, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn last_lines() {
        assert_eq!(FinalLine::parse(b"ok passes=2"), Some(FinalLine::Granted));
        assert_eq!(FinalLine::parse(b"ok"), Some(FinalLine::Granted));
        let refused = |errno, reason: &'static str| Some(FinalLine::Refused { errno, reason: reason.as_bytes() });
        assert_eq!(FinalLine::parse(b"error budget 3 s used of 3"), refused(libc::EDQUOT, "3 s used of 3"));
        assert_eq!(FinalLine::parse(b"error busy"), refused(libc::EBUSY, ""));
        assert_eq!(FinalLine::parse(b"error full moon"), refused(libc::EPROTO, "full moon"));
        assert_eq!(FinalLine::parse(b"error"), refused(libc::EPROTO, ""));
        for line in [&b"range 1000 2000 500"[..], b"okay", b"errors", b""] {
            assert_eq!(FinalLine::parse(line), None);
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_fault(line in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = FinalLine::parse(&line);
        }
    }
}
