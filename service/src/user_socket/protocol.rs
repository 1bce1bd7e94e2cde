//! The protocol of the user socket. A request is one line; an answer is zero or more lines, of which the last begins
//! with `ok` or `error`.
//!
//! | request | last line of the answer |
//! |---|---|
//! | `hello 1` | `ok ksmith 1` |
//! | `scan PASSES` | `ok passes=N merged_bytes=M saved_bytes=S ksmd_cpu_ns=C`, when they are done |
//! | `saves` | `ok rss_bytes=… merged_bytes=… saved_bytes=… profit_bytes=… zero_bytes=…` |
//! | `ranges` | `ok ranges=N bytes=M`, after N lines `range START END SHARE_PERMILLE` (addresses in hex) |
//!
//! After a scan, `merged_bytes` and `saved_bytes` are left out where the peer has changed its rights. Memory is told in
//! steps of [`STEP`]. Errors are `error WORD TEXT`; the words are those of [`RefusalKind`].

use std::fmt;
use std::num::NonZeroU64;

/// The version of the protocol.
pub const VERSION: u64 = 1;

/// Default path of the user socket.
pub const DEFAULT_PATH: &str = "/run/ksmith/user";

/// The longest request.
pub const LONGEST_REQUEST: usize = 128;

/// The most passes of one scan.
pub const MOST_PASSES: u64 = 16;

/// The granule of reported memory: a single page that another process has must not show.
pub const STEP: u64 = 1 << 20;

/// A request of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserRequest {
    /// Check that this is ksmith, and speaks this version.
    Hello(u64),
    /// Make this number of clean passes.
    Scan(NonZeroU64),
    /// Report the memory that KSM saves for the peer.
    Saves,
    /// Report the ranges of the peer's memory that are worth merging.
    Ranges,
}

/// A range of the peer's memory, and the share of its pages that have an equal elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdvisedRange {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// Equal pages in a thousand.
    pub share_permille: u64,
}

/// An answer to a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserAnswer {
    /// The answer to [`UserRequest::Hello`].
    Hello,
    /// The answer to [`UserRequest::Scan`].
    Scanned(ScanResult),
    /// The answer to [`UserRequest::Saves`].
    Saves(PeerSavings),
    /// The answer to [`UserRequest::Ranges`].
    Ranges(Vec<AdvisedRange>),
    /// The answer to a request that is refused.
    Error(RefusalKind, String),
}

/// The outcome of a scan: merged memory of the peer, and the cost of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanResult {
    /// Passes that were made.
    pub passes: u64,
    /// Merged memory of the peer, unless its user may not know.
    pub merged: Option<MergedMemory>,
    /// CPU time that ksmd used.
    pub ksmd_cpu_ns: u64,
}

/// Merged memory of the peer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergedMemory {
    /// Merged, zero pages included.
    pub merged_bytes: u64,
    /// Its part of what the host saves.
    pub saved_bytes: u64,
}

/// The effect of KSM on the peer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeerSavings {
    /// Resident, merged pages counted in full.
    pub rss_bytes: u64,
    /// Merged, zero pages included.
    pub merged_bytes: u64,
    /// Its part of what the host saves.
    pub saved_bytes: u64,
    /// Saved bytes less KSM's metadata.
    pub profit_bytes: i64,
    /// Empty pages that map the kernel's zero page.
    pub zero_bytes: u64,
}

/// The category of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The user's share of ksmd's time is used up.
    Budget,
    /// Others are served; try again.
    Busy,
    /// The peer may not have this.
    Denied,
    /// It can't be done.
    Refused,
    /// The line is no request.
    Usage,
}

impl RefusalKind {
    const ALL: [Self; 5] = [Self::Budget, Self::Busy, Self::Denied, Self::Refused, Self::Usage];

    /// Returns the word of the protocol.
    pub fn word(self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::Busy => "busy",
            Self::Denied => "denied",
            Self::Refused => "refused",
            Self::Usage => "usage",
        }
    }
}

/// A line that is no request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRequestError {
    /// It has bytes that are no text.
    #[error("a request is ASCII")]
    NotText,
    /// It has other words.
    #[error("no request: say `hello {VERSION}`, `scan PASSES` (1 to {MOST_PASSES}), `saves` or `ranges`")]
    UnknownWords,
}

impl UserRequest {
    /// Parses a line.
    ///
    /// # Errors
    /// It is no request.
    pub fn parse(line: &str) -> Result<Self, BadRequestError> {
        let number = |word: &str| word.parse::<u64>().ok().filter(|_| !word.starts_with('+'));
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let request = match words[..] {
            ["hello", version] => number(version).map(Self::Hello),
            ["scan", passes] => {
                let passes = number(passes).filter(|passes| *passes <= MOST_PASSES);
                passes.and_then(NonZeroU64::new).map(Self::Scan)
            }
            ["saves"] => Some(Self::Saves),
            ["ranges"] => Some(Self::Ranges),
            _ => None,
        };
        request.ok_or(BadRequestError::UnknownWords)
    }
}

impl fmt::Display for UserRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello(version) => writeln!(f, "hello {version}"),
            Self::Scan(passes) => writeln!(f, "scan {passes}"),
            Self::Saves => writeln!(f, "saves"),
            Self::Ranges => writeln!(f, "ranges"),
        }
    }
}

impl fmt::Display for UserAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello => writeln!(f, "ok ksmith {VERSION}"),
            Self::Scanned(ScanResult { passes, merged, ksmd_cpu_ns }) => {
                write!(f, "ok passes={passes} ")?;
                if let Some(MergedMemory { merged_bytes, saved_bytes }) = merged {
                    let [merged, saved] = [*merged_bytes, *saved_bytes].map(rounded);
                    write!(f, "merged_bytes={merged} saved_bytes={saved} ")?;
                }
                writeln!(f, "ksmd_cpu_ns={ksmd_cpu_ns}")
            }
            Self::Saves(PeerSavings { rss_bytes, merged_bytes, saved_bytes, profit_bytes, zero_bytes }) => {
                let [rss, merged, saved, zero] =
                    [*rss_bytes, *merged_bytes, *saved_bytes, *zero_bytes].map(rounded);
                let sign = if *profit_bytes < 0 && rounded(profit_bytes.unsigned_abs()) > 0 { "-" } else { "" };
                let profit = rounded(profit_bytes.unsigned_abs());
                writeln!(
                    f,
                    "ok rss_bytes={rss} merged_bytes={merged} saved_bytes={saved} profit_bytes={sign}{profit} \
                     zero_bytes={zero}"
                )
            }
            Self::Ranges(ranges) => {
                for AdvisedRange { start, end, share_permille } in ranges {
                    writeln!(f, "range {start:x} {end:x} {share_permille}")?;
                }
                let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
                writeln!(f, "ok ranges={} bytes={bytes}", ranges.len())
            }
            // One line, whatever the text.
            Self::Error(refusal, text) => {
                writeln!(f, "error {} {}", refusal.word(), text.replace(|c: char| c.is_control(), " "))
            }
        }
    }
}

/// Rounds to the nearest multiple of [`STEP`].
fn rounded(bytes: u64) -> u64 {
    bytes.saturating_add(STEP / 2) / STEP * STEP
}

/// Parses the figure `key` of an answer's last line.
pub fn figure(line: &str, key: &str) -> Option<u64> {
    line.split_ascii_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

/// Parses an error line into its word and text.
pub fn error(line: &str) -> Option<(RefusalKind, String)> {
    let rest = line.strip_prefix("error ")?;
    let (word, text) = rest.split_once(' ').unwrap_or((rest, ""));
    let refusal =
        RefusalKind::ALL.into_iter().find(|refusal| refusal.word() == word).unwrap_or(RefusalKind::Refused);
    Some((refusal, text.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        let passes = NonZeroU64::new(2).unwrap();
        let scan = UserRequest::Scan(passes);
        for request in [UserRequest::Hello(1), scan, UserRequest::Saves, UserRequest::Ranges] {
            assert_eq!(UserRequest::parse(&request.to_string()), Ok(request));
        }
        for bad in [
            "", "scan", "scan 0", "scan 17", "scan -1", "scan +1", "scan 1 2", "Saves", "hello", "fold",
            "folded 1", "ranges 5",
        ] {
            assert!(UserRequest::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn answers_end_in_a_line_that_says_how_it_went() {
        let ranges = UserAnswer::Ranges(vec![AdvisedRange { start: 0x1000, end: 0x3000, share_permille: 900 }]);
        assert_eq!(ranges.to_string(), "range 1000 3000 900\nok ranges=1 bytes=8192\n");
        let refused = UserAnswer::Error(RefusalKind::Budget, "used\nup".to_owned());
        assert_eq!(refused.to_string(), "error budget used up\n");
        assert_eq!(error("error budget used up\n"), Some((RefusalKind::Budget, "used up".to_owned())));
        let line =
            UserAnswer::Scanned(ScanResult { passes: 2, ksmd_cpu_ns: 7, ..ScanResult::default() }).to_string();
        assert_eq!((figure(&line, "passes"), figure(&line, "ksmd_cpu_ns")), (Some(2), Some(7)));
    }

    /// One page more or less, which another process has or has not, changes no answer.
    #[test]
    fn memory_is_told_in_steps() {
        let saves = |bytes: u64, profit_bytes| {
            let (merged_bytes, saved_bytes, zero_bytes) = (bytes + 4096, bytes, bytes);
            UserAnswer::Saves(PeerSavings { rss_bytes: bytes, merged_bytes, saved_bytes, profit_bytes, zero_bytes })
                .to_string()
        };
        assert_eq!(
            saves((5 << 20) + 4096, -(3 << 20) - 64),
            "ok rss_bytes=5242880 merged_bytes=5242880 saved_bytes=5242880 profit_bytes=-3145728 zero_bytes=5242880\n"
        );
        assert_eq!(saves(0, -64), "ok rss_bytes=0 merged_bytes=0 saved_bytes=0 profit_bytes=0 zero_bytes=0\n");
        assert_eq!(rounded(u64::MAX) % STEP, 0);
        let merged = Some(MergedMemory { merged_bytes: 4096, saved_bytes: (2 << 20) - 4096 });
        let scanned = |merged| UserAnswer::Scanned(ScanResult { passes: 2, merged, ksmd_cpu_ns: 7 }).to_string();
        assert_eq!(scanned(merged), "ok passes=2 merged_bytes=0 saved_bytes=2097152 ksmd_cpu_ns=7\n");
        assert_eq!(scanned(None), "ok passes=2 ksmd_cpu_ns=7\n");
    }

    proptest! {
        #[test]
        fn no_line_panics(line in ".*") {
            let _ = UserRequest::parse(&line);
            let _ = error(&line);
        }
    }
}
