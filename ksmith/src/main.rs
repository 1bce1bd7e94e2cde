//! The `ksmith` command.

use std::process::ExitCode;

use ksmith::cli::{self, Cli};

fn main() -> ExitCode {
    cli::main::<Cli>()
}
