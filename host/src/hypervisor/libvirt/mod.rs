//! QEMU under libvirt, without libvirt's library: domains from its status files, and a small client for the few calls
//! that a switch needs. So one binary runs with and without libvirt.
//!
//! The transport is a local unix socket: `qemu:///system`, `qemu:///session`, or any other with `?socket=PATH`. Remote
//! hosts are out of scope, since KSM merges on this one.

mod domain;
#[cfg(fuzzing)]
pub mod fuzzing;
mod rpc;
mod sharing;
#[cfg(test)]
mod testing;
mod uri;
#[cfg(test)]
#[path = "tests/wrong_peer.rs"]
mod wrong_peer;
mod xdr;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ksmith_core::guest::GuestKind;
use ksmith_core::kernel::CommandLine;
use serde_json::{Value, json};

use self::rpc::LibvirtConnection as Connection;
pub use self::uri::{BadUri, LibvirtUri};
use super::{
    ClaimedIdentity, GuestTarget, Hypervisor, ManagerRecord, MonitorError, MonitorSocket, QmpMonitor, qemu, qmp,
};
use crate::root::Root;

/// QEMU under libvirt, which holds its monitor.
#[derive(Debug)]
pub(super) struct Libvirt;

impl Hypervisor for Libvirt {
    fn kind(&self) -> GuestKind {
        qemu::KIND
    }

    fn manager(&self) -> Option<&'static str> {
        Some("libvirt")
    }

    fn recognise(&self, line: &CommandLine) -> Option<ClaimedIdentity> {
        qemu::monitors(line).contains(&MonitorSocket::Inherited).then(|| qemu::looks(line))
    }

    fn kept_out(&self, line: &CommandLine) -> Option<String> {
        qemu::is_kept_out(line).then(|| {
            format!("{}; take <nosharepages/> out of the domain (`ksmith merge on --permanent`)", qemu::KEPT_OUT)
        })
    }

    fn monitors(&self, line: &CommandLine) -> Vec<MonitorSocket> {
        qemu::monitors(line)
    }

    fn has_records(&self) -> bool {
        true
    }

    fn record(&self, root: &Root, libvirt: &LibvirtUri, name: &str, pid: u32) -> Option<ManagerRecord> {
        domain::record(root, libvirt, name, pid)
    }

    /// Tries the guest's own socket first, since libvirt marks a guest as tainted that was queried through it.
    fn monitor(&self, root: &Root, target: &GuestTarget) -> Result<Box<dyn QmpMonitor>, MonitorError> {
        let error = match qmp::connect(root, target.id.pid(), &target.monitors) {
            Ok(monitor) => return Ok(monitor),
            Err(error) => error,
        };
        let Some(uuid) = &target.managed_uuid else {
            return Err(match error {
                MonitorError::NoMonitor => MonitorError::NoRecord,
                error => error,
            });
        };
        let passed = PassThrough::connect(root, &target.libvirt, uuid, target.id.pid());
        match (passed, error) {
            (Ok(passed), _) => Ok(Box::new(passed)),
            (Err(why), MonitorError::NoMonitor) => Err(why),
            (Err(_), error) => Err(error),
        }
    }

    fn make_permanent(&self, target: &GuestTarget, on: bool, dry_run: bool) -> Result<Option<bool>, MonitorError> {
        let Some(uuid) = &target.managed_uuid else { return Ok(None) };
        match define(&target.libvirt, uuid, on, dry_run) {
            Err(why @ LibvirtError::Transient) => Err(MonitorError::Impossible(why.to_string())),
            defined => Ok(Some(defined?)),
        }
    }
}

/// Changes the domain's persistent definition. Returns true if a change was needed.
fn define(uri: &LibvirtUri, uuid: &str, on: bool, dry_run: bool) -> Result<bool, LibvirtError> {
    let mut libvirt = Connection::connect(uri)?;
    let domain = libvirt.domain(uuid)?;
    if !libvirt.is_persistent(&domain)? {
        return Err(LibvirtError::Transient);
    }
    let definition = libvirt.definition(&domain)?;
    match sharing::with_sharing(&definition, on)? {
        Some(changed) if !sharing::is_of_domain(&changed, uuid) => {
            Err(LibvirtError::Garbage("the definition is another domain's".to_owned()))
        }
        Some(_) if dry_run => Ok(true),
        Some(changed) => libvirt.define(&changed).map(|()| true),
        None => Ok(false),
    }
}

impl From<LibvirtError> for MonitorError {
    fn from(error: LibvirtError) -> Self {
        Self::Manager(Box::new(error))
    }
}

/// An error of a request to libvirt.
#[derive(Debug, thiserror::Error)]
pub enum LibvirtError {
    /// The socket is missing or does not answer.
    #[error("libvirt's socket {} fails: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// It requires a password or the like.
    #[error("libvirt asks for authentication that ksmith can't give: run it as root, on the host itself")]
    Authentication,
    /// It refuses, with its own message.
    #[error("libvirt refuses: {0}")]
    Refused(String),
    /// No definition of the domain is kept by libvirt.
    #[error(
        "this domain is transient, and libvirt forgets it when it ends: write <nosharepages/> where it is started from"
    )]
    Transient,
    /// Its reply is malformed.
    #[error("libvirt's answer makes no sense: {0}")]
    Garbage(String),
    /// The domain's XML can't be changed as wanted.
    #[error("the domain's XML can't be changed: {0}")]
    Xml(String),
}

/// The monitor of a domain, through libvirt. libvirt marks the domain as tainted ("custom-monitor") from then on.
#[derive(Debug)]
struct PassThrough {
    libvirt: Connection,
    domain: rpc::RemoteDomain,
}

impl PassThrough {
    /// Connects to the running domain with this UUID, if the process `pid` is that domain.
    fn connect(root: &Root, uri: &LibvirtUri, uuid: &str, pid: u32) -> Result<Self, MonitorError> {
        let mut libvirt = Connection::connect(uri)?;
        let domain = libvirt.domain(uuid)?;
        let mut passed = Self { libvirt, domain };
        let cpus = passed.execute("query-cpus-fast", json!({}), qmp::PATIENCE_OF_MANAGER)?;
        match are_threads_of(root, &cpus, pid) {
            true => Ok(passed),
            false => Err(MonitorError::OtherDomain { pid }),
        }
    }
}

/// Returns true if the vCPUs of a domain are threads of a process, by the reply of the domain's own monitor.
fn are_threads_of(root: &Root, cpus: &Value, pid: u32) -> bool {
    let is_its = |cpu: &Value| {
        let thread = cpu.get("thread-id").and_then(Value::as_u64);
        thread.is_some_and(|thread| root.path(format!("proc/{pid}/task/{thread}")).exists())
    };
    cpus.as_array().is_some_and(|cpus| !cpus.is_empty() && cpus.iter().all(is_its))
}

impl QmpMonitor for PassThrough {
    fn execute(&mut self, command: &str, arguments: Value, patience: Duration) -> Result<Value, MonitorError> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string();
        let answer = self.libvirt.monitor_command(&self.domain, &line, patience)?;
        let mut answer: Value =
            serde_json::from_str(&answer).map_err(|why| LibvirtError::Garbage(why.to_string()))?;
        if let Some(returned) = answer.get_mut("return") {
            return Ok(returned.take());
        }
        let mut why = answer.pointer("/error/desc").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
        qmp::cut_text(&mut why);
        Err(MonitorError::Refused { command: command.to_owned(), why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_the_process_that_has_its_processors() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/7/task/8")).unwrap();
        std::fs::create_dir_all(tree.path().join("proc/7/task/9")).unwrap();
        let is = |cpus: Value| are_threads_of(&Root::at(tree.path()), &cpus, 7);
        assert!(is(json!([{ "thread-id": 8 }, { "thread-id": 9 }])));
        for bad in
            [json!([]), json!({}), json!([{}]), json!([{ "thread-id": 10 }]), json!([{ "thread-id": 8 }, {}])]
        {
            assert!(!is(bad.clone()), "{bad}");
        }
    }
}
