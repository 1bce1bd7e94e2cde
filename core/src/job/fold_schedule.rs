//! The times at which a job's process is folded: once its memory has stopped growing, and again where it pays.
//!
//! The first pass takes what it takes. Every other one waits until the CPU time of all passes but the first is below
//! its budget, and a pass that frees little doubles the pause before the next.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::settled::MemoryPeak;

/// The setting of when a job is folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FoldWhen {
    /// When its memory has stopped growing, and again where it pays.
    EndOfInit,
    /// Each time that so much time has passed.
    Every(Duration),
    /// By `ksmith fold` only: the job's memory is in huge pages, and nothing else is done.
    OnDemand,
}

impl fmt::Display for FoldWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndOfInit => f.pad("end-of-init"),
            Self::OnDemand => f.pad("on-demand"),
            Self::Every(period) => write!(f, "every={}s", period.as_secs()),
        }
    }
}

/// A text that names no [`FoldWhen`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("say end-of-init, every=SECONDS from 1 to 1000000, or on-demand")]
pub struct UnknownFoldWhen;

impl FromStr for FoldWhen {
    type Err = UnknownFoldWhen;

    fn from_str(text: &str) -> Result<Self, UnknownFoldWhen> {
        match text {
            "end-of-init" => Ok(Self::EndOfInit),
            "on-demand" => Ok(Self::OnDemand),
            _ => {
                let seconds = text.strip_prefix("every=").ok_or(UnknownFoldWhen)?;
                let seconds = seconds.strip_suffix('s').unwrap_or(seconds).parse::<u64>().ok();
                let seconds = seconds.filter(|seconds| (1..=1_000_000).contains(seconds)).ok_or(UnknownFoldWhen)?;
                Ok(Self::Every(Duration::from_secs(seconds)))
            }
        }
    }
}

/// A pass that frees less than one part in so many of what it looked at did not pay.
const WORTH: u64 = 64;

/// The pause before the next pass where the last one paid, and where none did for long.
const SOON: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(640);

/// The schedule of one process.
#[derive(Debug, Clone)]
pub struct FoldSchedule {
    when: FoldWhen,
    /// The part of a CPU that passes after the first may take.
    cpu_share: f64,
    /// The age at which the next pass is due at the earliest.
    next: Duration,
    pause: Duration,
    /// The most resident bytes since the last pass.
    peak: MemoryPeak,
    /// The age at the end of the first pass, if there was one.
    first_pass: Option<Duration>,
    /// CPU time of all passes after the first.
    spent: Duration,
}

impl FoldSchedule {
    /// The schedule of a process that has just begun. `cpu_share` is the part of a CPU that passes after the first may
    /// take.
    pub fn new(when: FoldWhen, cpu_share: f64) -> Self {
        let next = if let FoldWhen::Every(period) = when { period } else { Duration::ZERO };
        Self {
            when,
            cpu_share,
            next,
            pause: SOON,
            peak: MemoryPeak::default(),
            first_pass: None,
            spent: Duration::ZERO,
        }
    }

    /// Records the resident bytes of the process at this age. Returns true if it is to be folded now.
    pub fn is_due(&mut self, age: Duration, resident_bytes: u64) -> bool {
        if self.peak.record_rss(age, resident_bytes) {
            // New memory may be folded soon.
            self.pause = SOON;
        }
        let is_affordable = self.first_pass.is_none_or(|first| {
            let budget = age.saturating_sub(first).as_secs_f64() * self.cpu_share;
            self.spent.as_secs_f64() <= budget
        });
        match self.when {
            FoldWhen::OnDemand => false,
            FoldWhen::EndOfInit if self.first_pass.is_none() => age >= self.next && self.peak.may_be_folded(age),
            FoldWhen::EndOfInit => self.peak.is_still(age) && age >= self.next && is_affordable,
            FoldWhen::Every(_) => age >= self.next && is_affordable,
        }
    }

    /// Records that a pass at this age came to nothing, as where the process did not answer. It is tried again after a
    /// pause, which doubles.
    pub fn record_failure(&mut self, age: Duration) {
        self.next = age + self.pause;
        self.pause = (self.pause * 2).min(LATE);
    }

    /// Records a pass that ended at this age, with the bytes that it freed and looked at, and its CPU time.
    pub fn record_pass(&mut self, age: Duration, freed_bytes: u64, looked_bytes: u64, cpu: Duration) {
        if self.first_pass.is_some() {
            self.spent = self.spent.saturating_add(cpu);
        } else {
            self.first_pass = Some(age);
        }
        self.pause = if freed_bytes < looked_bytes / WORTH { (self.pause * 2).min(LATE) } else { SOON };
        self.next = age + if let FoldWhen::Every(period) = self.when { period } else { self.pause };
        self.peak.subtract_freed(freed_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const EVERY_5_S: FoldWhen = FoldWhen::Every(Duration::from_secs(5));

    /// The seconds at which a process with that memory is folded, where each pass frees so many bytes of 100 MiB for so
    /// much CPU.
    fn passes(when: FoldWhen, memory: impl Fn(f64) -> u64, freed: u64, cpu_ms: u64) -> Vec<f64> {
        let mut schedule = FoldSchedule::new(when, 0.02);
        let ages = (1..=4000).map(|tick| Duration::from_millis(250) * tick);
        let due = ages.filter(|age| {
            let is_due = schedule.is_due(*age, memory(age.as_secs_f64()));
            if is_due {
                schedule.record_pass(*age, freed, 100 * MIB, Duration::from_millis(cpu_ms));
            }
            is_due
        });
        due.map(|age| age.as_secs_f64()).collect()
    }

    #[test]
    fn settings_are_read_as_they_are_written() {
        for (text, when) in
            [("end-of-init", FoldWhen::EndOfInit), ("on-demand", FoldWhen::OnDemand), ("every=5s", EVERY_5_S)]
        {
            assert_eq!(text.parse(), Ok(when));
            assert_eq!(when.to_string(), text);
        }
        assert_eq!("every=5".parse(), Ok(EVERY_5_S));
        for bad in ["", "every=0", "every=-1", "every=", "30", "often", "every=1000001"] {
            assert_eq!(bad.parse::<FoldWhen>(), Err(UnknownFoldWhen), "{bad}");
        }
    }

    #[test]
    fn the_first_pass_is_when_memory_has_stopped_growing() {
        let growing = |until: f64| move |second: f64| (second.min(until) * 100.0) as u64 * MIB;
        let first = |until| passes(FoldWhen::EndOfInit, growing(until), 50 * MIB, 1)[0];
        assert!((45.0..=46.5).contains(&first(40.0)), "{}", first(40.0));
        assert!((2.25..=2.5).contains(&first(2.0)), "a short start: {}", first(2.0));
        assert_eq!(passes(FoldWhen::EndOfInit, |_| 100 * MIB, 0, 0)[0], 0.5);
        assert_eq!(passes(FoldWhen::EndOfInit, growing(1e9), 50 * MIB, 0)[0], 120.0, "it grows for ever");
    }

    #[test]
    fn zeros_are_folded_before_the_start_has_ended_for_ksmd() {
        for until in [0.0_f64, 2.0, 17.0, 60.0] {
            let memory = |second: f64| (second.min(until).max(0.1) * 100.0) as u64 * MIB;
            let mut start = crate::job::StartDetector::default();
            let ages = (1..=4000).map(|tick| Duration::from_millis(250) * tick);
            let mut ends = ages.filter(|age| start.record_rss(*age, memory(age.as_secs_f64())));
            let over = ends.next().unwrap().as_secs_f64();
            let folded = passes(FoldWhen::EndOfInit, memory, 50 * MIB, 1)[0];
            assert!(folded < over, "growth of {until} s: folded at {folded}, over at {over}");
        }
    }

    #[test]
    fn passes_that_free_little_become_rare() {
        let at = passes(FoldWhen::EndOfInit, |_| 100 * MIB, 0, 0);
        let gaps: Vec<f64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(&gaps[..5], [20.0, 40.0, 80.0, 160.0, 320.0], "{gaps:?}");
    }

    #[test]
    fn passes_after_the_first_stay_within_the_budget() {
        // A second of CPU each: fifty seconds of 2 %.
        let at = passes(EVERY_5_S, |_| 100 * MIB, 50 * MIB, 1000);
        assert_eq!(&at[..4], [5.0, 10.0, 55.0, 105.0]);
        let cheap = passes(EVERY_5_S, |_| 100 * MIB, 50 * MIB, 1);
        assert!(cheap.windows(2).all(|pair| pair[1] - pair[0] == 5.0));
    }

    #[test]
    fn growth_ends_a_long_pause() {
        let memory = |second: f64| if second < 500.0 { 100 * MIB } else { 300 * MIB };
        let at = passes(FoldWhen::EndOfInit, memory, 0, 0);
        assert!(at.iter().any(|at| (500.0..=700.0).contains(at)), "{at:?}");
    }

    #[test]
    fn memory_that_swings_without_a_new_peak_has_stopped_growing() {
        let swinging = |second: f64| if second.fract() < 0.5 { 400 * MIB } else { 100 * MIB };
        assert!(passes(FoldWhen::EndOfInit, swinging, 0, 0)[0] < 2.0);
    }

    #[test]
    fn a_pass_that_came_to_nothing_is_tried_again_later_and_later() {
        let mut schedule = FoldSchedule::new(FoldWhen::EndOfInit, 0.02);
        let ages = (1..=400).map(|tick| Duration::from_millis(250) * tick);
        let tried: Vec<f64> = ages
            .filter(|age| {
                let is_due = schedule.is_due(*age, 100 * MIB);
                if is_due {
                    schedule.record_failure(*age);
                }
                is_due
            })
            .map(|age| age.as_secs_f64())
            .collect();
        assert_eq!(tried, [0.5, 10.5, 30.5, 70.5]);
    }

    #[test]
    fn on_demand_nothing_happens_by_itself() {
        assert!(passes(FoldWhen::OnDemand, |_| 100 * MIB, 0, 0).is_empty());
    }
}
