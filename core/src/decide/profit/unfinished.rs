//! Memory that a scan may have left: not visited as often as it takes to merge, and without a sign that would start a
//! scan.

use super::constants::FEW_PAGES;
use super::growth::GrowthModel;
use super::guests::GuestChanges;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::state::RunningScan;
use crate::scan::ScanReport;

/// The memory that scans are known to have left.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnfinishedMemory {
    /// True if there may be memory that was not visited twice.
    may_be_left: bool,
    /// New memory in bytes for which old memory was skipped: equal pages of both have not met.
    unmet_bytes: u64,
}

impl UnfinishedMemory {
    /// Returns true if there is memory that was not visited as often as it takes to merge.
    pub fn has_new(&self, changes: GuestChanges) -> bool {
        self.may_be_left || changes.grown_bytes > 0 || self.unmet_bytes > 0
    }

    /// New memory in bytes for which old memory was skipped.
    pub fn unmet_bytes(&self) -> u64 {
        self.unmet_bytes
    }

    /// Records that a scan was given up: another program may have kept ksmd from it.
    pub fn note_stalled(&mut self) {
        self.may_be_left = true;
    }

    /// Records what a scan that has ended may have left.
    pub fn note_end(
        &mut self,
        running: &RunningScan,
        report: &ScanReport,
        changes: GuestChanges,
        now: &HostSituation,
    ) {
        let (reason, job) = (running.reason, running.scan.job());
        let (is_burst, is_clean) = (reason == ScanReason::Burst, job.coverage.is_clean());
        if job.passes > 1 {
            self.unmet_bytes = if is_clean { 0 } else { self.unmet_bytes.saturating_add(running.new_bytes) };
            // Growth by a few pages may not show in RSS.
            self.may_be_left = is_burst && changes.has_faulted;
        }
        if reason == ScanReason::Finish {
            self.unmet_bytes = 0;
        }
        // Two unmerged pages, one behind the place where the scan began and one before it, were not visited in one pass.
        let may_part_pairs = reason == ScanReason::Revisit && report.ends_midway;
        // Pages that change while they are in the unstable tree put it out of order, so that equal pages miss each
        // other. How many is not known. Without page samples probes look after them.
        self.may_be_left |= is_burst && leaves_some(running, report, now) || may_part_pairs || report.is_cut_short;
    }
}

/// Returns true if a burst has likely missed pages that new guests share with others.
///
/// Pages that change while they are in the unstable tree put it out of order, and equal pages miss each other: above
/// all where a guest is the second of its kind, since merged pages are looked up in another tree. If less than half of
/// the new memory merged beside about as much old memory, one more pass costs no more than the burst did. It is made,
/// and made again if it paid. Pages that change until then are not put into the tree.
pub fn may_have_missed(
    running: &RunningScan,
    report: &ScanReport,
    growth: &GrowthModel,
    changes: GuestChanges,
    now: &HostSituation,
) -> bool {
    match running.reason {
        _ if !leaves_some(running, report, now) => false,
        ScanReason::Burst if growth.is_for_new_guests(changes) => {
            let new_bytes = running.new_bytes.saturating_add(changes.grown_bytes);
            let old_bytes = now.held_bytes.saturating_sub(new_bytes);
            let is_about_as_much = old_bytes >= new_bytes / 2 && old_bytes / 3 <= new_bytes / 2;
            let saved_bytes = u64::try_from(report.outcome.saved_bytes).unwrap_or(0);
            is_about_as_much && saved_bytes < new_bytes / 2
        }
        ScanReason::Finish | ScanReason::Retry => report.outcome.yield_per_cpu_second() >= now.price,
        _ => false,
    }
}

/// Returns true if a clean scan has left more than a few pages in no tree, since they were changing.
fn leaves_some(running: &RunningScan, report: &ScanReport, now: &HostSituation) -> bool {
    running.scan.job().coverage.is_clean() && now.has_page_samples() && report.left_pages > FEW_PAGES
}
