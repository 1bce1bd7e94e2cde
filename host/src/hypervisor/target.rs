//! A guest that can be queried, switched and resized.

use ksmith_core::guest::{GuestId, ProcessIdentity};

use super::{
    Hypervisor, HypervisorReply, LibvirtUri, ManagerRecord, MonitorError, MonitorSocket, QmpMonitor,
    RecognisedProcess, ResizeMethod,
};
use crate::fair_pool::RequestAccount;
use crate::process::{has_ended, is_alive};
use crate::root::Root;

/// A guest with the data to reach it.
#[derive(Debug, Clone)]
pub struct GuestTarget {
    /// The guest's identity.
    pub id: GuestId,
    /// The guest's name.
    pub name: String,
    /// Identity of the first process.
    pub identity: ProcessIdentity,
    /// Its monitors.
    pub(super) monitors: Vec<MonitorSocket>,
    /// UUID in its manager's record of this process. Never that of the command line: it may be another guest's.
    pub(super) managed_uuid: Option<String>,
    /// URI of the libvirt to connect to, if libvirt manages the guest.
    pub(super) libvirt: LibvirtUri,
    hypervisor: &'static dyn Hypervisor,
}

/// The reason why a guest was not switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// It can't be switched from outside; the sentence has an alternative.
    #[error("{name} can't be switched while it runs: {why}")]
    NoSwitch {
        /// The guest.
        name: String,
        /// The reason, and the alternative.
        why: String,
    },
    /// Its monitor fails or refuses.
    #[error("{name} could not be switched: {source}")]
    Monitor {
        /// The guest.
        name: String,
        /// Error of the monitor.
        source: MonitorError,
    },
    /// It has ended, and its PID may have been reused.
    #[error("{name} has ended meanwhile")]
    Gone {
        /// The guest.
        name: String,
    },
    /// Its process can't be read now: it may be there, and may be another by now.
    #[error("{name} can't be switched: process {pid} can't be read; try again")]
    Unreadable {
        /// The guest.
        name: String,
        /// The PID of its first process.
        pid: u32,
    },
}

/// A backend that was switched, or would be without a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchedBackend {
    /// The id of the backend.
    pub backend: String,
    /// The size of the backend.
    pub bytes: u64,
}

impl GuestTarget {
    /// Creates the target of a guest from its recognised first process.
    pub(crate) fn new(
        id: GuestId,
        first: &RecognisedProcess,
        managed: Option<&ManagerRecord>,
        libvirt: &LibvirtUri,
    ) -> Self {
        let identity = first.identity.clone();
        Self {
            id,
            name: identity.name.clone(),
            monitors: first.monitors.clone(),
            managed_uuid: managed.and_then(|managed| managed.uuid.clone()),
            libvirt: libvirt.clone(),
            hypervisor: first.hypervisor,
            identity,
        }
    }

    /// Renames the target to the guest's displayed name.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    /// Checks that this guest can be switched from outside.
    ///
    /// # Errors
    /// It can't be; the sentence has an alternative.
    pub fn check(&self, on: bool) -> Result<(), SwitchError> {
        match self.hypervisor.no_switch(on, &self.name) {
            None => Ok(()),
            Some(why) => Err(SwitchError::NoSwitch { name: self.name.clone(), why }),
        }
    }

    /// Switches merging of all the guest's memory. Off un-merges it before this returns: that takes about a second for
    /// each merged gigabyte, and the guest's devices wait meanwhile.
    ///
    /// # Errors
    /// See [`SwitchError`]; backends that were switched before the error stay so.
    pub fn switch(&self, root: &Root, on: bool, dry_run: bool) -> Result<Vec<SwitchedBackend>, SwitchError> {
        self.check(on)?;
        let process = self.id.process();
        if !is_alive(root, process) {
            let name = self.name.clone();
            return Err(match has_ended(root, process) {
                true => SwitchError::Gone { name },
                false => SwitchError::Unreadable { name, pid: process.pid },
            });
        }
        self.hypervisor.switch(root, self, on, dry_run).map_err(|source| match source {
            MonitorError::NoMonitor | MonitorError::NoRecord => {
                SwitchError::NoSwitch { name: self.name.clone(), why: source.to_string() }
            }
            source => SwitchError::Monitor { name: self.name.clone(), source },
        })
    }

    /// Makes the manager start the guest with merging on or off from now on. Returns true if that is a change.
    ///
    /// # Errors
    /// No manager can do so (the sentence has an alternative), or it can't be reached or refuses.
    pub fn make_permanent(&self, on: bool, dry_run: bool) -> Result<bool, SwitchError> {
        match self.hypervisor.make_permanent(self, on, dry_run) {
            Ok(Some(is_new)) => Ok(is_new),
            Ok(None) => {
                let why = self.hypervisor.permanently(self, on);
                Err(SwitchError::NoSwitch { name: self.name.clone(), why })
            }
            Err(MonitorError::Impossible(why)) => Err(SwitchError::NoSwitch { name: self.name.clone(), why }),
            Err(source) => Err(SwitchError::Monitor { name: self.name.clone(), source }),
        }
    }

    /// Returns the account of requests to this guest.
    pub fn account(&self, root: &Root) -> RequestAccount {
        let GuestTarget { id, identity, .. } = self;
        RequestAccount::of_guest(root, id.pid(), identity.uid, identity.is_verified)
    }

    /// Returns true if the guest may be queried periodically.
    pub fn can_be_asked(&self) -> bool {
        self.hypervisor.can_be_asked(self)
    }

    /// Queries the guest's monitor. Waits up to half a second if it hangs.
    pub fn query_guest(&self, root: &Root) -> HypervisorReply {
        self.hypervisor.query_guest(root, self)
    }

    /// Connects to the guest's monitor.
    ///
    /// # Errors
    /// No monitor can be reached.
    pub fn monitor(&self, root: &Root) -> Result<Box<dyn QmpMonitor>, MonitorError> {
        self.hypervisor.monitor(root, self)
    }

    /// Returns the URI of the libvirt to connect to, if libvirt manages the guest.
    pub fn libvirt(&self) -> &LibvirtUri {
        &self.libvirt
    }

    /// Returns the method to resize the guest's memory.
    pub fn resize(&self) -> ResizeMethod {
        self.hypervisor.resize()
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::guest::GuestKind;
    use ksmith_core::kernel::CommandLine;
    use ksmith_core::sample::ProcessId;

    use super::*;
    use crate::hypervisor::{find_by_kind, recognise};

    #[test]
    fn a_guest_that_can_not_be_read_is_not_switched_and_not_gone() {
        let tree = tempfile::tempdir().unwrap();
        let id = GuestId::new(ProcessId { pid: 7, start_ticks: 70 });
        let found = recognise("qemu-system-x86", &CommandLine::parse(b"qemu-system-x86_64\0"), None, 1, None);
        let target = GuestTarget::new(id, &found, None, &LibvirtUri::default());
        let switch = || target.switch(&Root::at(tree.path()), true, false).unwrap_err();
        assert!(matches!(switch(), SwitchError::Gone { .. }));
        // An error that says nothing of the process, as of one that executes a program and does not answer.
        std::fs::create_dir_all(tree.path().join("proc/7/stat")).unwrap();
        assert!(matches!(switch(), SwitchError::Unreadable { pid: 7, .. }));
    }

    #[test]
    fn a_guest_without_a_switch_is_told_what_does_work() {
        let no_switch = |kind, on, name| find_by_kind(GuestKind::new(kind)).no_switch(on, name).unwrap();
        assert!(no_switch("service", false, "redis").contains("MemoryKSM=no (`systemctl edit redis`)"));
        assert!(no_switch("cloud-hypervisor", true, "c").contains("mergeable=on"));
        assert!(no_switch("firecracker", false, "f").contains("restart it without"));
        assert!(no_switch("process", true, "p").contains("ksmith run"));
        assert!(no_switch("uml", false, "u").contains("shared file"));
        assert_eq!(find_by_kind(GuestKind::new("qemu")).no_switch(true, "q"), None);
    }
}
