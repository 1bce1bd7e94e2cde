//! The method that makes a program's memory mergeable: prctl, libksmith, or none.

use std::fmt;

use serde::Serialize;

use super::ProgramKind;

/// A way to opt in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OptInMethod {
    /// `prctl(PR_SET_MEMORY_MERGE)`: all memory, now and later, of this process and its children.
    Prctl,
    /// `libksmith.so` by `LD_PRELOAD`: it marks memory as the program obtains it.
    Preload,
    /// No way: the program runs as it is, and its zero pages are folded from outside.
    None,
}

impl fmt::Display for OptInMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Prctl => "prctl",
            Self::Preload => "preload",
            Self::None => "none",
        })
    }
}

/// The memory that is marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkedRanges {
    /// All memory is marked.
    All,
    /// The ranges that the daemon finds worth merging.
    Guided,
    /// The ranges that the program itself marks.
    None,
}

/// The means that this host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptInSupport {
    /// The kernel knows the prctl, and keeps it over exec (6.7).
    pub has_prctl: bool,
    /// The library was found.
    pub has_library: bool,
}

/// The user's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptInRequest {
    /// The only method allowed.
    pub method: Option<OptInMethod>,
    /// The memory to mark.
    pub ranges: MarkedRanges,
    /// True if zero pages are to be folded. The library then asks for huge pages too, where it can be loaded.
    pub folds: bool,
}

/// The reason why a program can't be opted in, with the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OptInRefusal {
    /// The prctl was requested for ranges.
    #[error("prctl marks all memory at once: only the library can mark ranges; use --preload, or --ranges all")]
    RangesNeedLibrary,
    /// The prctl was requested where there is none.
    #[error("this kernel has no prctl for merging that survives exec (6.7 has it): use --preload")]
    NoPrctl,
    /// The library is needed and not there.
    #[error(
        "libksmith.so was not found beside ksmith nor in /usr/lib/ksmith: install the package libksmith, or name the file in \
         KSMITH_PRELOAD"
    )]
    NoLibrary,
    /// The program loads nothing.
    #[error(
        "it is statically linked, so no library can be loaded into it: use --prctl with --ranges all (Linux 6.7)"
    )]
    Static,
    /// The program does not ask the C library for memory.
    #[error(
        "it is a Go program, which asks the kernel for memory past any library: use --prctl with --ranges all (Linux 6.7)"
    )]
    Go,
}

/// Chooses the method: prctl where it suffices, else the library.
///
/// # Errors
/// Neither method is possible.
pub fn choose_method(
    asked: OptInRequest,
    program: &ProgramKind,
    support: OptInSupport,
) -> Result<OptInMethod, OptInRefusal> {
    let by_library = || match program {
        ProgramKind::Static => Err(OptInRefusal::Static),
        ProgramKind::Go => Err(OptInRefusal::Go),
        _ if !support.has_library => Err(OptInRefusal::NoLibrary),
        _ => Ok(OptInMethod::Preload),
    };
    let by_prctl = || if support.has_prctl { Ok(OptInMethod::Prctl) } else { Err(OptInRefusal::NoPrctl) };
    match (asked.method, asked.ranges) {
        (Some(OptInMethod::Prctl), MarkedRanges::Guided | MarkedRanges::None) => {
            Err(OptInRefusal::RangesNeedLibrary)
        }
        (Some(OptInMethod::Prctl), MarkedRanges::All) => by_prctl(),
        (None, MarkedRanges::All) if asked.folds => by_library().or_else(|why| by_prctl().map_err(|_| why)),
        (None, MarkedRanges::All) if support.has_prctl => Ok(OptInMethod::Prctl),
        (None, MarkedRanges::None) if asked.folds => Ok(by_library().unwrap_or(OptInMethod::None)),
        _ => by_library(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: OptInSupport = OptInSupport { has_prctl: true, has_library: true };
    const OLD: OptInSupport = OptInSupport { has_prctl: false, has_library: true };

    fn asked(method: Option<OptInMethod>, ranges: MarkedRanges) -> OptInRequest {
        OptInRequest { method, ranges, folds: false }
    }

    #[test]
    fn prctl_goes_first_and_the_library_where_it_must() {
        let any = asked(None, MarkedRanges::All);
        assert_eq!(choose_method(any, &ProgramKind::Static, BOTH), Ok(OptInMethod::Prctl));
        assert_eq!(choose_method(any, &ProgramKind::Dynamic, OLD), Ok(OptInMethod::Preload));
        assert_eq!(
            choose_method(asked(None, MarkedRanges::Guided), &ProgramKind::Dynamic, BOTH),
            Ok(OptInMethod::Preload)
        );
        assert_eq!(
            choose_method(asked(Some(OptInMethod::Preload), MarkedRanges::All), &ProgramKind::Dynamic, BOTH),
            Ok(OptInMethod::Preload)
        );
    }

    #[test]
    fn folding_takes_the_library_where_it_can_and_works_without() {
        let folds = |method, ranges| OptInRequest { folds: true, ..asked(method, ranges) };
        for (ranges, program, support, method) in [
            (MarkedRanges::All, ProgramKind::Dynamic, BOTH, Ok(OptInMethod::Preload)),
            (MarkedRanges::All, ProgramKind::Static, BOTH, Ok(OptInMethod::Prctl)),
            (MarkedRanges::All, ProgramKind::Static, OLD, Err(OptInRefusal::Static)),
            (MarkedRanges::None, ProgramKind::Dynamic, BOTH, Ok(OptInMethod::Preload)),
            (MarkedRanges::None, ProgramKind::Go, OLD, Ok(OptInMethod::None)),
            (MarkedRanges::Guided, ProgramKind::Static, BOTH, Err(OptInRefusal::Static)),
        ] {
            assert_eq!(choose_method(folds(None, ranges), &program, support), method, "{ranges:?} {program:?}");
        }
        assert_eq!(
            choose_method(folds(Some(OptInMethod::Prctl), MarkedRanges::All), &ProgramKind::Dynamic, BOTH),
            Ok(OptInMethod::Prctl)
        );
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let preload = asked(Some(OptInMethod::Preload), MarkedRanges::All);
        let prctl = asked(Some(OptInMethod::Prctl), MarkedRanges::All);
        for (asked, program, support, refusal, remedy) in [
            (preload, ProgramKind::Static, BOTH, OptInRefusal::Static, "--prctl"),
            (preload, ProgramKind::Go, BOTH, OptInRefusal::Go, "--prctl"),
            (prctl, ProgramKind::Dynamic, OLD, OptInRefusal::NoPrctl, "--preload"),
            (
                preload,
                ProgramKind::Dynamic,
                OptInSupport { has_library: false, ..BOTH },
                OptInRefusal::NoLibrary,
                "KSMITH_PRELOAD",
            ),
            (
                asked(Some(OptInMethod::Prctl), MarkedRanges::Guided),
                ProgramKind::Dynamic,
                BOTH,
                OptInRefusal::RangesNeedLibrary,
                "--preload",
            ),
            (asked(None, MarkedRanges::All), ProgramKind::Go, OLD, OptInRefusal::Go, "6.7"),
        ] {
            assert_eq!(choose_method(asked, &program, support), Err(refusal));
            assert!(refusal.to_string().contains(remedy), "{refusal}");
        }
    }
}
