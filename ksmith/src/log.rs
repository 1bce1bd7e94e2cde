//! The log: one line per event on standard error, where journald or a terminal picks it up.

use std::io::IsTerminal;

use tracing::Level;
use tracing_subscriber::fmt;

/// Starts the log. `verbose` also shows what led to a decision.
pub fn start(verbose: bool) {
    let level = if verbose { Level::DEBUG } else { Level::INFO };
    let builder = fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        // It would report a log that can't be written by panicking.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    // journald notes the time itself. A second subscriber can only be a test's: it may stay.
    let _ = if std::env::var_os("JOURNAL_STREAM").is_some() {
        builder.without_time().try_init()
    } else {
        builder.try_init()
    };
}
