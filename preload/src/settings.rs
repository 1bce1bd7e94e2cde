//! What the environment asks for. Read once, when the library is loaded; a setting that makes no sense counts as not given.

use crate::text::decimal;

/// Bytes from which a mapping or a block is marked, if nothing else is asked for: what malloc(3) maps by itself.
pub const THRESHOLD: usize = 128 << 10;

/// Which memory is offered to KSM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranges {
    /// All that can merge, from the threshold on.
    All,
    /// What the daemon found worth merging.
    Guided,
    /// What the program marks itself.
    None,
}

/// How memory is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// By prctl(2), or by madvise(2) on a kernel without that.
    Best,
    /// By prctl(2) or not at all: everything at once, also what comes later.
    Prctl,
    /// By madvise(2), range by range.
    Madvise,
}

/// All settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// `KSMITH_RANGES`: all, guided, none. Without it, all if the library is in `LD_PRELOAD`, else none.
    pub ranges: Ranges,
    /// `KSMITH_METHOD`: prctl, madvise.
    pub method: Method,
    /// `KSMITH_THRESHOLD`: bytes, or with K, M, G. To set it is to ask for madvise.
    pub threshold: usize,
    /// `KSMITH_HUGE=merge`: also merge what the program wants in huge pages.
    pub merges_huge: bool,
    /// `KSMITH_INTERVAL`: seconds between looks of a thread of our own, 0 for no thread.
    pub interval: Option<u64>,
    /// `KSMITH_VERBOSE=1`: say on standard error what was done.
    pub is_verbose: bool,
}

impl Settings {
    /// From a function that gives a variable's value.
    pub fn of<'a>(variable: impl Fn(&core::ffi::CStr) -> Option<&'a [u8]>) -> Self {
        let is_preloaded = variable(c"LD_PRELOAD").is_some_and(names_libksmith);
        let ranges = match variable(c"KSMITH_RANGES") {
            Some(b"all") => Ranges::All,
            Some(b"guided") => Ranges::Guided,
            Some(b"none") => Ranges::None,
            _ if is_preloaded => Ranges::All,
            _ => Ranges::None,
        };
        let threshold = variable(c"KSMITH_THRESHOLD").and_then(bytes);
        let method = match variable(c"KSMITH_METHOD") {
            Some(b"prctl") => Method::Prctl,
            Some(b"madvise") => Method::Madvise,
            // The kernel's own switch knows no threshold.
            _ if threshold.is_some() => Method::Madvise,
            _ => Method::Best,
        };
        Self {
            ranges,
            method,
            threshold: threshold.unwrap_or(THRESHOLD).max(1),
            merges_huge: variable(c"KSMITH_HUGE") == Some(b"merge"),
            interval: variable(c"KSMITH_INTERVAL").and_then(decimal),
            is_verbose: variable(c"KSMITH_VERBOSE") == Some(b"1"),
        }
    }
}

/// Whether a list of libraries has ours.
fn names_libksmith(list: &[u8]) -> bool {
    let name = b"libksmith";
    list.windows(name.len()).any(|part| part == name)
}

/// A number of bytes, with K, M or G if wanted.
fn bytes(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text.split_last()? {
        (b'k' | b'K', digits) => (digits, 10),
        (b'm' | b'M', digits) => (digits, 20),
        (b'g' | b'G', digits) => (digits, 30),
        _ => (text, 0),
    };
    usize::try_from(decimal(digits)?.checked_mul(1 << shift)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(variables: &[(&str, &'static str)]) -> Settings {
        Settings::of(|name| {
            let found = variables.iter().find(|(known, _)| name.to_str() == Ok(*known));
            found.map(|(_, value)| value.as_bytes())
        })
    }

    #[test]
    fn a_preloaded_library_marks_everything_and_a_linked_one_nothing() {
        assert_eq!(settings(&[("LD_PRELOAD", "/usr/lib/libksmith.so")]).ranges, Ranges::All);
        assert_eq!(settings(&[("LD_PRELOAD", "liba.so:libksmith.so")]).ranges, Ranges::All);
        assert_eq!(settings(&[("LD_PRELOAD", "liba.so")]).ranges, Ranges::None);
        assert_eq!(settings(&[]).ranges, Ranges::None);
        assert_eq!(settings(&[("KSMITH_RANGES", "all")]).ranges, Ranges::All);
        assert_eq!(settings(&[("LD_PRELOAD", "libksmith.so"), ("KSMITH_RANGES", "none")]).ranges, Ranges::None);
    }

    #[test]
    fn a_threshold_needs_madvise_unless_prctl_is_asked_for() {
        assert_eq!(settings(&[]).method, Method::Best);
        let asked = settings(&[("KSMITH_THRESHOLD", "64K")]);
        assert_eq!((asked.method, asked.threshold), (Method::Madvise, 64 << 10));
        let asked = settings(&[("KSMITH_THRESHOLD", "64K"), ("KSMITH_METHOD", "prctl")]);
        assert_eq!(asked.method, Method::Prctl);
    }

    #[test]
    fn what_makes_no_sense_counts_as_not_given() {
        let asked = settings(&[
            ("KSMITH_THRESHOLD", "many"),
            ("KSMITH_METHOD", "x"),
            ("KSMITH_RANGES", ""),
            ("KSMITH_INTERVAL", "-1"),
        ]);
        assert_eq!(asked, settings(&[]));
        assert_eq!(settings(&[("KSMITH_INTERVAL", "3")]).interval, Some(3));
        for (text, expected) in
            [("0", Some(0)), ("3g", Some(3 << 30)), ("K", None), ("", None), ("99999999999999G", None)]
        {
            assert_eq!(bytes(text.as_bytes()), expected, "{text}");
        }
    }
}
