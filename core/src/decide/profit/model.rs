//! The beliefs of `profit`, and what an ended scan teaches.

use super::arrivals::ArrivalModel;
use super::beliefs::{MergeExperience, ScanBeliefs};
use super::constants::TRIALS_OF_SCAN;
use super::growth::GrowthModel;
use super::guests::{GuestChanges, GuestMarks};
use super::probability::MergeProbability;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::state::RunningScan;
use super::unfinished::UnfinishedMemory;
use crate::scan::ScanReport;

/// All that was learned.
#[derive(Debug, Clone)]
pub struct ProfitModel {
    pub guests: GuestMarks,
    /// The model of the growth that is worth a burst.
    pub growth: GrowthModel,
    pub arrivals: ArrivalModel,
    pub experience: MergeExperience,
    pub unfinished: UnfinishedMemory,
    /// The beliefs when the scan in progress was started.
    pub promised: ScanBeliefs,
    /// The probability that a probe pays.
    pub probes: MergeProbability,
    /// CPU-seconds of the most expensive clean pass since the last burst.
    pub dearest_pass: f64,
}

impl ProfitModel {
    /// Nothing was learned yet.
    pub fn new() -> Self {
        let experience = MergeExperience::new();
        Self {
            guests: GuestMarks::default(),
            growth: GrowthModel::default(),
            arrivals: ArrivalModel::default(),
            experience,
            unfinished: UnfinishedMemory::default(),
            promised: ScanBeliefs::none(&experience),
            probes: MergeProbability::expecting(1.0),
            dearest_pass: 0.0,
        }
    }

    /// Records the next sample, and returns the changes of the guests. `after_init`: as in [`super::ProfitConfig`].
    pub fn follow(&mut self, now: &HostSituation, after_init: bool) -> GuestChanges {
        self.guests.forget(&now.newly_offered);
        let changes = self.guests.follow(&now.processes, after_init, now.ksmd.at);
        self.arrivals.follow(changes, now);
        changes
    }

    /// Marks all memory as old, as when passes for the new begin.
    pub fn mark_visited(&mut self, now: &HostSituation) {
        self.guests.mark(&now.processes, now.ksmd.at);
        self.arrivals.note_start();
    }

    /// Records that a scan was given up, or not begun since it would not pay.
    pub fn note_stalled(&mut self, now: &HostSituation) {
        self.probes.learn(0.0, 1.0);
        self.unfinished.note_stalled();
        self.mark_visited(now);
    }

    /// Learns from a scan that has ended.
    pub fn learn(
        &mut self,
        running: &RunningScan,
        report: &ScanReport,
        changes: GuestChanges,
        now: &HostSituation,
    ) {
        let (reason, outcome) = (running.reason, &report.outcome);
        let worth = outcome.yield_per_cpu_second() / now.price;
        let was_sampled = reason == ScanReason::Probe && now.has_page_samples();
        // New contents do not merge on their first visit.
        let had_its_chance = running.scan.job().passes > 1 || !now.has_page_samples();
        if (matches!(reason, ScanReason::Revisit | ScanReason::Sustain) || was_sampled) && had_its_chance {
            self.experience.learn_unknown(&self.promised, outcome, now);
        }
        // Where a scan ends midway pages were last sampled at the last end of a pass.
        if matches!(reason, ScanReason::Revisit | ScanReason::Probe)
            && !report.ends_midway
            && let Some(samples) = &now.page_samples
        {
            self.experience.learn_recurring(&self.promised, samples);
        }
        self.unfinished.note_end(running, report, changes, now);
        match reason {
            ScanReason::Burst => {
                self.growth.learn(worth >= 1.0, TRIALS_OF_SCAN);
                self.probes = MergeProbability::expecting(1.0);
                self.dearest_pass = 0.0;
            }
            ScanReason::Probe => self.probes.learn(worth, TRIALS_OF_SCAN),
            ScanReason::Finish
            | ScanReason::Retry
            | ScanReason::Revisit
            | ScanReason::Sustain
            | ScanReason::Tidy => {}
        }
    }

    /// Records what a clean pass costs as ksmd is parked until a probe.
    pub fn note_pass_cost(&mut self, now: &HostSituation) {
        self.dearest_pass = self.dearest_pass.max(now.ksmd.clean_pass_seconds);
    }
}
