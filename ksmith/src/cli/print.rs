//! Prints the results of commands: the only way to standard output and standard error, beside the log.
//!
//! Text of others passes through `ksmith_core::printable` here. A reader that goes away (`| head`) ends the printing,
//! not the program: `println!` would panic.

#![allow(clippy::disallowed_methods, reason = "the one place that writes to both")]

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};

use anyhow::Context;
use clap::builder::StyledStr;
use ksmith_core::printable::{self, OneLine, Page};
use serde::Serialize;

/// Prints lines on standard output.
///
/// # Errors
/// Standard output fails, as on a full disk.
pub fn page(page: &Page) -> anyhow::Result<()> {
    write(page.text())
}

/// Prints one line.
///
/// # Errors
/// As [`page`].
pub fn line(line: impl Display) -> anyhow::Result<()> {
    write(&format!("{}\n", OneLine(line)))
}

/// Prints JSON, indented for people.
///
/// # Errors
/// As [`page`].
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    write(&format!("{}\n", printable::json(&serde_json::to_string_pretty(value)?)))
}

/// Prints text that is all ksmith's own, as it is.
///
/// # Errors
/// As [`page`].
pub fn own(text: &str) -> anyhow::Result<()> {
    write(text)
}

/// Prints help, on a terminal with its styles.
///
/// # Errors
/// As [`page`].
pub fn help(help: &StyledStr) -> anyhow::Result<()> {
    let is_terminal = io::stdout().is_terminal();
    write(&if is_terminal { help.ansi().to_string() } else { help.to_string() })
}

/// Prints lines on standard error. A closed standard error is no error.
pub fn aside(page: &Page) {
    tell(page.text());
}

/// Whether a person watches standard error.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Shows progress on standard error, in the place of what was shown before.
pub fn progress(text: impl Display) {
    tell(&format!("\r{}  ", OneLine(text)));
}

/// Ends the line of progress.
pub fn end_progress() {
    tell("\n");
}

fn tell(text: &str) {
    let mut err = io::stderr().lock();
    // Where standard error is closed, the text can go nowhere.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("can't print the result"),
        _ => Ok(()),
    }
}
