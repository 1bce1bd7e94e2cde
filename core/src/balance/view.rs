//! The input of a balance policy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The class of a guest: guests of a class with more weight get memory first and give it last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestClass {
    /// The name: `gold`, `silver`, `bronze`, or another one that the operator chose.
    pub name: String,
    /// The rank of the class. Classes of one weight are equals.
    pub weight: u32,
}

/// One guest, as its hypervisor, its actuator and the guest itself describe it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestView {
    /// Its identity, `PID:START`, or `cgroup:PATH` for a cgroup.
    pub key: String,
    /// The guest's name, which need not be unique.
    pub name: String,
    /// The guest's class.
    pub class: GuestClass,
    /// The memory that its hypervisor lets it have now.
    pub given_bytes: u64,
    /// The memory that it was started with: the natural ceiling.
    pub whole_bytes: u64,
    /// The memory that the host spends on it.
    pub resident_bytes: u64,
    /// The figures that it reports. A guest may lie, or report none.
    pub inside: ReportedFigures,
    /// The operator's floor.
    pub floor_bytes: u64,
    /// The operator's ceiling, or the whole without one.
    pub ceiling_bytes: u64,
    /// The granule: resizes are whole multiples of it.
    pub step_bytes: u64,
    /// True if memory can be taken from it.
    pub can_take: bool,
    /// True if memory can be given back to it.
    pub can_give: bool,
    /// True if the operator wants it left alone.
    pub held: bool,
    /// Its merged pages: the memory that the host needs if all of them diverge.
    pub merged_bytes: u64,
    /// The duration of the take under way; `None` if there is none.
    pub giving_for: Option<Duration>,
    /// The reason why nothing is taken from it: it does not answer, or it ignored its balloon. It may still be given
    /// memory.
    pub trouble: Option<String>,
}

impl GuestView {
    /// Creates the view of a guest that has and uses all its memory, and reports no figures; it is named by its key.
    pub fn whole(key: &str, class: GuestClass, whole_bytes: u64) -> Self {
        Self {
            key: key.to_owned(),
            name: key.to_owned(),
            class,
            given_bytes: whole_bytes,
            whole_bytes,
            resident_bytes: whole_bytes,
            inside: ReportedFigures::default(),
            floor_bytes: 0,
            ceiling_bytes: whole_bytes,
            step_bytes: 1 << 20,
            can_take: true,
            can_give: true,
            held: false,
            merged_bytes: 0,
            giving_for: None,
            trouble: None,
        }
    }

    /// Returns the memory that was taken from it.
    pub fn taken_bytes(&self) -> u64 {
        self.whole_bytes.saturating_sub(self.given_bytes)
    }
}

/// The figures that a guest reports. `None`: there is no source for that figure.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportedFigures {
    /// Memory that can be had without swapping, by the guest kernel's estimate: `MemAvailable`.
    pub available_bytes: Option<u64>,
    /// The guest's unused memory.
    pub free_bytes: Option<u64>,
    /// Its page cache.
    pub cache_bytes: Option<u64>,
    /// Page faults that had to read from a disk.
    pub major_faults_per_second: Option<f64>,
    /// Reads from its own swap.
    pub swap_in_bytes_per_second: Option<f64>,
    /// Writes to its own swap.
    pub swap_out_bytes_per_second: Option<f64>,
    /// Per cent of the last ten seconds in which some task waited for memory (PSI `some`, `avg10`).
    pub psi_some_percent: Option<f64>,
}

/// The memory that guests share: the host's, or a cgroup's with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolView {
    /// The size of the pool.
    pub size_bytes: u64,
    /// Memory that can be had without swapping.
    pub available_bytes: u64,
    /// Writes to swap, which balance is there to prevent.
    pub swap_out_bytes_per_second: Option<f64>,
    /// Per cent of the last ten seconds in which some task waited for memory (PSI `some`, `avg10`).
    pub psi_some_percent: Option<f64>,
    /// Merged pages that writes break.
    pub cow_bytes_per_second: Option<f64>,
    /// The memory that would be needed if every merged page diverged.
    pub exposure_bytes: u64,
    /// The memory that there is for that: `available_bytes` and free swap.
    pub headroom_bytes: u64,
}

/// The pool and all its guests at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BalanceView {
    /// Time since boot.
    pub now: Duration,
    /// The pool at that moment.
    pub pool: PoolView,
    /// The guests, in the order of their keys.
    pub guests: Vec<GuestView>,
}
