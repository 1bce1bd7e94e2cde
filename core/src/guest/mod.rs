//! Guests: what an operator thinks in. A virtual machine, a user-mode Linux, a systemd service, a container or any
//! other process with mergeable memory, with the processes that it consists of.

mod efficiency;
mod figures;
mod find;
mod group;
mod id;
mod identity;
mod kind;

pub use efficiency::Efficiency;
pub use figures::{Figures, Memory};
pub use find::{Named, NotOne, WAYS, describe, find, find_all};
pub use group::group;
pub use id::{BadGuestId, GuestId};
pub use identity::Identity;
pub use kind::Kind;

use serde::{Deserialize, Serialize};

use crate::sample::ProcessId;

/// One guest at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its own name where it has one; two guests may have the same.
    pub name: String,
    /// In lower case with dashes, where its hypervisor gives it one.
    pub uuid: Option<String>,
    /// Whether name and UUID are verified. Else they are the word of the guest's own user, and no rule goes by them.
    #[serde(default)]
    pub is_verified: bool,
    /// What it is.
    pub kind: Kind,
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
    /// The user of its first process: a name, or a number where the host has no name for it.
    pub user: Option<String>,
    /// The number of the one user that all its processes run as. `None`: several, or a set-user-ID program.
    #[serde(default)]
    pub uid: Option<u32>,
    /// The XML of libvirt's `<metadata>`, where libvirt manages it.
    pub metadata: Option<String>,
    /// The trust domain that the configuration assigns it to.
    pub domain: Option<String>,
    /// Whether any of its memory is mergeable: for a virtual machine with a monitor that tells, its RAM. `None`: this
    /// kernel does not say until ksmd has been there.
    pub mergeable: Option<bool>,
    /// Whether its monitor says that its RAM is offered to KSM. `None`: there is no monitor that could be asked.
    pub offered: Option<bool>,
    /// Whether its RAM is not offered and some of its memory is all the same: QEMU's firmware and devices.
    #[serde(default, alias = "has_residue")]
    pub has_remaining_mergeable: bool,
    /// Why its memory can't merge whatever is tried, in a word: `vfio`, `shared`, `hugepages`.
    pub obstacle: Option<String>,
    /// What it takes, saves and costs.
    pub figures: Figures,
    /// Memory that folding gave back in its processes, which is no part of what is saved. `None`: none was looked at.
    #[serde(default)]
    pub folded_bytes: Option<u64>,
    /// What could not be found out about it, one sentence each.
    pub errors: Vec<String>,
}

impl Guest {
    /// The identity of the guest as long as it lives: its first process.
    pub fn id(&self) -> GuestId {
        GuestId::of(self.processes.first().copied().unwrap_or(ProcessId { pid: 0, start_ticks: 0 }))
    }

    /// Its name with its first PID, for messages: names need not be unique.
    pub fn title(&self) -> String {
        format!("{} (pid {})", self.shown_name(), self.id().pid())
    }

    /// Its name as people see it: `web`; `100 (web)` where its manager's users know it by a number; and `web [alice]` where
    /// the name is only the word of its user.
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

    /// The name of the one user that all its processes run as.
    pub fn only_user(&self) -> Option<&str> {
        self.user.as_deref().filter(|_| self.uid.is_some())
    }
}
