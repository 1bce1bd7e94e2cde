//! Guests: what an operator thinks in. A virtual machine, a user-mode Linux, a systemd service, a container or any
//! other process with mergeable memory, with the processes that it consists of.

mod cgroup;
mod command;
mod efficiency;
mod figures;
mod find;
mod group;
mod identity;
mod qemu;

pub use cgroup::{Cgroup, Owner};
pub use efficiency::{Efficiency, MEANINGS};
pub use figures::{Figures, Memory};
pub use find::{NotOne, find};
pub use group::group;
pub use identity::Identity;
pub use qemu::{Monitor, monitors, obstacle};

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::ProcessId;

/// What a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// QEMU, started by libvirt or by anybody.
    Qemu,
    /// cloud-hypervisor.
    CloudHypervisor,
    /// Firecracker.
    Firecracker,
    /// crosvm.
    Crosvm,
    /// kvmtool (`lkvm`).
    Kvmtool,
    /// User-mode Linux.
    Uml,
    /// A systemd service with all its processes.
    Service,
    /// A container with all its processes.
    Container,
    /// A process that is none of these.
    Process,
}

impl Kind {
    /// The word for it, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::CloudHypervisor => "cloud-hypervisor",
            Self::Firecracker => "firecracker",
            Self::Crosvm => "crosvm",
            Self::Kvmtool => "kvmtool",
            Self::Uml => "uml",
            Self::Service => "service",
            Self::Container => "container",
            Self::Process => "process",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// One guest at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its own name where it has one; two guests may have the same.
    pub name: String,
    /// In lower case with dashes, where its hypervisor gives it one.
    pub uuid: Option<String>,
    /// What it is.
    pub kind: Kind,
    /// Its processes, the first one first; never empty. A guest is known by the first.
    pub processes: Vec<ProcessId>,
    /// The program of its first process.
    pub program: String,
    /// The memory that the guest believes to have, for virtual machines.
    pub memory_bytes: Option<u64>,
    /// The cgroup of its first process, without `/sys/fs/cgroup`.
    pub cgroup: Option<String>,
    /// Whom its first process belongs to: a name, or a number where the host has no name for it.
    pub user: Option<String>,
    /// The XML of libvirt's `<metadata>`, where libvirt manages it.
    pub metadata: Option<String>,
    /// The trust domain that the configuration assigns it to.
    pub domain: Option<String>,
    /// Whether any of its memory is mergeable: for a virtual machine whose monitor tells, its RAM. `None`: this
    /// kernel does not say until ksmd has been there.
    pub mergeable: Option<bool>,
    /// Whether its monitor says that its RAM is offered to KSM. `None`: there is no monitor that could be asked.
    pub offered: Option<bool>,
    /// Whether its RAM is not offered and some of its memory is all the same: QEMU's firmware and devices.
    #[serde(default)]
    pub has_residue: bool,
    /// Why its memory can't merge whatever is tried, in a word: `vfio`, `shared`, `hugepages`.
    pub obstacle: Option<String>,
    /// What it takes, saves and costs.
    pub figures: Figures,
    /// What could not be found out about it, one sentence each.
    pub errors: Vec<String>,
}

impl Guest {
    /// By which this guest is known as long as it lives: its first process.
    pub fn id(&self) -> ProcessId {
        self.processes.first().copied().unwrap_or(ProcessId { pid: 0, start_ticks: 0 })
    }

    /// Its name with its first PID, for messages: names need not be unique.
    pub fn title(&self) -> String {
        format!("{} (pid {})", self.name, self.id().pid)
    }
}
