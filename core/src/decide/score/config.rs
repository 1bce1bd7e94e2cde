//! The constants that the paper leaves open, each with its default and the reason for it.

use std::num::NonZeroU32;

use serde::Deserialize;

use super::ScorePolicy;
use crate::decide::{Made, PolicySettings, ReadFile};

/// The table `[policy.score]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScoreConfig {
    /// Seconds between two looks, at most. The paper: "continuously". Default 1: a pass is hardly ever shorter.
    pub interval_seconds: NonZeroU32,
    /// `sleep_millisecs`, 1 or more. The paper steers by `pages_to_scan` alone. Default 20, the kernel's.
    pub sleep_millisecs: NonZeroU32,
    /// True if ksmd may skip pages that did not merge. Default `false`: the paper's kernel (6.5) could not, and a pass
    /// that skips pages says little about what there is to merge. `true` leaves the setting as it is.
    pub smart_scan: bool,
    /// Points of VMCountScore when a VM starts. The paper: "a value at which KSM works fully". Default 3000, the
    /// most there is: a new VM is when most is to be merged.
    pub vm_count_full: u32,
    /// Passes that VMCountScore stays there. Default 2: KSM merges a page on its second visit.
    pub vm_count_passes: u32,
    /// Points that VMCountScore then loses at the end of each pass. Default 1500: the pass in which the VM started
    /// had gone past some of it, so there is a third one at half the speed, and then others must earn it.
    pub vm_count_decay_per_pass: u32,
    /// Pages that a pass must newly save for one point of PagesSharingScore. Default 10: a pass that saves 39 MiB
    /// is just worth another (1000 points). That is half a per cent of the 8 GB of guests in the paper.
    pub sharing_pages_per_point: NonZeroU32,
    /// Points by which KSMIdleTimeScore grows in a second after the first stop. Default 20: ksmd tries again after
    /// 50 s, which is about the time of a pass over the paper's 8 GB at 1000 pages.
    pub idle_growth_per_second: u32,
    /// Per cent by which each further stop lengthens the way to the same KSMIdleTimeScore. Default 100: 50 s, 100 s,
    /// 150 s and so on, so about 40 tries in the first half day and ever fewer. A VM that starts makes them forgotten.
    pub idle_slowdown_percent: u32,
    /// Passes that KSMIdleTimeScore, having started ksmd, keeps it going. Default 2: the first is the rest of the
    /// pass that was cut short, and KSM merges a page on its second visit.
    pub idle_passes: NonZeroU32,
}

impl PolicySettings for ScoreConfig {
    const HELP: &'static str =
        "Scan by the three scores of Tagami and Shiba: VMs that start, pages that merge, time since the last try";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("score", "")];

    fn policy(&self, _: ReadFile<'_>) -> Made {
        Ok(Box::new(ScorePolicy::new(self.clone())))
    }
}

impl Default for ScoreConfig {
    fn default() -> Self {
        Self {
            interval_seconds: NonZeroU32::MIN,
            sleep_millisecs: const { NonZeroU32::new(20).unwrap() },
            smart_scan: false,
            vm_count_full: 3000,
            vm_count_passes: 2,
            vm_count_decay_per_pass: 1500,
            sharing_pages_per_point: const { NonZeroU32::new(10).unwrap() },
            idle_growth_per_second: 20,
            idle_slowdown_percent: 100,
            idle_passes: const { NonZeroU32::new(2).unwrap() },
        }
    }
}
