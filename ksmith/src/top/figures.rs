//! The figures of the host at one moment, in the present or in the past.

use ksmith_core::account::HostTotals;
use ksmith_core::kernel::Meminfo;
use ksmith_core::model::StatusReport;

/// The figures that the header and the charts show. `None` where they are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct HeaderFigures {
    /// The host's memory.
    pub total_bytes: Option<u64>,
    /// Memory that can't be obtained for something else.
    pub used_bytes: Option<u64>,
    /// Memory that merging and folding save.
    pub saved_bytes: Option<u64>,
    /// Saved memory less KSM's metadata.
    pub profit_bytes: Option<i64>,
    /// Memory that the host would need if all that is saved were written to.
    pub exposure_bytes: Option<u64>,
    /// Memory that the host has for that, free swap included.
    pub headroom_bytes: Option<u64>,
    /// Per cent of a CPU that ksmd uses.
    pub ksmd_percent: Option<f64>,
    /// Per cent of the time in which a process waited for memory.
    pub pressure_percent: Option<f64>,
}

impl HeaderFigures {
    /// Derives the figures from the newest status.
    pub fn from_status(status: &StatusReport) -> Self {
        let totals = HostTotals::from_sample(&status.sample);
        let memory: Option<&Meminfo> = status.sample.host.memory.value();
        let total_bytes = memory.and_then(|memory| memory.total);
        let obtainable = memory.and_then(Meminfo::obtainable);
        let pressure = status.sample.host.memory_pressure.value();
        let known = !totals.is_unknown;
        Self {
            total_bytes,
            used_bytes: total_bytes.zip(obtainable).map(|(total, obtainable)| total.saturating_sub(obtainable)),
            saved_bytes: known.then_some(totals.saved_bytes),
            profit_bytes: known.then_some(totals.profit_bytes),
            exposure_bytes: known.then_some(totals.exposure_bytes),
            headroom_bytes: totals.headroom_bytes,
            ksmd_percent: status.ksmd_cpu_percent,
            pressure_percent: pressure.and_then(|psi| psi.some.avg10).map(f64::from),
        }
    }

    /// Returns the exposure as a part of the headroom; above 1 it is more than the host has.
    pub fn exposed_part(&self) -> Option<f64> {
        let (exposure, headroom) = (self.exposure_bytes?, self.headroom_bytes?);
        Some(exposure as f64 / (headroom as f64).max(1.0))
    }
}
