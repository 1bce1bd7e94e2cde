//! The demo's live view: a bar on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ksmith_core::units::Bytes;

use super::stage::Mode;

/// Where the view goes.
#[derive(Debug)]
pub struct View {
    mode: Mode,
    bar: Option<ProgressBar>,
    /// Time of the last plain line.
    said: Option<Duration>,
    to_stderr: bool,
}

/// One moment of the demo.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    /// Since the start.
    pub at: Duration,
    /// What the policy does, in one word.
    pub state: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Saved now.
    pub saved_bytes: u64,
    /// What the guests that have started could save.
    pub mergeable_bytes: u64,
    /// ksmd's part of a CPU.
    pub ksmd_share: f64,
}

impl View {
    /// A view for figures of this mode. With `json`, standard output is kept free for it.
    pub fn new(mode: Mode, json: bool) -> Self {
        let is_terminal = if json { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        // Simulated time runs too fast to watch: its lines stay to be read.
        let bar = (is_terminal && mode == Mode::Live).then(|| {
            let target = if json { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::stdout() };
            let bar = ProgressBar::with_draw_target(Some(100), target);
            // A template that does not parse is a fault of ours; the plain bar will do.
            if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:30}] {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { mode, bar, said: None, to_stderr: json }
    }

    /// A sentence that stays.
    pub fn say(&self, sentence: &str) {
        match &self.bar {
            Some(bar) => bar.println(sentence),
            None => self.line(sentence),
        }
    }

    /// Shows a moment. Plain lines come once a second, and when the policy does something else.
    pub fn show(&mut self, moment: Moment<'_>, is_new: bool) {
        let Moment { at, state, reason, saved_bytes, mergeable_bytes, ksmd_share } = moment;
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
            bar.set_message(reason.to_owned());
            return;
        }
        let is_due = self.said.is_none_or(|said| at.saturating_sub(said) >= Duration::from_secs(1));
        if is_due || is_new {
            self.said = Some(at);
            self.line(&format!("{figures}  {reason}"));
        }
    }

    /// Ends the live part.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish();
        }
    }

    fn line(&self, text: &str) {
        let prefix = match self.mode {
            Mode::Live => "",
            Mode::Simulated => "SIMULATED ",
        };
        // A reader who has gone away does not end the demo: the settings are still to be restored.
        let _ = if self.to_stderr {
            writeln!(io::stderr(), "{prefix}{text}")
        } else {
            writeln!(io::stdout(), "{prefix}{text}")
        };
    }
}
