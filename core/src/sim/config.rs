//! The simulated host: its memory, its CPUs, its kernel, and the costs of ksmd's work.

use crate::field::KernelVersion;

/// The host that a [`SimMachine`](super::SimMachine) simulates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimConfig {
    /// Memory in bytes.
    pub total_bytes: u64,
    /// Memory that neither guests nor KSM use, in bytes.
    pub other_bytes: u64,
    /// Swap space in bytes: memory beyond `total_bytes` counts as swapped out.
    pub swap_bytes: u64,
    /// The number of CPUs.
    pub cpus: u32,
    /// The kernel version, which decides which files there are and how a visit works.
    pub kernel: KernelVersion,
    /// The costs of ksmd's work.
    pub costs: SimCosts,
    /// CPU time that ksmd has used before, in nanoseconds. The kernel's advisor counts all of it in its first
    /// correction.
    pub ksmd_before_ns: u64,
    /// The part of a CPU that ksmd gets while it works, in thousandths. The rest of the time it waits for other load.
    pub ksmd_share_permille: u32,
    /// The length of a run: consecutive pages of the same fate, which the machine keeps as one. With 1 each page is its
    /// own.
    pub run_pages: u32,
    /// The pace at which guests rewrite their memory at night, in thousandths of the day's pace. The machine boots at
    /// eight in the morning, and the day has twelve hours. 1000: there is no night.
    pub night_permille: u32,
}

/// A 16 GiB host with two CPUs and Linux 6.18.
impl Default for SimConfig {
    fn default() -> Self {
        Self {
            total_bytes: 16 << 30,
            other_bytes: 1 << 30,
            swap_bytes: 0,
            cpus: 2,
            kernel: KernelVersion::new(6, 18),
            costs: SimCosts::default(),
            ksmd_before_ns: 0,
            ksmd_share_permille: 1000,
            run_pages: 1,
            night_permille: 1000,
        }
    }
}

/// CPU time of each kind of work, in nanoseconds.
///
/// The defaults are for one core of an AMD EPYC virtual machine with Linux 6.18; `ksmith sim calibrate` measures those
/// of another host. They leave out that larger trees and long chains make a visit more expensive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct SimCosts {
    /// A visit that ends with a new checksum.
    pub checksum: u64,
    /// A visit that looks in both trees and finds nothing.
    pub unshared: u64,
    /// A visit that merges with a page that waits in the unstable tree: both get a frame of the stable tree.
    pub merge: u64,
    /// A visit that merges with a frame of the stable tree.
    pub join: u64,
    /// A visit that merges with the zero page.
    pub zero: u64,
    /// A visit to a page that is merged already.
    pub merged: u64,
    /// A page that `smart_scan` skips.
    pub skip: u64,
    /// A page table entry that KSM passes over: the zero page.
    pub walk: u64,
    /// An `rmap_item` that is freed, of a guest that ended or a page that maps the zero page.
    pub free: u64,
    /// Waking up for a batch.
    pub batch: u64,
    /// Starting a pass.
    pub pass: u64,
    /// A guest's own CPU time for each page that it writes.
    pub write: u64,
    /// The cost that each doubling of the stable tree adds to a search of it.
    pub stable_level: u64,
    /// The cost that each doubling of the unstable tree adds to a search of it.
    pub unstable_level: u64,
    /// A full frame in a chain that a search passes.
    pub chain: u64,
    /// Splitting a huge page.
    pub split: u64,
    /// An empty page that the split of a huge page frees.
    pub freed: u64,
    /// Putting a huge page together: khugepaged's time.
    pub collapse: u64,
}

impl SimCosts {
    /// Returns true if a search costs more in larger trees.
    pub(super) fn depend_on_trees(&self) -> bool {
        self.stable_level | self.unstable_level | self.chain != 0
    }

    /// The time that each kind of ksmd's work takes where it gets a part of a CPU only. That of guests stays.
    pub(super) fn stretched(self, share_permille: u32) -> Self {
        let by = |ns: u64| ns * 1000 / u64::from(share_permille.max(1));
        Self {
            checksum: by(self.checksum),
            unshared: by(self.unshared),
            merge: by(self.merge),
            join: by(self.join),
            zero: by(self.zero),
            merged: by(self.merged),
            skip: by(self.skip),
            walk: by(self.walk),
            free: by(self.free),
            batch: by(self.batch),
            pass: by(self.pass),
            write: self.write,
            stable_level: by(self.stable_level),
            unstable_level: by(self.unstable_level),
            chain: by(self.chain),
            split: by(self.split),
            freed: by(self.freed),
            collapse: self.collapse,
        }
    }
}

impl Default for SimCosts {
    fn default() -> Self {
        Self {
            checksum: 1300,
            unshared: 3800,
            merge: 7000,
            join: 7000,
            zero: 1400,
            merged: 190,
            skip: 150,
            walk: 6,
            free: 55,
            batch: 7000,
            pass: 18_000,
            write: 1000,
            stable_level: 0,
            unstable_level: 0,
            chain: 0,
            split: 162_000,
            freed: 590,
            collapse: 700_000,
        }
    }
}
