//! The daemon, which root runs: the command `ksmith daemon` and nothing else.

use std::process::ExitCode;

use ksmith::cli::{self, DaemonCommand, SiblingCli};

fn main() -> ExitCode {
    cli::main::<SiblingCli<DaemonCommand>>()
}
