//! What a policy of balance may look at.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How dear a guest is: who has more weight gets first and gives last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Class {
    /// `gold`, `silver`, `bronze`, or a name of the operator's.
    pub name: String,
    /// More is dearer. Classes of one weight are equals.
    pub weight: u32,
}

/// One guest, as its hypervisor, its actuator and it itself tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestView {
    /// By which it is known over its life: its UUID, or `kind:name:pid` where it has none.
    pub key: String,
    /// Its name; two guests may have the same.
    pub name: String,
    /// How dear it is.
    pub class: Class,
    /// What its hypervisor lets it have now.
    pub given_bytes: u64,
    /// What it was started with: the natural ceiling.
    pub whole_bytes: u64,
    /// What the host spends on it.
    pub resident_bytes: u64,
    /// What it says of itself. It may lie, or say nothing.
    pub inside: Inside,
    /// What the operator lets nobody take it below.
    pub floor_bytes: u64,
    /// What the operator gives it at most; the whole, where nothing was said.
    pub ceiling_bytes: u64,
    /// The smallest amount that can be taken or given: resizes are whole multiples of it.
    pub step_bytes: u64,
    /// Whether memory can be taken from it.
    pub can_take: bool,
    /// Whether memory can be given back to it.
    pub can_give: bool,
    /// Whether a person has said that it is to be left alone.
    pub held: bool,
    /// Merged pages of it, whose divergence would cost the host so much more.
    pub merged_bytes: u64,
    /// For how long it has been on its way to less. `None` while it is not.
    pub giving_for: Option<Duration>,
    /// What stands in the way, in words: it does not answer, it ignored its balloon. Nothing is done to it then but
    /// to give back.
    pub trouble: Option<String>,
}

impl GuestView {
    /// What has been taken from it.
    pub fn taken_bytes(&self) -> u64 {
        self.whole_bytes.saturating_sub(self.given_bytes)
    }
}

/// What a guest says of itself. `None`: nobody could be asked for that.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Inside {
    /// What it could have without swapping, by its own kernel's estimate: `MemAvailable`.
    pub available_bytes: Option<u64>,
    /// Memory that nobody uses.
    pub free_bytes: Option<u64>,
    /// Its page cache.
    pub cache_bytes: Option<u64>,
    /// Faults that had to read from a disk.
    pub major_faults_per_second: Option<f64>,
    /// What it reads back from its own swap.
    pub swap_in_bytes_per_second: Option<f64>,
    /// What it writes to its own swap.
    pub swap_out_bytes_per_second: Option<f64>,
    /// Per cent of the last ten seconds in which some of its work waited for memory.
    pub psi_some_percent: Option<f64>,
}

/// The memory that guests share: the host's, or a cgroup's with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolView {
    /// All of it.
    pub size_bytes: u64,
    /// What can be had without swapping.
    pub available_bytes: u64,
    /// What it writes to swap: the thing that must not happen.
    pub swap_out_bytes_per_second: Option<f64>,
    /// Per cent of the last ten seconds in which some work waited for memory.
    pub psi_some_percent: Option<f64>,
    /// Merged pages that are being broken by writes.
    pub cow_bytes_per_second: Option<f64>,
    /// What would be needed if every merged page diverged.
    pub exposure_bytes: u64,
    /// What there is for that: what can be had, and free swap.
    pub headroom_bytes: u64,
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct View {
    /// Time since boot.
    pub now: Duration,
    /// What is shared.
    pub pool: PoolView,
    /// By whom, in the order of their keys.
    pub guests: Vec<GuestView>,
}
