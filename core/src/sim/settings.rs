//! The files that can be written, with the kernel's rules for who may write what when.

use super::advisor::Advisor;
use super::machine::Machine;
use crate::field::KernelVersion;
use crate::kernel::FIELDS;
use crate::knobs::{Knob, Knobs};

/// The knobs' values; those that the kernel lacks have the value it acts by.
#[derive(Debug, Clone)]
pub(super) struct Settings {
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

impl Settings {
    /// As after boot.
    pub fn new(kernel: KernelVersion) -> Self {
        Self {
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

    fn get_mut(&mut self, knob: Knob) -> &mut u64 {
        match knob {
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
        }
    }
}

/// Whether `kernel` has the KSM file `name`.
pub(super) fn has(kernel: KernelVersion, name: &str) -> bool {
    FIELDS.iter().any(|field| field.name == name && field.since <= kernel)
}

/// Why the kernel does not take a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such file.
    #[error("this kernel has no {0} (ENOENT)")]
    Absent(Knob),
    /// The value is out of the file's range.
    #[error("{knob} does not take {value} (EINVAL)")]
    Invalid {
        /// The file.
        knob: Knob,
        /// What was written.
        value: u64,
    },
    /// `pages_to_scan` is the advisor's.
    #[error("pages_to_scan belongs to the kernel's advisor; write advisor_mode=none first (EINVAL)")]
    Advisor,
    /// Something is merged.
    #[error("{0} can't change while pages are merged; write run=2 first (EBUSY)")]
    Merged(Knob),
    /// Unmerging found no memory for another page; what it had unmerged stays so, and `run` is 0.
    #[error("no memory left to unmerge into; run is 0 now (ENOMEM)")]
    NoMemory,
}

impl Machine {
    /// Writes one file, as root would.
    ///
    /// Writing `run`, `merge_across_nodes` or `max_page_sharing` in the middle of a batch waits for the
    /// batch's end: [`now`](Machine::now) may be later afterwards.
    ///
    /// # Errors
    /// What the kernel would refuse.
    pub fn write(&mut self, knob: Knob, value: u64) -> Result<(), Refused> {
        if !has(self.config.kernel, knob.name()) {
            return Err(Refused::Absent(knob));
        }
        if !knob.range().contains(&value) {
            return Err(Refused::Invalid { knob, value });
        }
        let changed = *self.settings.get_mut(knob) != value;
        match knob {
            Knob::PagesToScan if self.settings.advisor_mode != 0 => return Err(Refused::Advisor),
            Knob::AdvisorMode if changed => {
                self.advisor = Advisor::default();
                self.settings.pages_to_scan =
                    if value == 0 { 100 } else { self.settings.advisor_min_pages_to_scan };
            }
            Knob::MergeAcrossNodes | Knob::MaxPageSharing if changed => {
                self.finish_batch();
                if self.memory.stable.shared > 0 {
                    return Err(Refused::Merged(knob));
                }
            }
            Knob::SleepMillisecs if changed => self.wake_ksmd(),
            Knob::Run => {
                self.finish_batch();
                if changed && value == 2 {
                    self.settings.run = 2;
                    return self.unmerge().inspect_err(|_| self.settings.run = 0);
                }
            }
            _ => {}
        }
        *self.settings.get_mut(knob) = value;
        Ok(())
    }

    /// Writes several files in the order in which they may be written.
    ///
    /// # Errors
    /// The first refusal; what stands before it is written, what stands after it is not.
    pub fn write_all(&mut self, knobs: &Knobs) -> Result<(), Refused> {
        knobs.iter().try_for_each(|(knob, value)| self.write(knob, value))
    }
}
