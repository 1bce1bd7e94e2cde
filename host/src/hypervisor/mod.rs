//! The hypervisors and other kinds of guests that ksmith knows: one folder for each, behind one trait.
//!
//! `docs/internals/adding-a-hypervisor.md` shows how to add one.

mod cgroup;
mod escape;
mod name;
mod options;
pub mod qmp;
mod recognise;
mod socket_name;
mod stream;
mod target;

use std::fmt;

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;

pub use self::cgroup::CgroupPath;
pub use self::libvirt::{BadUri, LibvirtError, LibvirtUri};
pub(crate) use self::name::printable;
pub use self::name::{GuestName, MachineSize, ProgramName, may_be_vm};
pub use self::qmp::{
    HypervisorReply, MemoryBackend, MonitorError, MonitorReply, MonitorSocket, QmpMonitor, total_memory,
};
pub use self::recognise::{RecognisedProcess, recognise};
pub use self::target::{GuestTarget, SwitchError, SwitchedBackend};
pub use self::uml::{Mconsole, MconsoleError};
use crate::root::Root;

/// Declares the folder of each hypervisor and lists its entry.
macro_rules! registry {
    ($($folder:ident: $hypervisor:ident)*) => {
        $(pub mod $folder;)*

        /// All hypervisors, in order of precedence: the first that recognises a process has it.
        const REGISTRY: &[&dyn Hypervisor] = &[$(&$folder::$hypervisor),*];
    };
}

registry! {
    kubevirt: KubeVirt
    libvirt: Libvirt
    proxmox: Proxmox
    qemu: Qemu
    cloud_hypervisor: CloudHypervisor
    firecracker: Firecracker
    crosvm: Crosvm
    kvmtool: Kvmtool
    stratovirt: StratoVirt
    virtualbox: VirtualBox
    libkrun: Libkrun
    dragonball: Dragonball
    uml: Uml
    container: ContainerGuest
    service: SystemdService
    process: PlainProcess
}

/// A kind of guest: its recognition, connection and switch. Each method has a default for a missing feature, or for QEMU.
pub trait Hypervisor: fmt::Debug + Sync {
    /// Returns the word for such guests in text, JSON and files.
    fn kind(&self) -> GuestKind;

    /// Returns the name of the manager of such guests, if they have one.
    fn manager(&self) -> Option<&'static str> {
        None
    }

    /// Returns true if such guests are virtual machines, which balance resizes without being told their names.
    fn is_machine(&self) -> bool {
        true
    }

    /// Returns true if such guests may have a root user of their own, with the same uid as the host's.
    fn is_container(&self) -> bool {
        false
    }

    // What a process looks like. Pure functions of text that the process chose: they name it, and give access to nothing.

    /// Returns true if a program of this name may run such guests.
    fn is_program(&self, program: ProgramName<'_>) -> bool {
        self.kind() == qemu::KIND && qemu::is_program(program)
    }

    /// Parses the description of the guest on the command line of such a program; `None` if it starts no guest.
    fn recognise(&self, _line: &CommandLine) -> Option<ClaimedIdentity> {
        None
    }

    /// Returns the guest's name, if a part of a cgroup's path between `parents` and the part `next` is such a guest.
    fn unit(&self, _part: &str, _parents: &str, _next: &str) -> Option<String> {
        None
    }

    /// Looks up the guest's name in its manager's files, by the cgroup path up to the guest. Only files that no
    /// ordinary user may write count.
    fn called(&self, _root: &Root, _unit: &str) -> Option<ManagerName> {
        None
    }

    /// Returns the reason why the guest's memory is not offered to KSM, in one sentence, if its command line says so.
    fn kept_out(&self, _line: &CommandLine) -> Option<String> {
        None
    }

    // How a guest is really reached. What answers must prove that it is the guest's own process.

    /// Returns the monitors of the process, from its command line.
    fn monitors(&self, _line: &CommandLine) -> Vec<MonitorSocket> {
        Vec::new()
    }

    /// Returns true if a manager keeps records of such guests.
    fn has_records(&self) -> bool {
        false
    }

    /// Returns the manager's record of the guest `name`, with proof that the manager means this very process. A record
    /// verifies the name.
    fn record(&self, _root: &Root, _libvirt: &LibvirtUri, _name: &str, _pid: u32) -> Option<ManagerRecord> {
        None
    }

    /// Returns true if the guest may be queried periodically, without a trace in its manager: by a socket of its own.
    fn can_be_asked(&self, target: &GuestTarget) -> bool {
        qemu::has_own_socket(target)
    }

    /// Queries the guest's monitor. Waits up to half a second if it hangs.
    fn query_guest(&self, root: &Root, target: &GuestTarget) -> HypervisorReply {
        qmp::answer(self.monitor(root, target), target.identity.memory_bytes)
    }

    /// Connects to the guest's monitor.
    ///
    /// # Errors
    /// The guest has no monitor, or it can't be reached.
    fn monitor(&self, root: &Root, target: &GuestTarget) -> Result<Box<dyn QmpMonitor>, MonitorError> {
        qmp::connect(root, target.id.pid(), &target.monitors)
    }

    // What can be done to a guest.

    /// Returns the reason why merging can't be switched while the guest runs, with an alternative; `None` if it can.
    fn no_switch(&self, on: bool, _name: &str) -> Option<String> {
        if self.kind() == qemu::KIND {
            return None;
        }
        let why = match on {
            true => {
                "a process can only offer its memory itself: start it with `ksmith run`, or under systemd with \
                 MemoryKSM=yes"
            }
            false => {
                "it offered its memory itself (prctl or madvise), and only it can take that back: restart it without \
                 that; `ksmith unmerge` undoes all merging on the host"
            }
        };
        Some(why.to_owned())
    }

    /// Switches merging of all the guest's memory, and returns what had to be switched.
    ///
    /// # Errors
    /// The monitor fails or refuses. Earlier switches stay in effect.
    fn switch(
        &self,
        root: &Root,
        target: &GuestTarget,
        on: bool,
        dry_run: bool,
    ) -> Result<Vec<SwitchedBackend>, MonitorError> {
        qemu::switch(self.monitor(root, target)?.as_mut(), on, dry_run)
    }

    /// Makes the guest's manager start it with merging on or off from now on. Returns true if that is a change, or
    /// `None` without a manager.
    ///
    /// # Errors
    /// The manager can't be reached, or refuses.
    fn make_permanent(
        &self,
        _target: &GuestTarget,
        _on: bool,
        _dry_run: bool,
    ) -> Result<Option<bool>, MonitorError> {
        Ok(None)
    }

    /// Returns the instruction to start the guest with merging on or off from now on, if ksmith can't arrange that
    /// itself.
    fn permanently(&self, _target: &GuestTarget, on: bool) -> String {
        let word = if on { "on" } else { "off" };
        format!("libvirt does not manage it: start it with -machine mem-merge={word} from now on")
    }

    /// Returns the method to resize the guest's memory.
    fn resize(&self) -> ResizeMethod {
        if self.kind() == qemu::KIND {
            return ResizeMethod::Balloon;
        }
        ResizeMethod::Unable(format!(
            "ksmith does not speak to the balloon of {}; put it into a cgroup of its own and name that",
            self.kind()
        ))
    }
}

/// The guest's description on its command line, unverified.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimedIdentity {
    /// The guest's own name.
    pub name: Option<String>,
    /// The UUID in lower case with dashes.
    pub uuid: Option<String>,
    /// The number by which the manager's users know it.
    pub number: Option<u32>,
    /// Configured memory of the guest.
    pub memory_bytes: Option<u64>,
    /// Virtual CPUs at its start.
    pub vcpus: Option<u32>,
    /// The reason in a word why the guest's memory can't merge: `vfio`, `shared`, `hugepages`.
    pub obstacle: Option<&'static str>,
    /// True if children of the process belong to the guest, as long as their command lines are alike.
    pub includes_children: bool,
}

/// The name of a guest in its manager's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManagerName {
    /// The name that the manager's users know.
    pub name: String,
    /// The manager, in a word.
    pub manager: &'static str,
    /// The number by which the manager's users know it.
    pub number: Option<u32>,
}

/// The manager's record of a guest, which the guest can't forge.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ManagerRecord {
    /// The guest's UUID.
    pub uuid: Option<String>,
    /// The inner XML of libvirt's `<metadata>`.
    pub metadata: Option<String>,
}

/// A method to resize a guest's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeMethod {
    /// The balloon, by QMP.
    Balloon,
    /// The management console of user-mode Linux. It may appear later than its guest.
    Console,
    /// The limit of its cgroup.
    Cgroup,
    /// None; the sentence says how to enable one.
    Unable(String),
}

/// Returns the reason why a guest with this command line does not offer its memory to KSM; `None` for what is no guest,
/// and if the command line does not exclude it.
pub(crate) fn kept_out(comm: &str, line: &CommandLine) -> Option<String> {
    name::hypervisor(comm, line)?.0.kept_out(line)
}

/// Returns true if a process with this name and command line is a QEMU, whatever its distribution calls it.
pub(crate) fn is_qemu(comm: &str, line: &CommandLine) -> bool {
    name::hypervisor(comm, line).is_some_and(|(hypervisor, _)| hypervisor.kind() == qemu::KIND)
}

/// Returns the hypervisor of this kind, the most general one of several; unknown kinds count as plain processes.
pub fn find_by_kind(kind: GuestKind) -> &'static dyn Hypervisor {
    REGISTRY.iter().rfind(|hypervisor| hypervisor.kind() == kind).copied().unwrap_or(&process::PlainProcess)
}
