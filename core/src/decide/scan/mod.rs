//! `scan`: carries out one job, and then parks ksmd. `ksmith scan` and the lab's reference use it.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::Deserialize;

use super::{DecisionReason, Made, Policy, PolicyDecision, PolicySettings, PolicyView, ReadFile, ground};
use crate::knobs::{Knob, KnobSettings};
use crate::scan::{self, KsmScanner, KsmdState, ScanJob, ScanProgress, ScanStatus};

/// The time to the next decision once the job has ended.
const ENDED: Duration = Duration::from_secs(1);

/// Huge pages that a pass has to split for another to follow. With `use_zero_pages` off zeros alone split one in a pass.
const FEWEST_SPLITS: u64 = 8;

/// The table `[policy.scan]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScanConfig {
    /// Visits to each page. If absent, ksmd scans without end.
    pub passes: Option<NonZeroU64>,
}

impl PolicySettings for ScanConfig {
    const HELP: &'static str = "Visit every page a set number of times, or without end";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("reference", "")];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(OnDemandPolicy::new(
            self.passes.map_or(ScanJob::endless(), |passes| ScanJob::all_pages(passes.get())),
        )))
    }
}

/// Carries out one scan, and then parks ksmd.
///
/// Two passes over all pages merge all pages that are equal and stable, since an unmerged page merges on the second
/// visit that finds it unchanged. A pass that splits huge pages is followed by one more: a zero page that its own split
/// frees leaves a node in the unstable tree at which searches end (`get_mergeable_page` in mm/ksm.c), so that equal pages
/// miss each other.
#[derive(Debug, Clone)]
pub struct OnDemandPolicy {
    job: ScanJob,
    scanner: KsmScanner,
    scan: Option<ScanProgress>,
    ended: Option<ScanStatus>,
    /// Split huge pages for which another pass was made.
    splits_finished: u64,
}

impl OnDemandPolicy {
    /// The state of its reason once the passes are made.
    pub const DONE: &str = "done";

    /// The state of its reason when ksmd makes no progress.
    pub const STALLED: &str = "stalled";

    /// Creates the policy for one job.
    pub fn new(job: ScanJob) -> Self {
        Self { job, scanner: KsmScanner::default(), scan: None, ended: None, splits_finished: 0 }
    }
}

impl Policy for OnDemandPolicy {
    fn name(&self) -> &'static str {
        "scan"
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let ksmd = KsmdState::from_sample(view.now, view.history, view.limits);
        let mut scan = self.scan.unwrap_or_else(|| self.scanner.start(self.job, &ksmd));
        let mut report = scan.observe(&ksmd);
        let is_new = report.split_huge_pages >= self.splits_finished + FEWEST_SPLITS;
        if report.status == ScanStatus::Done && self.ended.is_none() && is_new && self.job.extra_passes > 0 {
            self.job.extra_passes -= 1;
            self.splits_finished = report.split_huge_pages;
            scan.extend(ScanJob { passes: 1, ..self.job }, &ksmd);
            report.status = ScanStatus::Running;
        }
        self.scan = Some(scan);
        if matches!(report.status, ScanStatus::Done | ScanStatus::Stalled) && !self.job.is_endless() {
            self.ended.get_or_insert(report.status);
        }
        let reason = match self.ended {
            Some(ScanStatus::Stalled) => {
                DecisionReason::new(Self::STALLED, "ksmd makes no progress: does any process offer memory?")
            }
            Some(_) => DecisionReason::from_sentences(Self::DONE, ground::so_far(&report.outcome)),
            None => {
                let settings = self.scanner.settings(&scan, &ksmd);
                let reason = DecisionReason::from_sentences("scan", ground::so_far(&report.outcome));
                let scan::ScanSettings { knobs, check_after, rest_after, .. } = settings;
                // Else zeros on huge pages stay, but for those of one huge page in each pass.
                let knobs =
                    if view.now.ksm.counts_zero_pages() { knobs.with(Knob::UseZeroPages, 1) } else { knobs };
                return PolicyDecision { knobs, reason, check_after, rest_after };
            }
        };
        PolicyDecision::new(KnobSettings::none().with(Knob::Run, 0), reason, ENDED)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::PolicyTestHost;
    use super::*;
    use crate::kernel::Vmstat;
    use crate::reading::Reading;

    #[test]
    fn a_scan_of_nothing_ends() {
        for mut host in [PolicyTestHost::linux_6_18(), PolicyTestHost::linux_6_1()] {
            let mut policy = OnDemandPolicy::new(ScanJob::all_pages(2));
            assert_eq!(host.decide(&mut policy).knobs.get(Knob::Run), Some(1));
            assert_eq!(host.after(4).decide(&mut policy).reason.state, "scan");
            let decision = host.after(4).decide(&mut policy);
            assert_eq!((decision.reason.state, decision.knobs.get(Knob::Run)), (OnDemandPolicy::STALLED, Some(0)));
            host.pass(1, 10);
            assert_eq!(host.decide(&mut policy).reason.state, OnDemandPolicy::STALLED, "ended is ended");
        }
    }

    /// Each pass of a scan for users is paid for, and users split huge pages at will.
    #[test]
    fn passes_are_added_for_splits_as_often_as_the_job_allows() {
        for (extra_passes, passes) in [(0, 2), (2, 4)] {
            let mut host = PolicyTestHost::linux_6_18();
            host.vm(1, 1 << 20);
            let mut policy = OnDemandPolicy::new(ScanJob { extra_passes, ..ScanJob::all_pages(2) });
            let before = host.sample.ksm.full_scans.get().unwrap();
            for pass in 1..20 {
                if host.decide(&mut policy).reason.state == OnDemandPolicy::DONE {
                    break;
                }
                host.pass(1, 0);
                let vmstat = Vmstat { thp_split_page: Some(100 * pass), ..Vmstat::default() };
                host.sample.host.vmstat = Reading::Value(vmstat);
            }
            let made = host.sample.ksm.full_scans.get().unwrap() - before;
            assert!(
                (passes..=passes + 1 + extra_passes).contains(&made),
                "{made} passes with {extra_passes} extra"
            );
        }
    }

    #[test]
    fn zeros_that_splits_free_are_saved_by_the_scan() {
        let mut host = PolicyTestHost::linux_6_18();
        host.vm(1, 1 << 20).sample.folded_bytes = Some(7 << 20);
        let mut policy = OnDemandPolicy::new(ScanJob::all_pages(2));
        host.decide(&mut policy);
        host.pass(1, 0).sample.folded_bytes = Some(71 << 20);
        let reason = host.decide(&mut policy).reason;
        assert!(format!("{reason:?}").contains("64.0 MiB"), "{reason:?}");
    }

    #[test]
    fn zeros_merge_with_the_zero_page_where_the_kernel_counts_them() {
        let knob = |mut host: PolicyTestHost| {
            host.decide(&mut OnDemandPolicy::new(ScanJob::endless())).knobs.get(Knob::UseZeroPages)
        };
        assert_eq!([PolicyTestHost::linux_6_18(), PolicyTestHost::linux_6_1()].map(knob), [Some(1), None]);
    }

    #[test]
    fn a_scan_without_end_waits_for_memory() {
        let mut host = PolicyTestHost::linux_6_18();
        let mut policy = ScanConfig::default().policy(&|_| Err(std::io::ErrorKind::NotFound.into())).unwrap();
        for _ in 0..5 {
            let decision = host.after(4).decide(policy.as_mut());
            assert_eq!((decision.reason.state, decision.knobs.get(Knob::Run)), ("scan", Some(1)));
            assert_eq!(decision.knobs.get(Knob::SleepMillisecs), Some(0), "it has a whole CPU");
        }
        for _ in 0..5 {
            assert_eq!(host.pass(4, 100).decide(policy.as_mut()).reason.state, "scan");
        }
    }

    #[test]
    fn a_slow_scan_goes_on() {
        let mut host = PolicyTestHost::linux_6_18();
        let mut policy = OnDemandPolicy::new(ScanJob::all_pages(2));
        for visited in 1..20 {
            host.sample.ksm.pages_scanned = Reading::Value(visited);
            assert_eq!(host.after(4).decide(&mut policy).reason.state, "scan");
        }
        // The operator lets ksmd sleep for ten seconds between batches.
        host.limits.min_sleep_milliseconds = 10_000;
        assert_eq!(host.after(1).decide(&mut policy).reason.state, "scan");
        assert_eq!(host.after(15).decide(&mut policy).reason.state, "scan");
        assert_eq!(host.after(15).decide(&mut policy).reason.state, OnDemandPolicy::STALLED);

        let mut host = PolicyTestHost::linux_6_1();
        let mut policy = OnDemandPolicy::new(ScanJob::all_pages(2));
        for _ in 0..20 {
            assert_eq!(host.after(4).ksmd_cpu_ms(1).decide(&mut policy).reason.state, "scan");
        }
    }
}
