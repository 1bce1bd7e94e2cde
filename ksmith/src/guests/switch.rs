//! The switch that a guest has: merging on or off while it runs.

use std::path::PathBuf;

use ksmith_core::guest::{Identity, Kind, Monitor as Place};
use ksmith_core::sample::ProcessId;

use super::libvirt::{Libvirt, LibvirtError, PassThrough, Uri, with_sharing};
use super::monitor::{self, Monitor, MonitorError};
use super::qmp::Qmp;
use crate::root::Root;

/// A guest to be switched, with what is needed to reach it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its first process.
    pub id: ProcessId,
    /// Its name.
    pub name: String,
    /// What its process told.
    pub(crate) identity: Identity,
    /// Which libvirt to ask, where libvirt holds its monitor.
    pub(super) libvirt: Option<(Uri, String)>,
}

/// Why a guest was not switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// It has no switch that anybody but itself could use; the sentence says what does work.
    #[error("{name} can't be switched while it runs: {why}")]
    NoSwitch {
        /// The guest.
        name: String,
        /// Why not, and what to do instead.
        why: String,
    },
    /// Its monitor fails or refuses.
    #[error("{name} could not be switched: {source}")]
    Monitor {
        /// The guest.
        name: String,
        /// Why not.
        source: MonitorError,
    },
    /// Its PID is another's by now.
    #[error("{name} has ended meanwhile")]
    Gone {
        /// The guest.
        name: String,
    },
}

/// A backend that was switched, or would be in a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    /// Its id.
    pub backend: String,
    /// Its size.
    pub bytes: u64,
}

impl Target {
    /// Whether this guest has a switch at all.
    ///
    /// # Errors
    /// It has none; the sentence says what does work.
    pub fn check(&self, on: bool) -> Result<(), SwitchError> {
        let why = match self.identity.kind {
            Kind::Qemu => return Ok(()),
            kind => no_switch(kind, on, &self.name),
        };
        Err(SwitchError::NoSwitch { name: self.name.clone(), why })
    }

    /// Switches merging of all its memory. Off un-merges it before this returns: that takes about a second for each
    /// gigabyte that is merged, and the guest's devices wait meanwhile. Backends that are as wanted are left alone.
    ///
    /// # Errors
    /// See [`SwitchError`]; backends that were switched before the error stay so.
    pub fn switch(&self, root: &Root, on: bool, dry_run: bool) -> Result<Vec<Switched>, SwitchError> {
        self.check(on)?;
        if !super::identities::is_alive(root, self.id) {
            return Err(SwitchError::Gone { name: self.name.clone() });
        }
        let failed = |source| match source {
            MonitorError::NoMonitor => SwitchError::NoSwitch { name: self.name.clone(), why: source.to_string() },
            source => SwitchError::Monitor { name: self.name.clone(), source },
        };
        let mut monitor = self.monitor(root).map_err(failed)?;
        let backends = monitor::backends(monitor.as_mut()).map_err(failed)?;
        // Only off: memory that is plugged into a guest that was switched on is for whoever plugs it in to offer.
        if !on && !dry_run {
            monitor::set_default(monitor.as_mut(), false);
        }
        let mut switched = Vec::new();
        for backend in backends {
            let Some(id) = backend.id.filter(|_| backend.merge != on) else { continue };
            if !dry_run {
                monitor::set_merge(monitor.as_mut(), &id, on).map_err(failed)?;
            }
            switched.push(Switched { backend: id, bytes: backend.size });
        }
        Ok(switched)
    }

    /// Makes libvirt start the guest with merging on or off from the next time on. Returns whether that is new.
    ///
    /// # Errors
    /// libvirt does not manage it, can't be asked, or refuses.
    pub fn make_permanent(&self, on: bool, dry_run: bool) -> Result<bool, SwitchError> {
        let Some((uri, uuid)) = &self.libvirt else {
            let word = if on { "on" } else { "off" };
            let why = format!("libvirt does not manage it: start it with -machine mem-merge={word} from now on");
            return Err(SwitchError::NoSwitch { name: self.name.clone(), why });
        };
        let change = || -> Result<bool, LibvirtError> {
            let mut libvirt = Libvirt::connect(uri)?;
            let domain = libvirt.domain(uuid)?;
            let definition = libvirt.definition(&domain)?;
            match with_sharing(&definition, on)? {
                Some(_) if dry_run => Ok(true),
                Some(changed) => libvirt.define(&changed).map(|()| true),
                None => Ok(false),
            }
        };
        change().map_err(|source| SwitchError::Monitor { name: self.name.clone(), source: source.into() })
    }

    /// Whether its monitor can be reached without libvirt.
    pub(super) fn has_own_socket(&self) -> bool {
        self.identity.monitors.iter().any(|place| matches!(place, Place::Path(_)))
    }

    /// The way to its monitor: its own socket first, since libvirt marks a guest that was spoken to.
    pub(crate) fn monitor(&self, root: &Root) -> Result<Box<dyn Monitor>, MonitorError> {
        let mut last = None;
        for place in &self.identity.monitors {
            let attempt: Result<Box<dyn Monitor>, MonitorError> = match (place, &self.libvirt) {
                (Place::Path(path), _) => Qmp::connect(&seen_from_here(root, self.id.pid, path), self.id.pid)
                    .map(|qmp| Box::new(qmp) as _),
                (Place::Inherited, Some((uri, uuid))) => {
                    PassThrough::connect(uri, uuid).map(|way| Box::new(way) as _).map_err(MonitorError::from)
                }
                (Place::Inherited, None) => continue,
            };
            match attempt {
                Ok(monitor) => return Ok(monitor),
                Err(error) => last = last.or(Some(error)),
            }
        }
        Err(last.unwrap_or(MonitorError::NoMonitor))
    }
}

/// The path as this process must write it: the guest's may be relative, or lie in a container.
fn seen_from_here(root: &Root, pid: u32, path: &str) -> PathBuf {
    let process = root.path(format!("proc/{pid}"));
    match path.strip_prefix('/') {
        Some(relative) => {
            let plain = root.path(relative);
            if plain.exists() { plain } else { process.join("root").join(relative) }
        }
        None => process.join("cwd").join(path),
    }
}

/// Why a guest of this kind has no switch, and the way that does work.
fn no_switch(kind: Kind, on: bool, name: &str) -> String {
    let (word, yes) = if on { ("on", "yes") } else { ("off", "no") };
    match kind {
        Kind::Uml => "user-mode Linux keeps its RAM in a shared file, which KSM passes over; there is nothing to \
                      switch"
            .to_owned(),
        Kind::CloudHypervisor => format!("cloud-hypervisor decides at start: restart it with --memory …,mergeable={word}"),
        Kind::Service => format!(
            "its processes offer their memory themselves, and only they can take that back: set MemoryKSM={yes} \
             (`systemctl edit {name}`) and restart it"
        ),
        Kind::Qemu => String::new(),
        Kind::Firecracker | Kind::Crosvm | Kind::Kvmtool | Kind::Container | Kind::Process if on => {
            "a process can only offer its memory itself: start it with `ksmith run`, or under systemd with MemoryKSM=yes"
                .to_owned()
        }
        Kind::Firecracker | Kind::Crosvm | Kind::Kvmtool | Kind::Container | Kind::Process => {
            "it offered its memory itself (prctl or madvise), and only it can take that back: restart it without \
             that; `ksmith unmerge` undoes all merging on the host"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_without_a_switch_is_told_what_does_work() {
        assert!(no_switch(Kind::Service, false, "redis").contains("MemoryKSM=no (`systemctl edit redis`)"));
        assert!(no_switch(Kind::CloudHypervisor, true, "c").contains("mergeable=on"));
        assert!(no_switch(Kind::Firecracker, false, "f").contains("restart it without"));
        assert!(no_switch(Kind::Process, true, "p").contains("ksmith run"));
        assert!(no_switch(Kind::Uml, false, "u").contains("shared file"));
    }

    #[test]
    fn a_path_is_seen_through_the_guests_own_eyes() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(seen_from_here(&root, 7, "q.sock"), tree.path().join("proc/7/cwd/q.sock"));
        assert_eq!(seen_from_here(&root, 7, "/run/q"), tree.path().join("proc/7").join("root").join("run/q"));
        std::fs::create_dir(tree.path().join("run")).unwrap();
        std::fs::write(tree.path().join("run/q"), "").unwrap();
        assert_eq!(seen_from_here(&root, 7, "/run/q"), tree.path().join("run/q"));
    }
}
