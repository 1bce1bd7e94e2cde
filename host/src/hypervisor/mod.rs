//! The hypervisors and other hosts of guests that ksmith knows: one folder for each, behind one trait.
//!
//! `docs/internals/adding-a-hypervisor.md` shows how to add one.

mod cgroup;
mod name;
mod options;
pub mod qmp;
mod recognise;
mod stream;
mod target;

use std::fmt;

use ksmith_core::guest::Kind;
use ksmith_core::kernel::CommandLine;

pub use self::cgroup::Cgroup;
pub use self::libvirt::{BadUri, LibvirtError, Uri};
pub(crate) use self::name::printable;
pub use self::name::{GuestName, Program, may_be_vm};
pub use self::qmp::{Backend, Monitor, MonitorError, Place, Told};
pub use self::recognise::{Recognised, recognise};
pub use self::target::{SwitchError, Switched, Target};
pub use self::uml::{Mconsole, MconsoleError};
use crate::root::Root;

/// Declares the folder of each hypervisor and lists what it defines.
macro_rules! registry {
    ($($folder:ident)*) => {
        $(pub mod $folder;)*

        /// All hypervisors. The first that recognises a process has it.
        const REGISTRY: &[&dyn Hypervisor] = &[$(&$folder::HYPERVISOR),*];
    };
}

registry! {
    libvirt
    qemu
    cloud_hypervisor
    firecracker
    crosvm
    kvmtool
    stratovirt
    virtualbox
    uml
    container
    service
    process
}

/// A kind of guest: how it is recognised, reached and switched. Each method has a default for what is not there.
pub trait Hypervisor: fmt::Debug + Sync {
    /// The word for such guests in text, JSON and files.
    fn kind(&self) -> Kind;

    /// Whether such guests are machines, which balance resizes without being told their names.
    fn is_machine(&self) -> bool {
        true
    }

    /// Whether such guests may have a root of their own, with the number of the host's.
    fn is_container(&self) -> bool {
        false
    }

    // What a process looks like. Pure functions of text that the process chose: they name it, and give access to nothing.

    /// Whether a program of this name may run such guests.
    fn is_program(&self, _program: Program<'_>) -> bool {
        false
    }

    /// What the command line of such a program says of its guest. `None` if it starts none.
    fn recognise(&self, _line: &CommandLine) -> Option<Looks> {
        None
    }

    /// The guest's name, if a part of a cgroup's path below `parents` is such a guest.
    fn unit(&self, _part: &str, _parents: &str) -> Option<String> {
        None
    }

    // How a guest is really reached. What answers must prove that it is the guest's own process.

    /// The monitors of the process.
    fn monitors(&self, _line: &CommandLine) -> Vec<Place> {
        Vec::new()
    }

    /// Whether a manager keeps records of such guests.
    fn has_records(&self) -> bool {
        false
    }

    /// The manager's record of the guest `name`, if the manager knows that this very process is the guest. A record is
    /// what verifies the name.
    fn record(&self, _root: &Root, _libvirt: &Uri, _name: &str, _pid: u32) -> Option<Managed> {
        None
    }

    /// Whether the guest may be asked in passing, without a trace in its manager.
    fn can_be_asked(&self, _target: &Target) -> bool {
        false
    }

    /// Asks the guest's monitor. Waits up to half a second where it hangs.
    fn ask(&self, _root: &Root, _target: &Target) -> Answer {
        Answer::default()
    }

    /// Connects to the guest's monitor.
    ///
    /// # Errors
    /// The guest has none, or it can't be reached.
    fn monitor(&self, _root: &Root, _target: &Target) -> Result<Box<dyn Monitor>, MonitorError> {
        Err(MonitorError::NoMonitor)
    }

    // What can be done to a guest.

    /// Why merging can't be switched while the guest runs, and what does work. `None` if it can.
    fn no_switch(&self, on: bool, _name: &str) -> Option<String> {
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
    /// The monitor fails or refuses. What was switched before that stays so.
    fn switch(
        &self,
        _root: &Root,
        _target: &Target,
        _on: bool,
        _dry_run: bool,
    ) -> Result<Vec<Switched>, MonitorError> {
        Err(MonitorError::NoMonitor)
    }

    /// Has the guest's manager start it with merging on or off from now on. Returns whether that is new, or `None`
    /// where nothing manages it.
    ///
    /// # Errors
    /// The manager can't be asked, or refuses.
    fn make_permanent(&self, _target: &Target, _on: bool, _dry_run: bool) -> Result<Option<bool>, MonitorError> {
        Ok(None)
    }

    /// The way to give the guest more memory or less.
    fn resize(&self) -> Resize {
        Resize::Unable(format!(
            "ksmith does not speak to the balloon of {}; put it into a cgroup of its own and name that",
            self.kind()
        ))
    }
}

/// What a command line says of its guest. It may lie.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Looks {
    /// The guest's own name.
    pub name: Option<String>,
    /// The UUID in lower case with dashes.
    pub uuid: Option<String>,
    /// The memory that the guest is given.
    pub memory_bytes: Option<u64>,
    /// The reason in a word why the guest's memory can't merge: `vfio`, `shared`, `hugepages`.
    pub obstacle: Option<&'static str>,
    /// Whether children of the process belong to the guest if their command line looks the same.
    pub includes_children: bool,
}

/// What the manager of a guest knows of it, and the guest can't choose.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Managed {
    /// The guest's UUID.
    pub uuid: Option<String>,
    /// The inner XML of libvirt's `<metadata>`.
    pub metadata: Option<String>,
}

/// What came of asking a guest's hypervisor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The answer of a QMP monitor.
    pub told: Option<Told>,
    /// The guest's own view of its memory.
    pub memory_bytes: Option<u64>,
    /// The guest's name, where only its hypervisor knows it.
    pub name: Option<String>,
    /// The reason why there is no answer.
    pub error: Option<String>,
}

/// A way to give a guest more memory or less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resize {
    /// The balloon, by QMP.
    Balloon,
    /// The management console of user-mode Linux. It may be there later than its guest.
    Console,
    /// The limit of its cgroup.
    Cgroup,
    /// None; the sentence says what would give it one.
    Unable(String),
}

/// The hypervisor of this kind; unknown kinds count as plain processes.
pub fn of_kind(kind: Kind) -> &'static dyn Hypervisor {
    REGISTRY.iter().find(|hypervisor| hypervisor.kind() == kind).copied().unwrap_or(&process::HYPERVISOR)
}
