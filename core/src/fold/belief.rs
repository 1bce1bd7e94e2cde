//! The belief about one process: what folding it would bring and cost, and when it is looked at next.

use std::time::Duration;

use super::FoldLook;

/// The first pause after a look that found nothing worth folding.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// The longest such pause. It doubles from the first one.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(640);

/// The first pause after a process did not answer, and the longest.
pub(super) const SILENT_PAUSES: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));

/// The least growth that is worth a look before its time.
const LEAST_GROWTH: u64 = 16 << 20;

/// The least memory that a pass must be expected to free.
pub(super) const LEAST_GAIN: u64 = 4 << 20;

/// Bytes that are looked through for zeros in a CPU-second.
pub(super) const READ_BYTES_PER_CPU_SECOND: f64 = 6e9;

/// CPU-seconds to split one huge page.
pub(super) const CPU_SECONDS_PER_SPLIT: f64 = 0.4e-3;

/// The expected gain and cost of a pass over a process.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct FoldExpectation {
    /// Memory that comes free.
    pub gain_bytes: f64,
    /// CPU time.
    pub cpu_seconds: f64,
    /// Sampled huge pages that would be split, in per cent.
    pub foldable_percent: f64,
}

impl FoldExpectation {
    /// Bytes freed per CPU-second.
    pub fn rate(&self) -> f64 {
        if self.gain_bytes < LEAST_GAIN as f64 { 0.0 } else { self.gain_bytes / self.cpu_seconds.max(1e-6) }
    }
}

/// The belief about one process.
#[derive(Debug, Clone)]
pub(super) struct FoldBelief {
    pub name: String,
    /// Resident memory now, and the least since the last look.
    pub rss_bytes: u64,
    least_rss_bytes: u64,
    pub look: Option<FoldLook>,
    /// The time of the last look.
    looked: Duration,
    /// The least huge memory since the pause began.
    least_huge_bytes: u64,
    /// True if the last look found that folding pays.
    pub wants_fold: bool,
    /// The time of the next look at the process.
    pub next_look: Duration,
    /// Before this time a look changes figures, and leads to no fold.
    judge_at: Duration,
    pause: Duration,
    silent_pause: Duration,
}

/// True if memory has grown by so much that an earlier judgement is out of date.
fn has_grown(from: u64, to: u64) -> bool {
    to.saturating_sub(from) >= LEAST_GROWTH.max(from / 8)
}

impl FoldBelief {
    pub fn new(name: String, at: Duration, rss_bytes: u64) -> Self {
        Self {
            name,
            rss_bytes,
            least_rss_bytes: rss_bytes,
            look: None,
            looked: Duration::ZERO,
            least_huge_bytes: 0,
            wants_fold: false,
            next_look: at,
            judge_at: at,
            pause: FIRST_PAUSE,
            silent_pause: SILENT_PAUSES.0,
        }
    }

    /// Records the resident memory. Growth brings the next look forward.
    pub fn see_rss(&mut self, rss_bytes: u64) {
        self.rss_bytes = rss_bytes;
        self.least_rss_bytes = self.least_rss_bytes.min(rss_bytes);
        if has_grown(self.least_rss_bytes, rss_bytes) && self.look.is_some() {
            self.next_look = self.next_look.min(self.looked + FIRST_PAUSE);
        }
    }

    /// Records a look. `pays` judges the expectation, and `refresh` is the pause between two looks at folded memory.
    pub fn see_look(&mut self, at: Duration, look: FoldLook, refresh: Option<Duration>, pays: bool) {
        let grows = self.look.is_some() && has_grown(self.least_huge_bytes, look.huge_bytes);
        let is_first = self.look.replace(look).is_none();
        if grows {
            self.pause = FIRST_PAUSE;
        }
        self.least_huge_bytes =
            if grows || is_first { look.huge_bytes } else { self.least_huge_bytes.min(look.huge_bytes) };
        (self.looked, self.least_rss_bytes) = (at, self.rss_bytes);
        self.silent_pause = SILENT_PAUSES.0;
        if grows || at >= self.judge_at {
            self.wants_fold = pays;
            if pays {
                self.judge_at = at;
            } else {
                self.rest(at);
            }
        }
        let due = if self.wants_fold { at + FIRST_PAUSE } else { self.judge_at };
        self.next_look = refresh.map_or(due, |refresh| due.min(at + refresh));
    }

    /// Records the outcome of a pass. One that brought little is followed by a longer pause.
    pub fn see_pass(&mut self, at: Duration, has_paid: bool) {
        self.wants_fold = false;
        if has_paid {
            self.pause = FIRST_PAUSE;
            self.judge_at = at + FIRST_PAUSE;
        } else {
            self.rest(at);
        }
        self.next_look = self.judge_at.min(at + FIRST_PAUSE);
    }

    /// Rests for the present pause, and doubles it.
    fn rest(&mut self, at: Duration) {
        self.judge_at = at + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }

    /// Rests after a failure.
    pub fn see_failure(&mut self, at: Duration) {
        self.wants_fold = false;
        self.rest(at);
        self.next_look = self.judge_at;
    }

    /// Rests for long, since the process held its reader up. Returns how long.
    pub fn see_silence(&mut self, at: Duration) -> Duration {
        let pause = self.silent_pause;
        self.silent_pause = (pause * 2).min(SILENT_PAUSES.1);
        self.wants_fold = false;
        (self.judge_at, self.next_look) = (at + pause, at + pause);
        // Growth does not shorten this rest.
        self.look = None;
        pause
    }

    /// True if the process was never read.
    pub fn is_new(&self) -> bool {
        self.look.is_none()
    }

    /// Returns the expected gain and cost of a pass. `cost_scale` is the cost of passes here relative to the usual one.
    pub fn expectation(&self, cost_scale: f64) -> FoldExpectation {
        self.look.as_ref().map(|look| expectation(look, cost_scale)).unwrap_or_default()
    }
}

/// Derives the expected gain and cost of a pass from a look.
pub(super) fn expectation(look: &FoldLook, cost_scale: f64) -> FoldExpectation {
    let sampled = look.sampled_pages as f64;
    if look.sampled_pages == 0 || look.huge_page_bytes == 0 {
        return FoldExpectation::default();
    }
    let (huge, size) = (look.huge_bytes as f64, look.huge_page_bytes as f64);
    let foldable = (look.foldable_pages as f64 / sampled).min(1.0);
    let zeros = (look.zero_bytes as f64 / (sampled * size)).min(1.0);
    let splits = huge / size * foldable;
    FoldExpectation {
        gain_bytes: huge * zeros,
        cpu_seconds: cost_scale * pass_cpu_seconds(huge, splits),
        foldable_percent: foldable * 100.0,
    }
}

/// CPU time of a usual pass.
pub(super) fn pass_cpu_seconds(looked_bytes: f64, splits: f64) -> f64 {
    looked_bytes / READ_BYTES_PER_CPU_SECOND + splits * CPU_SECONDS_PER_SPLIT
}
