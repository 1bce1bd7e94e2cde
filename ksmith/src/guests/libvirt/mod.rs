//! libvirt without its library: who it manages, from its status files, and a small client for the few calls that a
//! switch needs, so that one binary runs with and without libvirt.
//!
//! Spoken to over local unix sockets only: `qemu:///system`, `qemu:///session`, or any other with `?socket=PATH`.
//! Remote hosts are out of place, since KSM merges on this one.

mod domain;
mod rpc;
mod sharing;
mod uri;
mod xdr;

pub(super) use domain::{Status, status};
pub(super) use rpc::Libvirt;
pub(super) use sharing::with_sharing;
pub use uri::{BadUri, Uri};

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::monitor::{Monitor, MonitorError};

/// Why libvirt did not do as asked.
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
pub(super) struct PassThrough {
    libvirt: Libvirt,
    domain: rpc::Domain,
}

impl PassThrough {
    /// Finds the running domain with this UUID.
    pub(super) fn connect(uri: &Uri, uuid: &str) -> Result<Self, LibvirtError> {
        let mut libvirt = Libvirt::connect(uri)?;
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
