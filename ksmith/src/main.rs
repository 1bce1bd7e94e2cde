//! The `ksmith` command.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use ksmith::cli::{self, Cli};

fn main() -> ExitCode {
    let cli = Cli::parse();
    ksmith::log::start(cli.verbose());
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            // On a standard error that is gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "ksmith: {error:#}");
            ExitCode::from(cli::code_of(&error))
        }
    }
}
