//! The web server: the command `ksmith serve`.

use std::process::ExitCode;

use ksmith::cli::{self, ServeCommand, SiblingCli};

fn main() -> ExitCode {
    cli::main::<SiblingCli<ServeCommand>>()
}
