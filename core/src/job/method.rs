//! The method that makes a program's memory mergeable: prctl, libksmith, or none.

use std::fmt;

use serde::Serialize;

use super::Program;

/// A way to opt in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// `prctl(PR_SET_MEMORY_MERGE)`: all memory, now and later, of this process and its children.
    Prctl,
    /// `libksmith.so` by `LD_PRELOAD`: it marks memory as the program obtains it.
    Preload,
    /// No way: the program runs as it is, and its zero pages are folded from outside.
    None,
}

impl fmt::Display for Method {
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
pub enum Ranges {
    /// All memory is marked.
    All,
    /// The ranges that the daemon finds worth merging.
    Guided,
    /// The ranges that the program itself marks.
    None,
}

/// The means that this host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support {
    /// The kernel knows the prctl, and keeps it over exec (6.7).
    pub has_prctl: bool,
    /// The library was found.
    pub has_library: bool,
}

/// The user's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// The only method allowed.
    pub method: Option<Method>,
    /// The memory to mark.
    pub ranges: Ranges,
    /// True if zero pages are to be folded. The library then asks for huge pages too, where it can be loaded.
    pub folds: bool,
}

/// The reason why a program can't be opted in, with the remedy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The prctl was requested for ranges.
    #[error("prctl marks all memory at once: only the library can mark ranges; use --preload, or --ranges all")]
    RangesNeedLibrary,
    /// The prctl was requested where there is none.
    #[error("this kernel has no prctl for merging that survives exec (6.7 has it): use --preload")]
    NoPrctl,
    /// The library is needed and not there.
    #[error(
        "libksmith.so was not found beside ksmith nor in /usr/lib/ksmith: install it, or name it in KSMITH_PRELOAD"
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
pub fn choose(asked: Asked, program: &Program, support: Support) -> Result<Method, Refusal> {
    let by_library = || match program {
        Program::Static => Err(Refusal::Static),
        Program::Go => Err(Refusal::Go),
        _ if !support.has_library => Err(Refusal::NoLibrary),
        _ => Ok(Method::Preload),
    };
    let by_prctl = || if support.has_prctl { Ok(Method::Prctl) } else { Err(Refusal::NoPrctl) };
    match (asked.method, asked.ranges) {
        (Some(Method::Prctl), Ranges::Guided | Ranges::None) => Err(Refusal::RangesNeedLibrary),
        (Some(Method::Prctl), Ranges::All) => by_prctl(),
        (None, Ranges::All) if asked.folds => by_library().or_else(|why| by_prctl().map_err(|_| why)),
        (None, Ranges::All) if support.has_prctl => Ok(Method::Prctl),
        (None, Ranges::None) if asked.folds => Ok(by_library().unwrap_or(Method::None)),
        _ => by_library(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Support = Support { has_prctl: true, has_library: true };
    const OLD: Support = Support { has_prctl: false, has_library: true };

    fn asked(method: Option<Method>, ranges: Ranges) -> Asked {
        Asked { method, ranges, folds: false }
    }

    #[test]
    fn prctl_goes_first_and_the_library_where_it_must() {
        let any = asked(None, Ranges::All);
        assert_eq!(choose(any, &Program::Static, BOTH), Ok(Method::Prctl));
        assert_eq!(choose(any, &Program::Dynamic, OLD), Ok(Method::Preload));
        assert_eq!(choose(asked(None, Ranges::Guided), &Program::Dynamic, BOTH), Ok(Method::Preload));
        assert_eq!(choose(asked(Some(Method::Preload), Ranges::All), &Program::Dynamic, BOTH), Ok(Method::Preload));
    }

    #[test]
    fn folding_takes_the_library_where_it_can_and_works_without() {
        let folds = |method, ranges| Asked { folds: true, ..asked(method, ranges) };
        for (ranges, program, support, method) in [
            (Ranges::All, Program::Dynamic, BOTH, Ok(Method::Preload)),
            (Ranges::All, Program::Static, BOTH, Ok(Method::Prctl)),
            (Ranges::All, Program::Static, OLD, Err(Refusal::Static)),
            (Ranges::None, Program::Dynamic, BOTH, Ok(Method::Preload)),
            (Ranges::None, Program::Go, OLD, Ok(Method::None)),
            (Ranges::Guided, Program::Static, BOTH, Err(Refusal::Static)),
        ] {
            assert_eq!(choose(folds(None, ranges), &program, support), method, "{ranges:?} {program:?}");
        }
        assert_eq!(choose(folds(Some(Method::Prctl), Ranges::All), &Program::Dynamic, BOTH), Ok(Method::Prctl));
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let preload = asked(Some(Method::Preload), Ranges::All);
        let prctl = asked(Some(Method::Prctl), Ranges::All);
        for (asked, program, support, refusal, remedy) in [
            (preload, Program::Static, BOTH, Refusal::Static, "--prctl"),
            (preload, Program::Go, BOTH, Refusal::Go, "--prctl"),
            (prctl, Program::Dynamic, OLD, Refusal::NoPrctl, "--preload"),
            (
                preload,
                Program::Dynamic,
                Support { has_library: false, ..BOTH },
                Refusal::NoLibrary,
                "KSMITH_PRELOAD",
            ),
            (
                asked(Some(Method::Prctl), Ranges::Guided),
                Program::Dynamic,
                BOTH,
                Refusal::RangesNeedLibrary,
                "--preload",
            ),
            (asked(None, Ranges::All), Program::Go, OLD, Refusal::Go, "6.7"),
        ] {
            assert_eq!(choose(asked, &program, support), Err(refusal));
            assert!(refusal.to_string().contains(remedy), "{refusal}");
        }
    }
}
