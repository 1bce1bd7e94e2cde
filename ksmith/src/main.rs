//! The `ksmith` command.

use std::process::ExitCode;

use clap::Parser;
use ksmith::cli::{self, Cli};

fn main() -> ExitCode {
    let cli = Cli::parse();
    ksmith::log::start(cli.verbose());
    match cli.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ksmith: {error:#}");
            ExitCode::from(cli::code_of(&error))
        }
    }
}
