//! The settings from the environment, read once when the library is loaded. Invalid settings are ignored.

use crate::text::decimal;

/// Default of the minimum size of a marked mapping or block: the size from which malloc(3) makes a mapping.
pub const THRESHOLD: usize = 128 << 10;

/// The memory that is offered to KSM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferedRanges {
    /// All memory that can merge, from the threshold on.
    All,
    /// The ranges that the daemon considers worth merging.
    Guided,
    /// Only ranges that the program marks itself.
    None,
}

/// The way in which memory is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferMethod {
    /// By prctl(2), or by madvise(2) on a kernel without the prctl.
    Best,
    /// By prctl(2) only: all memory at once, including future mappings.
    Prctl,
    /// By madvise(2), for each range.
    Madvise,
}

/// All settings of the library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreloadSettings {
    /// `KSMITH_RANGES`: all, guided or none. The default is all if the library is in `LD_PRELOAD`, else none.
    pub ranges: OfferedRanges,
    /// `KSMITH_METHOD`: prctl or madvise.
    pub method: OfferMethod,
    /// `KSMITH_THRESHOLD`: bytes, or with K, M or G. Setting it selects madvise.
    pub threshold: usize,
    /// `KSMITH_HUGE=merge`: also merge memory for which the program wants huge pages.
    pub merges_huge: bool,
    /// `KSMITH_HUGE_HINT=1`: ask for huge pages for the program's large mappings.
    pub hints_huge: bool,
    /// `KSMITH_INTERVAL`: seconds between two rounds of the library's thread, 0 for no thread.
    pub interval: Option<u64>,
    /// `KSMITH_VERBOSE=1`: report actions on standard error.
    pub is_verbose: bool,
}

impl PreloadSettings {
    /// Reads the settings through a function that returns a variable's value.
    pub fn from_variables<'a>(variable: impl Fn(&core::ffi::CStr) -> Option<&'a [u8]>) -> Self {
        let is_preloaded = variable(c"LD_PRELOAD").is_some_and(names_libksmith);
        let ranges = match variable(c"KSMITH_RANGES") {
            Some(b"all") => OfferedRanges::All,
            Some(b"guided") => OfferedRanges::Guided,
            Some(b"none") => OfferedRanges::None,
            _ if is_preloaded => OfferedRanges::All,
            _ => OfferedRanges::None,
        };
        let threshold = variable(c"KSMITH_THRESHOLD").and_then(bytes);
        let method = match variable(c"KSMITH_METHOD") {
            Some(b"prctl") => OfferMethod::Prctl,
            Some(b"madvise") => OfferMethod::Madvise,
            // The prctl has no threshold.
            _ if threshold.is_some() => OfferMethod::Madvise,
            _ => OfferMethod::Best,
        };
        Self {
            ranges,
            method,
            threshold: threshold.unwrap_or(THRESHOLD).max(1),
            merges_huge: variable(c"KSMITH_HUGE") == Some(b"merge"),
            hints_huge: variable(c"KSMITH_HUGE_HINT") == Some(b"1"),
            interval: variable(c"KSMITH_INTERVAL").and_then(decimal),
            is_verbose: variable(c"KSMITH_VERBOSE") == Some(b"1"),
        }
    }
}

/// Returns true if a list of libraries contains libksmith.
fn names_libksmith(list: &[u8]) -> bool {
    let name = b"libksmith";
    list.windows(name.len()).any(|part| part == name)
}

/// Parses a number of bytes, with K, M or G.
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

    fn settings(variables: &[(&str, &'static str)]) -> PreloadSettings {
        PreloadSettings::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| name.to_str() == Ok(*known));
            found.map(|(_, value)| value.as_bytes())
        })
    }

    #[test]
    fn a_preloaded_library_marks_everything_and_a_linked_one_nothing() {
        assert_eq!(settings(&[("LD_PRELOAD", "/usr/lib/libksmith.so")]).ranges, OfferedRanges::All);
        assert_eq!(settings(&[("LD_PRELOAD", "liba.so:libksmith.so")]).ranges, OfferedRanges::All);
        assert_eq!(settings(&[("LD_PRELOAD", "liba.so")]).ranges, OfferedRanges::None);
        assert_eq!(settings(&[]).ranges, OfferedRanges::None);
        assert_eq!(settings(&[("KSMITH_RANGES", "all")]).ranges, OfferedRanges::All);
        assert_eq!(
            settings(&[("LD_PRELOAD", "libksmith.so"), ("KSMITH_RANGES", "none")]).ranges,
            OfferedRanges::None
        );
    }

    #[test]
    fn a_threshold_needs_madvise_unless_prctl_is_asked_for() {
        assert_eq!(settings(&[]).method, OfferMethod::Best);
        let asked = settings(&[("KSMITH_THRESHOLD", "64K")]);
        assert_eq!((asked.method, asked.threshold), (OfferMethod::Madvise, 64 << 10));
        let asked = settings(&[("KSMITH_THRESHOLD", "64K"), ("KSMITH_METHOD", "prctl")]);
        assert_eq!(asked.method, OfferMethod::Prctl);
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
