//! Causes that keep ksmd from scanning, or make its scans slow.

use std::time::Duration;

use super::{DaemonPresence, Finding, HostCircumstances, Severity, finding};
use crate::account::HostTotals;
use crate::field::KernelVersion;
use crate::kernel::RunState;
use crate::lease;
use crate::sample::{ProcessSample, Sample};
use crate::units::{Bytes, TimeSpan};

pub(super) fn run_state(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    match (sample.ksm.run_state()?, circumstances.daemon) {
        (RunState::Running, _) | (_, DaemonPresence::Present) => None,
        (_, DaemonPresence::Hidden) => Some(finding(
            "perhaps-parked",
            Severity::Note,
            "ksmd does not scan now, and this user can't see whether a ksmith daemon has parked it",
            "run it as root: `sudo ksmith doctor`",
        )),
        (RunState::Stopped, DaemonPresence::Absent) => Some(finding(
            "switched-off",
            Severity::Problem,
            format!(
                "KSM is switched off (run=0): ksmd does not scan; {} stays merged",
                Bytes::from(HostTotals::from_sample(sample).saved_bytes)
            ),
            "`ksmith daemon` to let ksmith decide, `ksmith scan` for one scan, `ksmith enable` to switch it on",
        )),
        (RunState::Unmerged, DaemonPresence::Absent) => Some(finding(
            "unmerged",
            Severity::Problem,
            "KSM is switched off and everything was unmerged (run=2)",
            "`ksmith daemon`, or `ksmith enable`",
        )),
    }
}

pub(super) fn nothing_mergeable(sample: &Sample) -> Option<Finding> {
    if sample.processes.iter().any(ProcessSample::may_merge) || sample.ksm.tracked_pages() > 0 {
        return None;
    }
    if sample.hidden_processes > 0 {
        return Some(finding(
            "nothing-seen",
            Severity::Note,
            format!(
                "no process that this user can see has mergeable memory; {} are hidden",
                sample.hidden_processes
            ),
            "run as root to see all",
        ));
    }
    let what = match sample.processes.len() {
        0 => "no process has mergeable memory, so there is nothing to merge".to_owned(),
        machines => format!("{machines} virtual machines run, and none of them offers its memory to KSM"),
    };
    Some(finding(
        "nothing-mergeable",
        Severity::Problem,
        what,
        "memory must be offered: QEMU does so by default (not with -machine mem-merge=off, share=on or hugepages), \
         systemd services by MemoryKSM=yes, any program by madvise(MADV_MERGEABLE) or prctl(PR_SET_MEMORY_MERGE)",
    ))
}

/// Checks the pace of ksmd at the present settings: paused, asleep, or slow. Only its sleep counts.
pub(super) fn pace(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let ksm = &sample.ksm;
    let (pages, sleep) = (ksm.pages_to_scan.get()?, ksm.sleep_millisecs.get()?);
    if circumstances.daemon != DaemonPresence::Absent || ksm.run_state() != Some(RunState::Running) {
        return None;
    }
    if pages == 0 {
        let what = if sleep == 0 {
            "pages_to_scan and sleep_millisecs are both 0: ksmd looks at nothing and takes a whole CPU for it"
        } else {
            "pages_to_scan is 0: ksmd wakes up and looks at nothing"
        };
        return Some(finding(
            "paused",
            Severity::Problem,
            what,
            "`ksmith set pages_to_scan=1000`, or `ksmith daemon`",
        ));
    }
    if lease::is_leased(sleep) {
        return Some(finding(
            "asleep",
            Severity::Problem,
            format!(
                "ksmd sleeps for a day after each batch (sleep_millisecs is {sleep}), as under a lease of ksmith"
            ),
            "if `ksmith scan`, `run` or `demo` is at work here, it wakes ksmd; if not, one was killed: `ksmith restore`, or \
             `ksmith set sleep_millisecs=20`",
        ));
    }
    let mergeable: u64 = sample.processes.iter().map(ProcessSample::known_rss_bytes).sum();
    let tracked = ksm.tracked_pages().max(mergeable / sample.page_size.max(1));
    let batches = tracked.div_ceil(pages);
    let pass = Duration::from_millis(batches.saturating_mul(sleep));
    (pass > Duration::from_secs(300)).then(|| {
        finding(
            "slow",
            Severity::Warning,
            format!(
                "a pass over {} takes at least {} at {pages} pages every {sleep} ms, and a page merges on the second",
                Bytes::from(tracked.saturating_mul(sample.page_size)),
                TimeSpan(pass),
            ),
            "`ksmith daemon` spends ksmd's CPU where it pays; by hand, `ksmith set pages_to_scan=…`",
        )
    })
}

pub(super) fn smart_scan(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let ksm = &sample.ksm;
    let skipped = ksm.pages_skipped.get().unwrap_or(0);
    if ksm.smart_scan.get()? == 0 || skipped == 0 || ksm.run_state() != Some(RunState::Running) {
        return None;
    }
    Some(finding(
        "smart-scan",
        Severity::Warning,
        format!(
            "smart_scan skipped {skipped} pages so far: pages that did not merge early are visited ever more rarely, \
             and two equal ones that are never visited in one pass never merge"
        ),
        match circumstances.daemon {
            DaemonPresence::Present => "`ksmith scan` asks the daemon for passes that visit every page",
            _ => "`ksmith scan` makes passes that visit every page; `ksmith daemon` does so when it pays",
        },
    ))
}

/// Sparse mappings of terabytes kept ksmd busy for hours before the fix of November 2025, in Linux 6.18.
pub(super) fn sparse_giants(sample: &Sample, circumstances: &HostCircumstances) -> Option<Finding> {
    let kernel = circumstances.kernel.filter(|&kernel| kernel < KernelVersion::new(6, 18))?;
    let opted_in = sample.processes.iter().filter(|process| process.ksm.merge_any == Some(true)).count();
    (opted_in > 0).then(|| {
        finding(
            "sparse-giants",
            Severity::Note,
            format!("{opted_in} processes opted in as a whole, on Linux {kernel}: huge sparse mappings keep ksmd busy for hours"),
            "Linux 6.18 walks them fast",
        )
    })
}
