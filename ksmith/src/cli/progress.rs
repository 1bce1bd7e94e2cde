//! Progress on the error output, with the time left: only where that is a terminal.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ksmith_core::sample::Sample;
use ksmith_core::units::TimeSpan;
use ksmith_host::memory::progress::ProgressMeter;

use super::print;

/// An estimator of the time left, from the work left.
#[derive(Debug)]
pub struct TimeLeftEstimator {
    started: Instant,
    first: Option<u64>,
}

/// Elapsed time before which an estimate would be a guess.
const EARLIEST: Duration = Duration::from_secs(1);

impl TimeLeftEstimator {
    /// Starts an estimate for work that begins now.
    pub fn new() -> Self {
        Self { started: Instant::now(), first: None }
    }

    /// Records the work left. Returns words such as `, about 12 s left`, or none if it is too early.
    pub fn left(&mut self, left: u64) -> TimeLeft {
        let first = *self.first.get_or_insert(left);
        TimeLeft(estimate(self.started.elapsed(), first, left))
    }
}

/// The time left, in words behind a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLeft(Option<Duration>);

impl fmt::Display for TimeLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // Whole seconds: less would only flicker.
            Some(left) => write!(f, ", about {} left", TimeSpan(Duration::from_secs(left.as_secs().max(1)))),
            None => Ok(()),
        }
    }
}

/// Extrapolates the time left from the work done.
fn estimate(elapsed: Duration, first: u64, left: u64) -> Option<Duration> {
    let done = first.checked_sub(left).filter(|done| *done > 0)?;
    let seconds = elapsed.as_secs_f64() * left as f64 / done as f64;
    Duration::try_from_secs_f64(seconds).ok().filter(|_| elapsed >= EARLIEST)
}

/// Returns the pages that ksmd still has to visit in a scan of so many passes; `None` before Linux 6.6, which does not
/// count visits.
pub fn pages_left(first: &Sample, now: &Sample, passes: u64) -> Option<u64> {
    let visited = now.ksm.pages_scanned.get()?.saturating_sub(first.ksm.pages_scanned.get()?);
    let offered: u64 =
        now.processes.iter().filter(|process| process.may_merge()).map(|process| process.known_rss_bytes()).sum();
    let pages = now.ksm.tracked_pages().max(offered / now.page_size.max(1));
    Some(passes.saturating_mul(pages).saturating_sub(visited))
}

/// A line of progress that is updated each second, until the value is dropped.
#[derive(Debug)]
pub struct TickingProgress(Option<(mpsc::Sender<()>, JoinHandle<()>)>);

impl TickingProgress {
    /// Starts to show what `words` returns, after the first second.
    pub fn start(mut words: impl FnMut() -> Option<String> + Send + 'static) -> Self {
        if !print::is_watched() {
            return Self(None);
        }
        let (end, ended) = mpsc::channel();
        let work = move || {
            let mut has_shown = false;
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                if let Some(words) = words() {
                    print::progress(words);
                    has_shown = true;
                }
            }
            if has_shown {
                print::end_progress();
            }
        };
        Self(std::thread::Builder::new().name("progress".to_owned()).spawn(work).ok().map(|thread| (end, thread)))
    }
}

impl Drop for TickingProgress {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            // What is printed next stands on a line of its own.
            let _ = thread.join();
        }
    }
}

/// A bar on the error output, shown only if that is a terminal.
#[derive(Debug)]
pub struct MeterBar(ProgressBar);

impl MeterBar {
    /// Returns a hidden bar.
    pub fn new() -> Self {
        Self(ProgressBar::hidden())
    }
}

impl ProgressMeter for MeterBar {
    fn begin(&self, bytes: u64, what: &'static str) {
        if !print::is_watched() {
            return;
        }
        let template = "{msg} {bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.set_length(bytes);
        self.0.set_message(what);
        self.0.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    }

    fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    fn end(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::reading::Reading;

    use super::*;

    #[test]
    fn the_rest_takes_as_long_as_what_was_done() {
        let seconds = Duration::from_secs;
        assert_eq!(estimate(seconds(3), 100, 25), Some(seconds(1)));
        assert_eq!(estimate(seconds(3), 100, 100), None, "nothing is done yet");
        assert_eq!(estimate(seconds(3), 100, 200), None, "it has become more");
        assert_eq!(estimate(Duration::from_millis(900), 100, 25), None, "it is too early");
        assert_eq!(estimate(Duration::MAX, u64::MAX, u64::MAX - 1), None, "no time at all");
        assert_eq!(TimeLeft(Some(Duration::from_millis(12_700))).to_string(), ", about 12 s left");
        assert_eq!(TimeLeft(None).to_string(), "");
    }

    #[test]
    fn a_scan_is_over_when_all_pages_are_visited_so_often() {
        let sample = |visited: u64, tracked: u64| {
            let mut sample = Sample { page_size: 4096, ..Sample::default() };
            sample.ksm.pages_scanned = Reading::Value(visited);
            sample.ksm.pages_unshared = Reading::Value(tracked);
            sample
        };
        assert_eq!(pages_left(&sample(1000, 0), &sample(1600, 500), 2), Some(400));
        assert_eq!(pages_left(&sample(1000, 0), &sample(3000, 500), 2), Some(0));
        assert_eq!(pages_left(&sample(0, 0), &Sample::default(), 2), None);
    }
}
