//! Progress of the lab on standard error: a bar with the time left on a terminal, a line per run elsewhere.

#![allow(clippy::disallowed_methods, reason = "it shows progress; every line passes through OneLine")]

use std::cell::Cell;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use ksmith_core::printable::OneLine;
use ksmith_core::units::{Bytes, TimeSpan};

/// The display of progress.
#[derive(Debug)]
pub struct LabProgress {
    bar: Option<ProgressBar>,
    total: Duration,
    done: Cell<Duration>,
}

impl LabProgress {
    /// Makes the display for runs that take `total` together, without the time between them.
    pub fn new(total: Duration) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(u64::try_from(total.as_millis()).unwrap_or(u64::MAX));
            // The template is constant. The plain bar stands in if it does not parse.
            if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {prefix}  {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, total, done: Cell::new(Duration::ZERO) }
    }

    /// Announces a run.
    pub(super) fn say(&self, what: String) {
        let what = OneLine(what).to_string();
        match &self.bar {
            Some(bar) => bar.set_prefix(what),
            None => {
                let left = TimeSpan(self.total.saturating_sub(self.done.get()));
                // A closed standard error does not end the lab.
                let _ = writeln!(io::stderr(), "{what} ({left} left)");
            }
        }
    }

    /// Shows the state of a run at the time `elapsed` since its start.
    pub(super) fn moment(&self, elapsed: Duration, saved_bytes: u64) {
        let Some(bar) = &self.bar else { return };
        let done = self.done.get() + elapsed;
        bar.set_position(u64::try_from(done.as_millis()).unwrap_or(u64::MAX));
        let left = HumanDuration(self.total.saturating_sub(done));
        bar.set_message(format!("saved {}, {left} left", Bytes::from(saved_bytes)));
    }

    /// Adds the duration of a run that has ended.
    pub(super) fn run_done(&self, duration: Duration) {
        self.done.set(self.done.get() + duration);
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
