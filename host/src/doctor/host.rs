//! KSM's own state, as far as it decides what merges.

use ksmith_core::diagnose::process::HostState;
use ksmith_core::kernel::number;
use ksmith_core::lease::is_leased;

use crate::root::Root;

/// Reads KSM's state. A file that this kernel lacks counts with a neutral value.
pub fn host_state(root: &Root) -> HostState {
    let value = |name: &str| root.text(format!("sys/kernel/mm/ksm/{name}")).and_then(|text| number(&text)).get();
    let pages = value("pages_to_scan").unwrap_or(0);
    let tracked: u64 = ["pages_shared", "pages_sharing", "pages_unshared", "pages_volatile"]
        .into_iter()
        .filter_map(value)
        .fold(0, u64::saturating_add);
    let batches = tracked.checked_div(pages).unwrap_or(0);
    HostState {
        is_scanning: value("run") == Some(1) && pages > 0,
        smart_scan: value("smart_scan") == Some(1),
        use_zero_pages: value("use_zero_pages") == Some(1),
        max_page_sharing: value("max_page_sharing").unwrap_or(256),
        full_scans: value("full_scans").unwrap_or(0),
        pages_skipped: value("pages_skipped").unwrap_or(0),
        // Under a lease ksmd sleeps as long as ksmith lets it.
        pass_milliseconds: batches
            .saturating_mul(value("sleep_millisecs").filter(|ms| !is_leased(*ms)).unwrap_or(0)),
    }
}

/// Returns the seconds since boot, suspended time included; `None` for a captured tree.
pub fn uptime(root: &Root) -> Option<f64> {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    root.is_host().then_some(now.tv_sec as f64)
}
