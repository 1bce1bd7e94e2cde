//! The live view of the demo: a bar on a terminal, plain lines elsewhere.

#![allow(clippy::disallowed_methods, reason = "it shows the demo while it runs; every line passes through OneLine")]

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ksmith_core::printable::OneLine;
use ksmith_core::units::Bytes;

use super::stage::DemoMode;

/// The live view of the demo.
#[derive(Debug)]
pub struct DemoView {
    mode: DemoMode,
    bar: Option<ProgressBar>,
    /// Time of the newest plain line.
    said: Option<Duration>,
    to_stderr: bool,
}

/// One moment of the demo.
#[derive(Debug, Clone, Copy)]
pub struct DemoMoment<'a> {
    /// Time since the start.
    pub at: Duration,
    /// State of the policy, in one word.
    pub state: &'a str,
    /// Reason of the decision.
    pub reason: &'a str,
    /// Bytes saved now.
    pub saved_bytes: u64,
    /// Attainable savings of the guests that have started.
    pub mergeable_bytes: u64,
    /// CPU time of ksmd divided by the elapsed time.
    pub ksmd_share: f64,
}

impl DemoView {
    /// Makes a view for figures of this mode. With `json` it writes to standard error.
    pub fn new(mode: DemoMode, json: bool) -> Self {
        let is_terminal = if json { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        // Simulated time runs too fast for a bar.
        let bar = (is_terminal && mode == DemoMode::Live).then(|| {
            let target = if json { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::stdout() };
            let bar = ProgressBar::with_draw_target(Some(100), target);
            // The template is constant. The plain bar stands in if it does not parse.
            if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { mode, bar, said: None, to_stderr: json }
    }

    /// Prints a sentence that stays on the screen.
    pub fn say(&self, sentence: &str) {
        match &self.bar {
            Some(bar) => bar.println(OneLine(sentence).to_string()),
            None => self.line(sentence),
        }
    }

    /// Shows a moment. Plain lines are printed once a second, and when the policy changes its state.
    pub fn show(&mut self, moment: DemoMoment<'_>, is_new: bool) {
        let DemoMoment { at, state, reason, saved_bytes, mergeable_bytes, ksmd_share } = moment;
        let percent = 100 * saved_bytes / mergeable_bytes.max(1);
        let figures = format!(
            "{:>5.1} s  {state:<8} saved {} of {} ({percent} %)  ksmd {:>3.0} %",
            at.as_secs_f64(),
            Bytes::from(saved_bytes),
            Bytes::from(mergeable_bytes),
            ksmd_share * 100.0,
        );
        if let Some(bar) = &self.bar {
            bar.set_position(percent.min(100));
            bar.set_prefix(figures);
            bar.set_message(OneLine(reason).to_string());
            return;
        }
        let is_due = self.said.is_none_or(|said| at.saturating_sub(said) >= Duration::from_secs(1));
        if is_due || is_new {
            self.said = Some(at);
            self.line(&format!("{figures}  {reason}"));
        }
    }

    /// Ends the live view.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }

    fn line(&self, text: &str) {
        let prefix = match self.mode {
            DemoMode::Live => "",
            DemoMode::Simulated => "SIMULATED ",
        };
        let text = OneLine(text);
        // A closed output does not end the demo, because the settings are still to be restored.
        let _ = if self.to_stderr {
            writeln!(io::stderr(), "{prefix}{text}")
        } else {
            writeln!(io::stdout(), "{prefix}{text}")
        };
    }
}
