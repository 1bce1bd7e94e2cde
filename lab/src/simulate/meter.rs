//! Progress of a simulation on standard error: a bar with the time left on a terminal, a line per run elsewhere.

#![allow(clippy::disallowed_methods, reason = "it shows progress; every line passes through OneLine")]

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use ksmith_core::printable::OneLine;

/// The display of progress, shared by all runs.
#[derive(Debug)]
pub(crate) struct SimulationMeter {
    bar: Option<ProgressBar>,
    runs: usize,
    done: AtomicUsize,
}

impl SimulationMeter {
    /// Makes the display for `runs` runs that take `total` of simulated time together.
    pub fn new(total: Duration, runs: usize) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(millis(total));
            // The template is constant. The plain bar stands in if it does not parse.
            if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {percent} %, {eta} left  {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, runs, done: AtomicUsize::new(0) }
    }

    /// Shows that a run has come forward by so much simulated time.
    pub fn advance(&self, by: Duration) {
        if let Some(bar) = &self.bar {
            bar.inc(millis(by));
        }
    }

    /// Shows that a run has ended: beside the bar on a terminal, as a line elsewhere.
    pub fn done(&self, what: &str) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let line = OneLine(format!("{what}: run {done} of {} is done", self.runs)).to_string();
        match &self.bar {
            Some(bar) => bar.set_message(line),
            // A closed standard error does not end the simulation.
            None => _ = writeln!(io::stderr(), "{line}"),
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
