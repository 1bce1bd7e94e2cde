//! The `ksmith` command.

use std::io::{self, Write};
use std::process::ExitCode;

use ksmith::cli;

fn main() -> ExitCode {
    match cli::main() {
        Ok(code) => code,
        Err(error) => {
            // Where standard error is closed, the message can go nowhere.
            let _ = writeln!(io::stderr(), "ksmith: {}", cli::sentence(&error));
            ExitCode::from(cli::code_of(&error))
        }
    }
}
