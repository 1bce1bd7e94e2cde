//! KSM's own state, as far as it decides what merges.

use ksmith_core::diagnose::process::HostState;
use ksmith_core::kernel::RunState;
use ksmith_core::lease::is_leased;

use crate::ksm_counts::ksm_as_counted;
use crate::root::Root;

/// Reads KSM's state. A file that this kernel lacks counts with a neutral value.
pub fn host_state(root: &Root) -> HostState {
    let ksm = ksm_as_counted(root);
    let pages = ksm.pages_to_scan.get().unwrap_or(0);
    let batches = ksm.tracked_pages().checked_div(pages).unwrap_or(0);
    HostState {
        is_scanning: ksm.run_state() == Some(RunState::Running) && pages > 0,
        smart_scan: ksm.smart_scan.get() == Some(1),
        use_zero_pages: ksm.use_zero_pages.get() == Some(1),
        max_page_sharing: ksm.max_page_sharing.get().unwrap_or(256),
        full_scans: ksm.full_scans.get().unwrap_or(0),
        pages_skipped: ksm.pages_skipped.get().unwrap_or(0),
        // Under a lease ksmd sleeps as long as ksmith lets it.
        pass_milliseconds: batches
            .saturating_mul(ksm.sleep_millisecs.get().filter(|ms| !is_leased(*ms)).unwrap_or(0)),
    }
}

/// Returns the seconds since boot, suspended time included; `None` for a captured tree.
pub fn uptime(root: &Root) -> Option<f64> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    root.is_host().then_some(now.tv_sec as f64)
}
