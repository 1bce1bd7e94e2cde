//! The identity of a process: facts that do not change while it runs its program.

use super::GuestKind;

/// The identity of one process. Its own claims may be false: unless verified, they only name and describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The guest's name as far as this process shows it.
    pub name: String,
    /// The kind of guest that the process belongs to.
    pub kind: GuestKind,
    /// The manager that started the guest, as far as that shows: `libvirt`, `proxmox`, `kubernetes`.
    pub manager: Option<&'static str>,
    /// The number by which the manager's users know the guest: the VMID of Proxmox VE.
    pub number: Option<u32>,
    /// The program's name.
    pub program: String,
    /// The UUID on the command line.
    pub uuid: Option<String>,
    /// True if name and UUID come from a source that no other user can choose: libvirt's record of this very process,
    /// the path of a service or container of the system's own, or a program of root.
    pub is_verified: bool,
    /// The size of the guest's memory on the command line.
    pub memory_bytes: Option<u64>,
    /// The whole path of the cgroup, which rules compare. A user may put any character into it.
    pub cgroup: Option<String>,
    /// The path of the service or container: processes of one path are one guest.
    pub unit: Option<String>,
    /// The user that the process runs as.
    pub user: Option<String>,
    /// The number of that user, if the process has rights of that user only. `None` for a set-user-ID program.
    pub uid: Option<u32>,
    /// The PID of the parent.
    pub parent: u32,
    /// True if children of the same kind and name belong to the guest.
    pub includes_children: bool,
    /// True if its memory is its parent's (`CLONE_VM`), and so counted there already.
    pub is_twin: bool,
    /// The reason why its memory can't merge.
    pub obstacle: Option<&'static str>,
}

impl ProcessIdentity {
    /// Creates the identity of a process of which only its program's name is known.
    pub fn plain(program: &str) -> Self {
        Self {
            name: program.to_owned(),
            kind: GuestKind::PROCESS,
            manager: None,
            number: None,
            program: program.to_owned(),
            uuid: None,
            is_verified: false,
            memory_bytes: None,
            cgroup: None,
            unit: None,
            user: None,
            uid: None,
            parent: 0,
            includes_children: false,
            is_twin: false,
            obstacle: None,
        }
    }
}
