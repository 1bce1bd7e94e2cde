//! The `ksmith` command.

use std::process::ExitCode;

use ksmith::cli;

fn main() -> ExitCode {
    match cli::main() {
        Ok(code) => code,
        Err(error) => {
            cli::print_error(&error);
            cli::code_of(&error).into()
        }
    }
}
