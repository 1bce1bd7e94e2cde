//! The `ksmith` command.

use std::io::{self, Write};
use std::process::ExitCode;

use ksmith::cli;

fn main() -> ExitCode {
    match cli::main() {
        Ok(code) => code,
        Err(error) => {
            // On a standard error that is gone there is nobody to tell.
            let _ = writeln!(io::stderr(), "ksmith: {}", cli::sentence(&error));
            ExitCode::from(cli::code_of(&error))
        }
    }
}
