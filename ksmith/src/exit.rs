//! The exit codes of all commands: one table, from which the help and the manual are made.

use std::fmt;
use std::process::ExitCode;

/// An exit code with its meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedExitCode {
    /// The number that the process ends with.
    pub number: u8,
    /// One word for programs, as under `--json`.
    pub name: &'static str,
    /// The meaning in words.
    pub meaning: &'static str,
}

/// The command did what it was asked for.
pub const DONE: NamedExitCode = NamedExitCode { number: 0, name: "done", meaning: "done" };

/// The command failed.
pub const FAILED: NamedExitCode =
    NamedExitCode { number: 1, name: "failed", meaning: "failed, or only partly done" };

/// The command line or the configuration is not valid.
pub const USAGE: NamedExitCode =
    NamedExitCode { number: 2, name: "usage", meaning: "wrong command line or configuration" };

/// The command is not possible on this host for any user.
pub const IMPOSSIBLE: NamedExitCode = NamedExitCode {
    number: 3,
    name: "impossible",
    meaning: "not possible here: no KSM, too little memory, or another program controls KSM",
};

/// The name of a guest means none, or several.
pub const UNKNOWN_GUEST: NamedExitCode =
    NamedExitCode { number: 4, name: "unknown-guest", meaning: "no guest has that name, or several have it" };

/// The user lacks a privilege.
pub const NO_PRIVILEGE: NamedExitCode = NamedExitCode {
    number: 5,
    name: "no-privilege",
    meaning: "no privilege: run it as root, or as the user of the process",
};

/// The command did its work, and found a problem of the host.
pub const PROBLEM: NamedExitCode =
    NamedExitCode { number: 6, name: "problem", meaning: "a problem was found (ksmith doctor)" };

/// All exit codes, in their order. `ksmith run` ends with the code of its program instead, and `ksmith doctor --check`
/// with one of [`CHECK`].
pub const CODES: [NamedExitCode; 7] = [DONE, FAILED, USAGE, IMPOSSIBLE, UNKNOWN_GUEST, NO_PRIVILEGE, PROBLEM];

/// The exit codes of `ksmith doctor --check`, which are those of Nagios' plugins.
pub const CHECK: [NamedExitCode; 4] = [
    NamedExitCode { number: 0, name: "OK", meaning: "nothing found, or notes only" },
    NamedExitCode { number: 1, name: "WARNING", meaning: "a warning was found" },
    NamedExitCode { number: 2, name: "CRITICAL", meaning: "a problem was found" },
    NamedExitCode { number: 3, name: "UNKNOWN", meaning: "the host could not be examined" },
];

/// `ksmith run` could not start the program.
pub const UNUSABLE_PROGRAM: NamedExitCode =
    NamedExitCode { number: 126, name: "unusable-program", meaning: "the program can't be run" };

/// `ksmith run` found no such program.
pub const NO_PROGRAM: NamedExitCode =
    NamedExitCode { number: 127, name: "no-program", meaning: "the program does not exist" };

/// The exit codes of `ksmith run`, where they are not those of its program. After a signal it ends with 128 and the
/// signal's number.
pub const RUN: [NamedExitCode; 2] = [UNUSABLE_PROGRAM, NO_PROGRAM];

/// Returns the table as lines for the help: the number, two spaces, the meaning.
pub fn lines() -> impl Iterator<Item = String> {
    CODES.iter().map(|code| format!("  {}  {}", code.number, code.meaning))
}

impl fmt::Display for NamedExitCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number)
    }
}

impl From<NamedExitCode> for ExitCode {
    fn from(code: NamedExitCode) -> Self {
        Self::from(code.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_numbered_in_their_order_and_named_once() {
        for codes in [&CODES[..], &CHECK] {
            let numbers: Vec<usize> = codes.iter().map(|code| code.number.into()).collect();
            assert_eq!(numbers, (0..codes.len()).collect::<Vec<_>>());
            let mut names: Vec<&str> = codes.iter().map(|code| code.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), codes.len());
        }
        assert!(lines().any(|line| line == "  4  no guest has that name, or several have it"));
    }
}
