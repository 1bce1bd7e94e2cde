//! Guests, the units that an operator manages: a virtual machine, a user-mode Linux, a systemd service, a container or
//! any other process with mergeable memory, with the processes that it consists of.

mod efficiency;
mod figures;
mod find;
mod group;
mod id;
mod identity;
mod kind;
mod label;
mod pattern;
mod switch_off;

pub use efficiency::MergeEfficiency;
pub use figures::{GuestMemoryFigures, RollupFigures};
pub use find::{FindGuestError, NamedGuest, WAYS, describe, find, find_all, suggest_names};
pub use group::group;
pub use id::{BadGuestId, GuestId};
pub use identity::ProcessIdentity;
pub use kind::GuestKind;
pub use label::{BadLabelRule, GuestLabelRule, assign_labels};
pub use pattern::{BadGuestPattern, GuestPattern, WrittenPattern};
pub use switch_off::SwitchOffReason;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::huge_worth::SplitMemory;
use crate::sample::ProcessId;

/// The kernel's word for a process's place: rules may tell processes of one guest apart by it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessPlacement {
    /// The cgroup, without `/sys/fs/cgroup`.
    pub cgroup: Option<String>,
    /// The only user that the process has the rights of.
    pub user: Option<String>,
}

/// One guest at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its own name where it has one; two guests may have the same.
    pub name: String,
    /// In lower case with dashes, where its hypervisor gives it one.
    pub uuid: Option<String>,
    /// True if name and UUID are verified. Otherwise the guest's own user claims them, and no rule matches them.
    #[serde(default)]
    pub is_verified: bool,
    /// The kind of the guest.
    pub kind: GuestKind,
    /// The manager that started it, as far as that shows: `libvirt`, `proxmox`, `kubernetes`.
    #[serde(default)]
    pub manager: Option<String>,
    /// The number by which the manager's users know it: the VMID of Proxmox VE.
    #[serde(default)]
    pub number: Option<u32>,
    /// Its processes, the first one first; never empty. A guest is known by the first.
    pub processes: Vec<ProcessId>,
    /// The program of its first process.
    pub program: String,
    /// The memory that the guest believes to have, for virtual machines.
    pub memory_bytes: Option<u64>,
    /// The cgroup of its first process, without `/sys/fs/cgroup`.
    pub cgroup: Option<String>,
    /// The places of its processes, in order and without repetition; empty if all have the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<ProcessPlacement>,
    /// The user of its first process: a name, or a number where the host has no name for it.
    pub user: Option<String>,
    /// The number of the one user that all its processes run as. `None`: several, or a set-user-ID program.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The XML of libvirt's `<metadata>`, where libvirt manages it.
    pub metadata: Option<String>,
    /// The trust domain that the configuration assigns it to.
    pub domain: Option<String>,
    /// The labels that the configuration gives it, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// True if any of its memory is mergeable: for a virtual machine with a monitor that tells, its RAM. `None` if this
    /// kernel does not say until ksmd has visited it.
    pub mergeable: Option<bool>,
    /// True if its monitor says that its RAM is offered to KSM; `None` if it has no monitor.
    pub offered: Option<bool>,
    /// True if its RAM is not offered, but some of its memory is all the same: QEMU's firmware and devices.
    #[serde(default)]
    pub has_remaining_mergeable: bool,
    /// The reason why ksmith has switched its merging off, or is switching it; `None` if it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switched_off: Option<SwitchOffReason>,
    /// The reason on its command line why its memory can't merge, in a word: `vfio`, `shared`, `hugepages`.
    pub obstacle: Option<String>,
    /// The memory that it uses, saves and costs.
    pub figures: GuestMemoryFigures,
    /// Zeros that splits of its huge pages have freed, a part of `saved_bytes`; `None` if no process was examined.
    #[serde(default)]
    pub folded_bytes: Option<u64>,
    /// Memory in huge pages; `None` if the page tables of no process were read.
    #[serde(default)]
    pub huge_bytes: Option<u64>,
    /// Huge pages that merging has split; `None` if the page tables of no process were read.
    #[serde(default)]
    pub split: Option<SplitMemory>,
    /// Errors from examining it, one sentence each.
    pub errors: Vec<String>,
}

impl Guest {
    /// Creates a guest of one process, of which only its name is known.
    pub fn plain(name: &str, process: ProcessId) -> Self {
        Self {
            name: name.to_owned(),
            uuid: None,
            is_verified: false,
            kind: GuestKind::PROCESS,
            manager: None,
            number: None,
            processes: vec![process],
            program: name.to_owned(),
            memory_bytes: None,
            cgroup: None,
            placements: Vec::new(),
            user: None,
            uid: None,
            metadata: None,
            domain: None,
            labels: BTreeMap::new(),
            mergeable: None,
            offered: None,
            has_remaining_mergeable: false,
            switched_off: None,
            obstacle: None,
            figures: GuestMemoryFigures::default(),
            folded_bytes: None,
            huge_bytes: None,
            split: None,
            errors: Vec::new(),
        }
    }

    /// Returns the identity of the guest as long as it lives: its first process.
    pub fn id(&self) -> GuestId {
        GuestId::new(self.processes.first().copied().unwrap_or(ProcessId { pid: 0, start_ticks: 0 }))
    }

    /// Returns the reason why its memory can't merge, unless some of it is merged: the kernel's figure counts more than
    /// the command line.
    pub fn lasting_obstacle(&self) -> Option<&str> {
        self.obstacle.as_deref().filter(|_| self.figures.merged_bytes == 0)
    }

    /// Returns its name with its first PID, for messages: names need not be unique.
    pub fn title(&self) -> String {
        format!("{} (pid {})", self.shown_name(), self.id().pid())
    }

    /// Returns its name for people: `web`; `100 (web)` where its manager's users know it by a number; and `web [alice]`
    /// where only its user claims the name.
    pub fn shown_name(&self) -> String {
        let name = match self.number {
            Some(number) => format!("{number} ({})", self.name),
            None => self.name.clone(),
        };
        match &self.user {
            Some(user) if !self.is_verified => format!("{name} [{user}]"),
            _ => name,
        }
    }

    /// Returns the name of the one user that all its processes run as, if there is one.
    pub fn only_user(&self) -> Option<&str> {
        self.user.as_deref().filter(|_| self.uid.is_some())
    }
}
