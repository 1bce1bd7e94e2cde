//! The `ksmith` command.

use std::process::ExitCode;

use ksmith::lab::{Contents, serve};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("memory-guest") {
        let Ok(parts) = args.map(|part| part.parse()).collect::<Result<Vec<_>, _>>() else {
            return ExitCode::from(2);
        };
        return match serve(&Contents(parts), std::io::stdin().lock(), std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    ExitCode::from(2)
}
