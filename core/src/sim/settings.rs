//! The values of the writable files, and the reasons why the kernel refuses one.

use crate::field::KernelVersion;
use crate::kernel::FIELDS;
use crate::knobs::Knob;

/// The values of the knobs. A knob that the kernel lacks has the value that the kernel behaves by.
#[derive(Debug, Clone)]
pub(super) struct KnobValues {
    pub max_ptes_shared: u64,
    pub max_ptes_none: u64,
    pub run: u64,
    pub pages_to_scan: u64,
    pub sleep_millisecs: u64,
    pub smart_scan: u64,
    pub use_zero_pages: u64,
    pub merge_across_nodes: u64,
    pub max_page_sharing: u64,
    pub stable_node_chains_prune_millisecs: u64,
    pub advisor_mode: u64,
    pub advisor_max_cpu: u64,
    pub advisor_min_pages_to_scan: u64,
    pub advisor_max_pages_to_scan: u64,
    pub advisor_target_scan_time: u64,
}

impl KnobValues {
    /// The settings after boot.
    pub fn new(kernel: KernelVersion) -> Self {
        Self {
            max_ptes_shared: 256,
            max_ptes_none: 511,
            run: 0,
            pages_to_scan: 100,
            sleep_millisecs: 20,
            smart_scan: u64::from(has(kernel, "smart_scan")),
            use_zero_pages: 0,
            merge_across_nodes: 1,
            max_page_sharing: if has(kernel, "max_page_sharing") { 256 } else { i32::MAX as u64 },
            stable_node_chains_prune_millisecs: 2000,
            advisor_mode: 0,
            advisor_max_cpu: 70,
            advisor_min_pages_to_scan: 500,
            advisor_max_pages_to_scan: 30_000,
            advisor_target_scan_time: 200,
        }
    }

    /// The value of a knob. `None` where the knob is not simulated: the simulated kernel then has no such file.
    pub fn get(&self, knob: Knob) -> Option<u64> {
        self.clone().get_mut(knob).copied()
    }

    /// The value of a knob, to be written.
    pub fn get_mut(&mut self, knob: Knob) -> Option<&mut u64> {
        Some(match knob {
            Knob::MaxPtesShared => &mut self.max_ptes_shared,
            Knob::MaxPtesNone => &mut self.max_ptes_none,
            Knob::AdvisorMode => &mut self.advisor_mode,
            Knob::AdvisorMaxCpu => &mut self.advisor_max_cpu,
            Knob::AdvisorMinPagesToScan => &mut self.advisor_min_pages_to_scan,
            Knob::AdvisorMaxPagesToScan => &mut self.advisor_max_pages_to_scan,
            Knob::AdvisorTargetScanTime => &mut self.advisor_target_scan_time,
            Knob::SmartScan => &mut self.smart_scan,
            Knob::UseZeroPages => &mut self.use_zero_pages,
            Knob::MergeAcrossNodes => &mut self.merge_across_nodes,
            Knob::MaxPageSharing => &mut self.max_page_sharing,
            Knob::StableNodeChainsPruneMillisecs => &mut self.stable_node_chains_prune_millisecs,
            Knob::PagesToScan => &mut self.pages_to_scan,
            Knob::SleepMillisecs => &mut self.sleep_millisecs,
            Knob::Run => &mut self.run,
            // khugepaged's pace is set by `SimMachine::set_khugepaged`.
            Knob::KhugepagedPagesToScan | Knob::KhugepagedScanSleepMillisecs => return None,
        })
    }
}

/// Returns true if `kernel` has the KSM file `name`.
pub(super) fn has(kernel: KernelVersion, name: &str) -> bool {
    FIELDS.iter().any(|field| field.name == name && field.since <= kernel)
}

/// The reason why the kernel refuses a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KnobRefusal {
    /// There is no such file.
    #[error("this kernel has no {0} (ENOENT)")]
    Absent(Knob),
    /// The value is out of the file's range.
    #[error("{knob} does not take {value} (EINVAL)")]
    Invalid {
        /// The file that was written.
        knob: Knob,
        /// The value that was written.
        value: u64,
    },
    /// `pages_to_scan` is set by the advisor.
    #[error("pages_to_scan belongs to the kernel's advisor; write advisor_mode=none first (EINVAL)")]
    Advisor,
    /// Pages are merged.
    #[error("{0} can't change while pages are merged; write run=2 first (EBUSY)")]
    Merged(Knob),
    /// Unmerging found no memory for another page. The pages unmerged so far stay so, and `run` is 0.
    #[error("no memory left to unmerge into; run is 0 now (ENOMEM)")]
    NoMemory,
}
