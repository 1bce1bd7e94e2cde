//! The log: one line per event on standard error, where journald or a terminal picks it up.

#![allow(clippy::disallowed_methods, reason = "the log is on standard error")]

mod line;

use std::fmt::Debug;

use ksmith_core::printable::OneLine;
use tracing::Level;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::{self, FormatFields, Writer};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts the log. `verbose` 1 also shows the figures behind a decision, and 2 everything. Without `verbose`, the
/// variable RUST_LOG sets the level of each module, as in `warn,ksmith_service=debug`. A command that serves others may
/// not wait until its log is read: then `may_wait` is false.
pub fn start(verbose: u8, colours: bool, may_wait: bool) {
    let level = match verbose {
        0 => Level::INFO,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let asked = std::env::var("RUST_LOG").ok().filter(|text| verbose == 0 && !text.is_empty());
    let targets: Option<Result<Targets, _>> = asked.as_deref().map(str::parse);
    let is_wrong = matches!(targets, Some(Err(_)));
    let targets = targets.and_then(Result::ok).unwrap_or_else(|| Targets::new().with_default(level));
    let writer = if may_wait { BoxMakeWriter::new(std::io::stderr) } else { BoxMakeWriter::new(line::lock_stderr) };
    let builder = fmt()
        .with_max_level(Level::TRACE)
        .with_writer(writer)
        .with_target(false)
        // It would report a log that can't be written by panicking.
        .log_internal_errors(false)
        .with_ansi(colours)
        .fmt_fields(fields());
    // journald notes the time itself. A second subscriber can only be a test's: it may stay.
    let _ = if std::env::var_os("JOURNAL_STREAM").is_some() {
        builder.without_time().finish().with(targets).try_init()
    } else {
        builder.finish().with(targets).try_init()
    };
    if is_wrong {
        tracing::warn!("RUST_LOG can't be parsed, and is ignored: write it as debug, or warn,ksmith_service=debug");
    }
}

/// Formats each event on one line: names and errors of others break no line, and move no cursor.
fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    let write = |writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| match field.name() {
        "message" => write!(writer, "{}", OneLine(format_args!("{value:?}"))),
        name => write!(writer, "{name}={}", OneLine(format_args!("{value:?}"))),
    };
    format::debug_fn(write).delimited(" ")
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_guests_name_makes_no_line_and_no_colour_of_its_own() {
        let lines = LogBuffer::default();
        let writer = lines.clone();
        let log = fmt().with_ansi(false).with_writer(move || writer.clone()).fmt_fields(fields()).finish();
        let hostile = "web\n2026-11-22T00:00:00Z  INFO all settings restored\u{1b}[2J\u{9b}2J\u{202e}";
        tracing::subscriber::with_default(log, || tracing::warn!(guest = %hostile, "guest {hostile} hangs"));
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
        assert!(text.contains("guest web\\n2026") && text.contains("guest=web\\n2026"), "{text}");
    }
}
