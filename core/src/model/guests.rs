//! The model of `ksmith guests`: all guests at one moment.

use serde::{Deserialize, Serialize};

use crate::account::HostTotals;
use crate::decide::domains::CrossDomainSharing;
use crate::guest::{Guest, MergeEfficiency};
use crate::sample::Sample;

use super::status::describe_hidden;

/// All guests at one moment, with the host's figures of the same moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestsReport {
    /// All guests of the host.
    pub guests: Vec<Guest>,
    /// Bytes saved in processes that hide their figures.
    pub unattributed_bytes: u64,
    /// The host's savings: what the guests' and the unattributed add up to.
    pub saved_bytes: u64,
    /// The host's profit.
    pub profit_bytes: i64,
    /// True if KSM's counters can't be read, so that the savings above say nothing.
    #[serde(default)]
    pub is_unknown: bool,
    /// The host's ratios.
    pub efficiency: MergeEfficiency,
    /// Merged pages of the host that writes broke since boot.
    pub cow_ksm: Option<u64>,
    /// The recent rate at which writes broke merged pages of the host, per second.
    pub cow_ksm_per_second: Option<f64>,
    /// The memory that domains share with each other now, where that was looked up.
    #[serde(default)]
    pub sharing: Option<CrossDomainSharing>,
    /// Faults, one sentence each.
    pub errors: Vec<String>,
}

impl GuestsReport {
    /// Makes a report of the guests of `sample`.
    pub fn new(sample: &Sample, guests: Vec<Guest>, unattributed_bytes: u64) -> Self {
        let totals = HostTotals::from_sample(sample);
        let hidden = sample.hidden_processes;
        let errors = (hidden > 0).then(|| describe_hidden(hidden));
        Self {
            guests,
            unattributed_bytes,
            saved_bytes: totals.saved_bytes,
            profit_bytes: totals.profit_bytes,
            is_unknown: totals.is_unknown,
            efficiency: MergeEfficiency::from_ksm(&sample.ksm),
            cow_ksm: sample.host.vmstat.value().and_then(|vm| vm.cow_ksm),
            cow_ksm_per_second: None,
            sharing: None,
            errors: errors.into_iter().chain(sample.given_up.sentences()).collect(),
        }
    }
}
