//! Prints the results of commands: the only way to standard output and standard error, beside the log.
//!
//! Text of others passes through `ksmith_core::printable` here. A reader that goes away (`| head`) ends the printing,
//! not the program: `println!` would panic.

#![allow(clippy::disallowed_methods, reason = "the one place that writes to both")]

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Context;
use clap::ValueEnum;
use clap::builder::StyledStr;
use ksmith_core::printable::{self, OneLine, TextPage};
use serde::Serialize;

use crate::show::paint;

/// When text has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColourChoice {
    /// On a terminal, unless the variable NO_COLOR is set.
    #[default]
    Auto,
    /// Also in files and pipes.
    Always,
    /// Not on terminals either.
    Never,
}

/// The choice of `--color`.
static CHOSEN: OnceLock<ColourChoice> = OnceLock::new();

/// Sets the choice of `--color`. Only the first call counts.
pub fn choose(colour: ColourChoice) {
    let _ = CHOSEN.set(colour);
}

/// Returns true if an output has colours, by `--color` and the environment. `is_terminal` is true for a terminal.
pub fn has_colours(is_terminal: bool) -> bool {
    match CHOSEN.get().copied().unwrap_or_default() {
        ColourChoice::Always => true,
        ColourChoice::Never => false,
        // As https://no-color.org has it: an empty variable does not count.
        ColourChoice::Auto => {
            let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
            is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

/// Returns the columns and lines of the terminal, if standard output is one.
pub fn size() -> Option<(usize, usize)> {
    let out = io::stdout();
    let size = out.is_terminal().then(|| rustix::termios::tcgetwinsize(&out).ok()).flatten()?;
    // A serial line that does not know its size says 0.
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Returns the width that tables must fit into, if standard output is a terminal.
pub fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

/// Prints lines on standard output, on a terminal in colours.
///
/// # Errors
/// Standard output fails, as on a full disk.
pub fn page(page: &TextPage) -> anyhow::Result<()> {
    stream(&painted(page)).map(drop)
}

/// Returns the text of a page for standard output.
fn painted(page: &TextPage) -> String {
    if !has_colours(io::stdout().is_terminal()) {
        return page.text().to_owned();
    }
    paint::lines(page, true, None).into_iter().map(|line| line + "\n").collect()
}

/// Prints text that is already printable. Returns false if the reader has closed the pipe.
///
/// # Errors
/// As [`page`].
pub fn stream(text: &str) -> anyhow::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("can't print the result"),
        Ok(()) => Ok(true),
    }
}

/// Prints a page as one of many, with an empty line behind it. Returns false if the reader has closed the pipe.
///
/// # Errors
/// As [`page`].
pub fn block(page: &TextPage) -> anyhow::Result<bool> {
    stream(&(painted(page) + "\n"))
}

/// Prints JSON as one line. Returns false if the reader has closed the pipe.
///
/// # Errors
/// As [`page`].
pub fn json_line(value: &impl Serialize) -> anyhow::Result<bool> {
    stream(&format!("{}\n", printable::json(&serde_json::to_string(value)?)))
}

/// Returns standard output, for a caller that owns the whole terminal and escapes text of others itself.
pub fn terminal() -> io::Stdout {
    io::stdout()
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

/// Prints the result of a command that has done its work: as JSON, or as lines.
///
/// # Errors
/// As [`page`].
pub fn answer<T: Serialize>(
    is_json: bool,
    as_json: impl FnOnce() -> T,
    as_page: impl FnOnce() -> TextPage,
) -> anyhow::Result<ExitCode> {
    match is_json {
        true => json(&as_json())?,
        false => page(&as_page())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints ksmith's own text, without escaping.
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
    let is_painted = has_colours(io::stdout().is_terminal());
    write(&if is_painted { help.ansi().to_string() } else { help.to_string() })
}

/// Prints lines on standard error. A closed standard error is no error.
pub fn aside(page: &TextPage) {
    if has_colours(io::stderr().is_terminal()) {
        paint::lines(page, true, None).into_iter().for_each(|line| write_stderr(&(line + "\n")));
    } else {
        write_stderr(page.text());
    }
}

/// Returns true if standard error is a terminal.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Shows progress on standard error, which is a terminal, over the previous progress.
pub fn progress(text: impl Display) {
    write_stderr(&format!("\r{}\u{1b}[K", OneLine(text)));
}

/// Asks a question on standard error, and leaves the cursor behind it.
pub fn prompt(question: impl Display) {
    write_stderr(&OneLine(question).to_string());
}

/// Ends the line of progress.
pub fn end_progress() {
    write_stderr("\n");
}

fn write_stderr(text: &str) {
    let mut err = io::stderr().lock();
    // Where standard error is closed, the text can go nowhere.
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

fn write(text: &str) -> anyhow::Result<()> {
    stream(text).map(drop)
}
