//! `score`: Tagami and Shiba, "Dynamic control of KSM for efficient memory deduplication" (Ryukoku University, 2024).
//!
//! `pages_to_scan` is a score, the sum of three, at most 3000; under 1000 it becomes 0, so that no scan is slow and
//! useless. VMCountScore makes ksmd work when a VM starts. PagesSharingScore keeps it working while passes merge pages.
//! KSMIdleTimeScore makes it try again after a while, the later the more often that saved nothing. What the paper
//! leaves open is a key of [`ScoreConfig`] with a default and its reason.
//!
//! As in the paper ksmd is stopped by `pages_to_scan` = 0 and not by `run` = 0: it still wakes every
//! `sleep_millisecs`, finds nothing to do and sleeps again. With `sleep_millisecs` = 0 that would be a whole CPU,
//! so at least 1 ms is written.

mod config;

use std::time::Duration;

pub use config::ScoreConfig;

use super::{DecisionReason, Policy, PolicyDecision, PolicyView, ground};
use crate::kernel::Ksm;
use crate::knobs::{Knob, KnobSettings};
use crate::sample::{ProcessId, ProcessSample, Sample};
use crate::units::{NewSavings, TimeSpan};

/// The most that `pages_to_scan` becomes, and with it each of the three scores. From the paper.
const FULL: u64 = 3000;

/// A score under this becomes 0. From the paper.
const THRESHOLD: u64 = 1000;

/// The three scores, each from 0 to [`FULL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ScoreParts {
    vm_count: u64,
    pages_sharing: u64,
    idle_time: u64,
}

impl ScoreParts {
    fn pages_to_scan(self) -> u64 {
        let sum = self.vm_count + self.pages_sharing + self.idle_time;
        if sum < THRESHOLD { 0 } else { sum.min(FULL) }
    }
}

/// `full_scans` and the pages that were saved when it last moved.
#[derive(Debug, Clone, Copy)]
struct FullScanMark {
    full_scans: u64,
    saved: u64,
}

/// The state of ksmd, from which KSMIdleTimeScore is computed.
#[derive(Debug, Clone, Copy, Default)]
enum ScanSpeed {
    /// Before the first decision.
    #[default]
    Unset,
    /// `pages_to_scan` is 0 since then.
    Stopped(Duration),
    /// ksmd scans, with what is left of the KSMIdleTimeScore that started it, for so many passes.
    Scanning { idle_time: u64, passes_left: u64 },
}

/// The policy; see the module's documentation.
#[derive(Debug, Clone)]
pub struct ScorePolicy {
    config: ScoreConfig,
    /// Everything that could be merged at the last look.
    known: Vec<ProcessId>,
    /// Passes that have ended since a VM started. `None` before the first.
    passes_since_start: Option<u64>,
    mark: Option<FullScanMark>,
    /// Pages that the last pass newly saved; negative when more diverged than merged.
    gained: i64,
    speed: ScanSpeed,
    /// The number of times that the speed became 0 since a VM started.
    stops: u64,
}

impl ScorePolicy {
    /// Creates the policy with these constants.
    pub fn new(config: ScoreConfig) -> Self {
        Self {
            config,
            known: Vec::new(),
            passes_since_start: None,
            mark: None,
            gained: 0,
            speed: ScanSpeed::Unset,
            stops: 0,
        }
    }

    /// Records the passes that have ended, and returns their number.
    fn see_passes(&mut self, ksm: &Ksm) -> u64 {
        let Some(full_scans) = ksm.full_scans.get() else { return 0 };
        let here = FullScanMark { full_scans, saved: ksm.saved_pages() };
        let mark = *self.mark.get_or_insert(here);
        let passes = full_scans.saturating_sub(mark.full_scans);
        if passes > 0 {
            let gained = i128::from(here.saved) - i128::from(mark.saved);
            self.gained = (gained / i128::from(passes)).clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        } else if full_scans < mark.full_scans {
            // Everything was unmerged: what the passes before gained is gone.
            self.gained = 0;
        }
        if full_scans != mark.full_scans {
            self.mark = Some(here);
        }
        passes
    }

    /// Counts the VMs that started. A process that was there before is none of them, even if it counts only now.
    fn see_vms(&mut self, sample: &Sample, passes: u64) -> usize {
        let vms = vms(sample);
        let started = vms.iter().any(|vm| self.known.binary_search(&vm.id).is_err());
        self.known = sample.processes.iter().map(|process| process.id).collect();
        self.known.sort_unstable();
        if started {
            self.passes_since_start = Some(0);
            self.stops = 0;
        } else if let Some(so_far) = &mut self.passes_since_start {
            *so_far = so_far.saturating_add(passes);
        }
        vms.len()
    }

    fn vm_count_score(&self) -> u64 {
        let Some(passes) = self.passes_since_start else { return 0 };
        let late = passes.saturating_add(1).saturating_sub(u64::from(self.config.vm_count_passes));
        u64::from(self.config.vm_count_full)
            .saturating_sub(late.saturating_mul(self.config.vm_count_decay_per_pass.into()))
            .min(FULL)
    }

    fn pages_sharing_score(&self) -> u64 {
        let gained = u64::try_from(self.gained).unwrap_or(0);
        (gained / u64::from(self.config.sharing_pages_per_point.get())).min(FULL)
    }

    fn idle_time_score(&self, now: Duration) -> u64 {
        match self.speed {
            ScanSpeed::Unset => 0,
            ScanSpeed::Scanning { idle_time, .. } => idle_time,
            ScanSpeed::Stopped(since) => {
                let points = now.saturating_sub(since).as_millis() * u128::from(self.config.idle_growth_per_second);
                let slowed =
                    100 + u128::from(self.config.idle_slowdown_percent) * u128::from(self.stops.max(1) - 1);
                u64::try_from(points / 10 / slowed).unwrap_or(FULL).min(FULL)
            }
        }
    }

    /// Keeps the score that started ksmd until it has had its passes to show for it.
    fn spend_idle_time(&mut self, passes: u64) {
        if let ScanSpeed::Scanning { idle_time, passes_left } = &mut self.speed {
            *passes_left = passes_left.saturating_sub(passes);
            if *passes_left == 0 {
                *idle_time = 0;
            }
        }
    }

    fn change_speed(&mut self, pages: u64, scores: ScoreParts, now: Duration) {
        self.speed = match self.speed {
            ScanSpeed::Unset | ScanSpeed::Scanning { .. } if pages == 0 => {
                self.stops = self.stops.saturating_add(1);
                ScanSpeed::Stopped(now)
            }
            ScanSpeed::Unset | ScanSpeed::Stopped(_) if pages > 0 => ScanSpeed::Scanning {
                idle_time: scores.idle_time,
                passes_left: self.config.idle_passes.get().into(),
            },
            unchanged => unchanged,
        };
    }

    fn knobs(&self, pages: u64, ksm: &Ksm) -> KnobSettings {
        let mut knobs = KnobSettings::none()
            .with(Knob::PagesToScan, pages)
            .with(Knob::SleepMillisecs, self.config.sleep_millisecs.get().into())
            .with(Knob::Run, 1);
        if !self.config.smart_scan {
            knobs.set(Knob::SmartScan, 0);
        }
        ground::take_over(knobs, ksm)
    }

    fn reason(&self, scores: ScoreParts, vms: usize, view: &PolicyView<'_>) -> DecisionReason {
        let ScoreParts { vm_count, pages_sharing, idle_time } = scores;
        let pages = scores.pages_to_scan();
        let sum = vm_count + pages_sharing + idle_time;
        let page_size = i64::try_from(view.now.page_size).unwrap_or(i64::MAX);
        let gained = NewSavings(self.gained.saturating_mul(page_size));
        let runs = if vms == 1 { "runs" } else { "run" };
        let figures = format!(
            "score {sum} = VMs {vm_count} ({vms} {runs}) + sharing {pages_sharing} (last pass: {gained}) \
             + idle {idle_time}"
        );
        match self.speed {
            ScanSpeed::Stopped(since) => {
                let idle = TimeSpan(view.now.at.saturating_sub(since));
                DecisionReason::new("stopped", format!("little to gain: ksmd stands for {idle}"))
                    .with_detail(format!("{figures}, under {THRESHOLD}; stop {}", self.stops))
            }
            _ => DecisionReason::new("scanning", format!("{pages} pages a batch")).with_detail(figures),
        }
    }
}

impl Policy for ScorePolicy {
    fn name(&self) -> &'static str {
        "score"
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let check_after = Duration::from_secs(self.config.interval_seconds.get().into());
        let ksm = &view.now.ksm;
        if let Some(reason) = blind(ksm) {
            return PolicyDecision::new(KnobSettings::none(), reason, check_after);
        }
        let passes = self.see_passes(ksm);
        let vms = self.see_vms(view.now, passes);
        if vms == 0 && !view.now.has_unknown_figures() {
            self.speed = ScanSpeed::Unset;
            let reason = DecisionReason::new("stopped", "nothing runs that could be merged");
            return PolicyDecision::new(self.knobs(0, ksm), reason, check_after);
        }
        self.spend_idle_time(passes);
        let scores = ScoreParts {
            vm_count: self.vm_count_score(),
            pages_sharing: self.pages_sharing_score(),
            idle_time: self.idle_time_score(view.now.at),
        };
        let pages = scores.pages_to_scan();
        self.change_speed(pages, scores, view.now.at);
        PolicyDecision::new(self.knobs(pages, ksm), self.reason(scores, vms, view), check_after)
    }
}

/// Returns the reason why the scores can't be computed; `None` if they can.
fn blind(ksm: &Ksm) -> Option<DecisionReason> {
    for (name, reading) in [("full_scans", &ksm.full_scans), ("pages_sharing", &ksm.pages_sharing)] {
        if reading.get().is_none() {
            return Some(DecisionReason::new(
                "blind",
                format!("needs {name}, its reading is {reading}; nothing is changed"),
            ));
        }
    }
    None
}

/// The VMs, or on a host without any (a lab, a cluster) whatever has mergeable memory.
fn vms(sample: &Sample) -> Vec<&ProcessSample> {
    let vms: Vec<_> = sample.processes.iter().filter(|process| process.is_vm).collect();
    if vms.is_empty() { sample.processes.iter().collect() } else { vms }
}

#[cfg(test)]
mod tests;
