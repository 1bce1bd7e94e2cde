//! QEMU under libvirt, without libvirt's library: domains from its status files, and a small client for the few calls
//! that a switch needs. So one binary runs with and without libvirt.
//!
//! Spoken to over local unix sockets only: `qemu:///system`, `qemu:///session`, or any other with `?socket=PATH`.
//! Remote hosts are out of place, since KSM merges on this one.

mod domain;
mod rpc;
mod sharing;
mod uri;
mod xdr;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ksmith_core::guest::Kind;
use ksmith_core::kernel::CommandLine;
use serde_json::{Value, json};

use self::rpc::Libvirt as Connection;
pub use self::uri::{BadUri, Uri};
use super::{
    Answer, Hypervisor, Looks, Managed, Monitor, MonitorError, Place, Program, Resize, Switched, Target, qemu, qmp,
};
use crate::root::Root;

/// The entry of the registry.
pub(super) const HYPERVISOR: Libvirt = Libvirt;

/// QEMU under libvirt, which holds its monitor.
#[derive(Debug)]
pub(super) struct Libvirt;

impl Hypervisor for Libvirt {
    fn kind(&self) -> Kind {
        qemu::KIND
    }

    fn is_program(&self, program: Program<'_>) -> bool {
        qemu::is_program(program)
    }

    fn recognise(&self, line: &CommandLine) -> Option<Looks> {
        qemu::monitors(line).contains(&Place::Inherited).then(|| qemu::looks(line))
    }

    fn monitors(&self, line: &CommandLine) -> Vec<Place> {
        qemu::monitors(line)
    }

    fn managed(&self, root: &Root, libvirt: &Uri, name: &str, pid: u32) -> Managed {
        domain::status(root, libvirt.driver(), name, pid).unwrap_or_default()
    }

    fn can_be_asked(&self, target: &Target) -> bool {
        qemu::has_own_socket(target)
    }

    fn ask(&self, root: &Root, target: &Target) -> Answer {
        qmp::answer(self.monitor(root, target))
    }

    /// Its own socket first, since libvirt marks a guest that was spoken to.
    fn monitor(&self, root: &Root, target: &Target) -> Result<Box<dyn Monitor>, MonitorError> {
        let error = match qmp::connect(root, target.id.pid(), &target.monitors) {
            Ok(monitor) => return Ok(monitor),
            Err(error) => error,
        };
        let Some(uuid) = &target.uuid else { return Err(error) };
        let passed = PassThrough::connect(&target.libvirt, uuid).map_err(MonitorError::from);
        match (passed, error) {
            (Ok(passed), _) => Ok(Box::new(passed)),
            (Err(why), MonitorError::NoMonitor) => Err(why),
            (Err(_), error) => Err(error),
        }
    }

    fn no_switch(&self, _on: bool, _name: &str) -> Option<String> {
        None
    }

    fn switch(&self, root: &Root, target: &Target, on: bool, dry_run: bool) -> Result<Vec<Switched>, MonitorError> {
        qemu::switch(self.monitor(root, target)?.as_mut(), on, dry_run)
    }

    fn make_permanent(&self, target: &Target, on: bool, dry_run: bool) -> Result<Option<bool>, MonitorError> {
        let Some(uuid) = &target.uuid else { return Ok(None) };
        Ok(Some(define(&target.libvirt, uuid, on, dry_run)?))
    }

    fn resize(&self) -> Resize {
        Resize::Balloon
    }
}

/// Changes the domain's definition. Returns whether that was needed.
fn define(uri: &Uri, uuid: &str, on: bool, dry_run: bool) -> Result<bool, LibvirtError> {
    let mut libvirt = Connection::connect(uri)?;
    let domain = libvirt.domain(uuid)?;
    let definition = libvirt.definition(&domain)?;
    match sharing::with_sharing(&definition, on)? {
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

/// The reason why libvirt did not do as asked.
#[derive(Debug, thiserror::Error)]
pub enum LibvirtError {
    /// It is not there, or does not answer.
    #[error("libvirt's socket {} fails: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
    /// It wants a password or the like.
    #[error("libvirt asks for authentication that ksmith can't give: run it as root, on the host itself")]
    Authentication,
    /// It refuses, in its own words.
    #[error("libvirt refuses: {0}")]
    Refused(String),
    /// Its answer makes no sense to us.
    #[error("libvirt's answer makes no sense: {0}")]
    Garbage(String),
    /// Its XML can't be changed as wanted.
    #[error("the domain's XML can't be changed: {0}")]
    Xml(String),
}

/// One domain's monitor, through libvirt. libvirt marks the domain as tainted ("custom-monitor") from then on.
#[derive(Debug)]
struct PassThrough {
    libvirt: Connection,
    domain: rpc::Domain,
}

impl PassThrough {
    /// Finds the running domain with this UUID.
    fn connect(uri: &Uri, uuid: &str) -> Result<Self, LibvirtError> {
        let mut libvirt = Connection::connect(uri)?;
        let domain = libvirt.domain(uuid)?;
        Ok(Self { libvirt, domain })
    }
}

impl Monitor for PassThrough {
    fn execute(&mut self, command: &str, arguments: Value, patience: Duration) -> Result<Value, MonitorError> {
        let line = json!({ "execute": command, "arguments": arguments }).to_string();
        let answer = self.libvirt.monitor_command(&self.domain, &line, patience)?;
        let mut answer: Value =
            serde_json::from_str(&answer).map_err(|why| LibvirtError::Garbage(why.to_string()))?;
        if let Some(returned) = answer.get_mut("return") {
            return Ok(returned.take());
        }
        let why = answer.pointer("/error/desc").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
        Err(MonitorError::Refused { command: command.to_owned(), why })
    }
}
