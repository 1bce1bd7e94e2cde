//! Judging a scan that has ended: what is learned from it, and what comes next.

use super::arrivals::ArrivalModel;
use super::beliefs::ScanBeliefs;
use super::constants::SOONEST_LOOK;
use super::guests::GuestChanges;
use super::probability::MergeProbability;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::{ProfitPolicy, RunningScan, text};
use crate::decide::PolicyDecision;
use crate::scan::ScanReport;

impl ProfitPolicy {
    /// Judges a scan that has ended, and parks, for a short while if a further scan is expected to pay.
    pub(super) fn settle(
        &mut self,
        running: &RunningScan,
        report: &ScanReport,
        changes: GuestChanges,
        now: &HostSituation,
    ) -> PolicyDecision {
        self.scanner.finish(&running.scan);
        let (reason, outcome, job) = (running.reason, &report.outcome, running.scan.job());
        let was_sampled = reason == ScanReason::Probe && now.has_page_samples();
        let worth_of_each = if was_sampled { self.promised.worth_of_each() } else { 1.0 };
        let worth = outcome.yield_per_cpu_second() * worth_of_each / now.price;
        let paid = worth >= 1.0;
        // New contents do not merge on their first visit.
        let had_its_chance = job.passes > 1 || !now.has_page_samples();
        if (matches!(reason, ScanReason::Revisit | ScanReason::Sustain) || was_sampled) && had_its_chance {
            self.experience.learn_unknown(&self.promised, outcome, self.copied_pages, now);
        }
        // Where a scan ends midway pages were last sampled at the last end of a pass.
        if matches!(reason, ScanReason::Revisit | ScanReason::Probe)
            && !report.ends_midway
            && let Some(samples) = &now.page_samples
        {
            self.experience.learn_recurring(&self.promised, samples);
        }
        if job.coverage.is_clean() {
            self.copied_pages = now.copied_pages;
        }
        if matches!(reason, ScanReason::Burst | ScanReason::Meet) {
            self.arrivals.estimate_unmet(&self.guests, now);
        }
        if reason == ScanReason::Meet {
            self.arrivals.learn(outcome);
        }
        if job.coverage.is_clean() && (job.passes > 1 || reason == ScanReason::Meet) {
            self.arrivals.note_clean_end(&self.guests);
        }
        let has_missed = self.may_have_missed(running, report, paid, changes, now);
        let awaited = self.note_unfinished(running, report, paid, changes, now);
        match reason {
            ScanReason::Burst => {
                self.growth.learn(paid, now.constants.trials_of_scan);
                self.probes = MergeProbability::expecting(1.0);
                self.dearest_pass = 0.0;
                // What was learned is doubted where another trial is paid for: bursts may come faster than such trials pay.
                if self.exploration.is_settled() {
                    self.experience.note_burst(now);
                }
            }
            // New memory is given its first trial whatever comes of it.
            ScanReason::Finish | ScanReason::Retry => {}
            ScanReason::Probe => {
                self.probes.learn(worth, now.constants.trials_of_scan);
                self.exploration.charge_scan(outcome, now.price);
            }
            _ => self.exploration.charge_scan(outcome, now.price),
        }
        let mut figures = text::outcome(reason, outcome, now.price);
        if reason == ScanReason::Burst
            && !job.coverage.is_clean()
            && let Some(unmet) = self.arrivals.in_words()
        {
            figures = format!("{figures}; {unmet}");
        }
        if reason == ScanReason::Burst && !job.coverage.is_clean() && self.meeting_pays(now) {
            return self.park(ScanReason::Meet, SOONEST_LOOK, figures, now);
        }
        if reason == ScanReason::Burst && !job.coverage.is_clean() && self.may_be_unmet(awaited, now) {
            return self.park(ScanReason::Meet, now.constants.settle(), figures, now);
        }
        if reason == ScanReason::Burst
            && awaited > 0
            && !ArrivalModel::skips_old(changes, now)
            && self.clean_burst_pays(awaited, now)
        {
            return self.park(ScanReason::Finish, now.constants.settle(), figures, now);
        }
        if has_missed {
            return self.park(ScanReason::Retry, now.constants.settle(), figures, now);
        }
        if !now.has_page_samples() {
            self.promised = ScanBeliefs::of_changing(now, &self.experience);
            let price = (now.ksmd.clean_pass_seconds * now.price).max(now.ksmd.page_size as f64);
            if job.coverage.is_clean() && self.at_best(self.promised.unknown) >= price {
                return self.park(ScanReason::Sustain, now.constants.settle(), figures, now);
            }
        }
        let wait = self.probe_interval(now);
        self.park(ScanReason::Probe, wait, figures, now)
    }
}
