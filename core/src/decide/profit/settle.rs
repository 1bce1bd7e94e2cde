//! Judging a scan that has ended: what is learned from it, and what comes next.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::expected::Expected;
use super::guests::Changes;
use super::scan_reason::ScanReason;
use super::situation::Situation;
use super::{Profit, Running, text};
use crate::decide::Decision;
use crate::scan::Report;

/// The pause before a further scan: pages that were changing may become stable.
const SETTLE: Duration = Duration::from_secs(2);

/// The pause before a scan that needs none.
const SOON: Duration = Duration::from_millis(50);

impl Profit {
    /// Judges a scan that has ended, and parks, for a short while if a further scan is expected to pay.
    pub(super) fn settle(
        &mut self,
        running: &Running,
        report: &Report,
        changes: Changes,
        now: &Situation,
    ) -> Decision {
        self.scanner.finish(&running.scan);
        let (reason, outcome, job) = (running.reason, &report.outcome, running.scan.job());
        let was_sampled = reason == ScanReason::Probe && now.has_page_samples();
        let worth = if was_sampled { self.expected.worth_of_each() } else { 1.0 };
        let paid = outcome.yield_per_cpu_second() * worth >= now.price;
        // New contents do not merge on their first visit.
        let had_its_chance = job.passes > 1 || !now.has_page_samples();
        if (matches!(reason, ScanReason::Revisit | ScanReason::Sustain) || was_sampled) && had_its_chance {
            self.probability.learn_unknown(&self.expected, outcome, self.copied_pages, now);
        }
        // Where a scan ends midway pages were last sampled at the last end of a pass.
        if matches!(reason, ScanReason::Revisit | ScanReason::Probe)
            && !report.ends_midway
            && let Some(samples) = &now.page_samples
        {
            self.probability.learn_recurring(&self.expected, samples);
        }
        if job.coverage.is_clean() {
            self.copied_pages = now.copied_pages;
        }
        if job.coverage.is_clean() && (job.passes > 1 || reason == ScanReason::Meet) {
            self.arrivals.note_clean_end(&self.guests);
        }
        if reason == ScanReason::Meet {
            self.arrivals.learn(outcome);
        }
        let has_missed = self.may_have_missed(running, report, paid, changes, now);
        let awaited = self.note_unfinished(running, report, paid, changes, now);
        match reason {
            ScanReason::Burst => {
                self.backoff.learn(paid);
                self.interval = self.config.first_interval();
                self.probability.note_burst();
            }
            ScanReason::Probe if paid => self.interval = (self.interval / 2).max(self.config.first_interval()),
            ScanReason::Probe => {
                let saved_next_to_nothing = outcome.yield_per_cpu_second() < now.price / 8.0;
                let longer = self.interval.saturating_mul(if saved_next_to_nothing { 4 } else { 2 });
                self.interval = longer.min(self.config.longest_interval());
            }
            _ => {}
        }
        let figures = text::outcome(reason, outcome, now.price);
        if reason == ScanReason::Burst
            && !job.coverage.is_clean()
            && self.arrivals.clean_pass_pays(&self.guests, now)
        {
            return self.park(ScanReason::Meet, SOON, figures, now);
        }
        if reason == ScanReason::Burst
            && awaited > 0
            && !Arrivals::is_dear(now)
            && self.clean_burst_pays(awaited, now)
        {
            return self.park(ScanReason::Finish, SETTLE, figures, now);
        }
        if has_missed {
            return self.park(ScanReason::Retry, SETTLE, figures, now);
        }
        let cost = now.ksmd.clean_pass_seconds;
        if !now.has_page_samples() {
            self.expected = Expected::of_another_pass(now);
            let bytes = self.expected.bytes(&self.probability);
            if job.coverage.is_clean() && bytes >= (cost * now.price).max(now.ksmd.page_size as f64) {
                return self.park(ScanReason::Sustain, SETTLE, figures, now);
            }
        }
        // The average cost of probes is limited to their part of a CPU.
        let affordable = cost / (self.config.probe_cpu_percent / 100.0);
        let affordable = Duration::try_from_secs_f64(affordable).unwrap_or(Duration::MAX);
        self.interval = self.interval.max(affordable).min(self.config.longest_interval());
        self.park(ScanReason::Probe, self.interval, figures, now)
    }
}
