//! Prints the results of commands. A reader that goes away (`| head`) ends the printing, not the program:
//! `println!` would panic.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use anyhow::Context;
use serde::Serialize;

/// Prints text as it is.
///
/// # Errors
/// Standard output fails, as on a full disk.
pub fn text(text: impl Display) -> anyhow::Result<()> {
    write(&text.to_string())
}

/// Prints a line.
///
/// # Errors
/// As [`text`].
pub fn line(line: impl Display) -> anyhow::Result<()> {
    write(&format!("{line}\n"))
}

/// Prints JSON, indented for people.
///
/// # Errors
/// As [`text`].
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    write(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Shows progress on standard error. A closed standard error is no error.
pub fn progress(text: impl Display) {
    let mut err = io::stderr().lock();
    let _ = write!(err, "{text}").and_then(|()| err.flush());
}

/// Says something on standard error, beside another program's output. A closed standard error is no error.
pub fn aside(text: impl Display) {
    progress(text);
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("can't print the result"),
        _ => Ok(()),
    }
}
