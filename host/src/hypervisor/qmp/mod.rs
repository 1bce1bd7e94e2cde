//! The QEMU Machine Protocol, and ksmith's queries over it. QEMU speaks it, and hypervisors that follow QEMU.

mod place;
mod reply;
mod socket;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

pub use self::place::{MonitorSocket, connect};
pub use self::reply::HypervisorReply;
pub(super) use self::reply::cut_text;

/// Deadline of a query; QEMU answers within a millisecond unless its main loop is busy.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// Deadline of a reply that a manager forwards: it may be busy with the guest.
pub(super) const PATIENCE_OF_MANAGER: Duration = Duration::from_secs(10);

/// Deadline of a switch to off: QEMU answers only when it has un-merged everything, and a core un-merges about a
/// gigabyte a second.
const PATIENCE_TO_SWITCH: Duration = Duration::from_secs(600);

/// Deadline of a switch to on: QEMU only marks the memory.
const PATIENCE_TO_SWITCH_ON: Duration = Duration::from_secs(10);

/// An error of a request to a monitor.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// The connection fails.
    #[error("the QMP socket {} fails: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The socket on the command line is served by another process than the guest: nothing was sent to it.
    #[error("the QMP socket {} belongs to process {pid} and not to the guest: it was left alone", path.display())]
    Foreign {
        /// The socket.
        path: PathBuf,
        /// The process that listens there.
        pid: u32,
    },
    /// The socket on the command line is another user's file: nothing connected to it.
    #[error("the QMP socket {} is not a file of the user of process {pid}: it was left alone", path.display())]
    OfOther {
        /// The socket.
        path: PathBuf,
        /// The guest's process.
        pid: u32,
    },
    /// The domain of libvirt is another process than the guest: libvirt was only asked for its threads.
    #[error("libvirt's domain is another process than {pid}: it was left alone")]
    OtherDomain {
        /// The PID of the guest.
        pid: u32,
    },
    /// The guest has its monitor from libvirt, and libvirt has no record of it.
    #[error(
        "it is started as by libvirt, and libvirt has no record of this process: it can only be switched under libvirt, or \
         with a QMP socket of its own (-qmp unix:PATH,server=on,wait=off)"
    )]
    NoRecord,
    /// The data received is not QMP.
    #[error("the QMP socket {} sends no QMP: {what}", path.display())]
    Garbage {
        /// The socket.
        path: PathBuf,
        /// The data received, cut to a length fit for a log line.
        what: String,
    },
    /// QEMU refuses the command.
    #[error("QEMU refuses {command}: {why}")]
    Refused {
        /// The QMP command.
        command: String,
        /// Its error message.
        why: String,
    },
    /// The manager that holds the monitor can't be reached, or refuses.
    #[error(transparent)]
    Manager(Box<dyn std::error::Error + Send + Sync>),
    /// The manager can't do it for this guest, with the reason.
    #[error("{0}")]
    Impossible(String),
    /// The guest has no monitor.
    #[error(
        "it has no monitor that ksmith can query. QEMU has one if started with -qmp unix:PATH,server=on,wait=off \
             or under libvirt; without one, -machine mem-merge=off keeps its memory from merging"
    )]
    NoMonitor,
}

/// A connection to one guest's monitor.
pub trait QmpMonitor {
    /// Executes a QMP command and returns its result.
    ///
    /// # Errors
    /// The monitor refuses, breaks the protocol, or does not answer within `patience`.
    fn execute(&mut self, command: &str, arguments: Value, patience: Duration) -> Result<Value, MonitorError>;
}

/// A memory backend of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MemoryBackend {
    /// Its id: `pc.ram`.
    #[serde(default)]
    pub id: Option<String>,
    /// The size in bytes.
    pub size: u64,
    /// True if it is offered to KSM.
    pub merge: bool,
    /// True if it is shared with other processes, and so can't merge.
    #[serde(default)]
    pub share: bool,
}

/// The monitor's data on a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonitorReply {
    /// Name of the guest.
    pub name: Option<String>,
    /// UUID of the guest; all zeros counts as none.
    pub uuid: Option<String>,
    /// `running`, `paused` and so on.
    pub status: Option<String>,
    /// The backends of its memory.
    pub backends: Vec<MemoryBackend>,
}

/// Queries a monitor, if there is one, also for the memory if that is not `known`. A guest without a monitor gives an
/// empty reply and no error.
pub(super) fn answer(monitor: Result<Box<dyn QmpMonitor>, MonitorError>, known: Option<u64>) -> HypervisorReply {
    let query = |mut monitor: Box<dyn QmpMonitor>| {
        let told = query_monitor(monitor.as_mut())?;
        Ok((told, known.or_else(|| query_memory(monitor.as_mut()))))
    };
    match monitor.and_then(query) {
        Ok((told, memory_bytes)) => {
            HypervisorReply { told: Some(told), memory_bytes, ..HypervisorReply::default() }
        }
        Err(MonitorError::NoMonitor) => HypervisorReply::default(),
        Err(error) => HypervisorReply { error: Some(error.to_string()), ..HypervisorReply::default() },
    }
}

/// Queries the size of the guest's memory; `None` before QEMU 2.11, and from hypervisors that only follow QEMU.
fn query_memory(monitor: &mut dyn QmpMonitor) -> Option<u64> {
    total_memory(&monitor.execute("query-memory-size-summary", json!({}), PATIENCE).ok()?)
}

/// Returns the memory of a guest by the reply to `query-memory-size-summary`, in bytes; `None` if it has none.
pub fn total_memory(reply: &Value) -> Option<u64> {
    let bytes = |key: &str| reply.get(key).and_then(Value::as_u64);
    bytes("base-memory")?.checked_add(bytes("plugged-memory").unwrap_or(0))
}

/// Queries name, UUID, status and memory backends.
///
/// # Errors
/// As [`QmpMonitor::execute`].
pub fn query_monitor(monitor: &mut dyn QmpMonitor) -> Result<MonitorReply, MonitorError> {
    let mut text = |command: &str, key: &str| -> Result<Option<String>, MonitorError> {
        let answer = monitor.execute(command, json!({}), PATIENCE)?;
        Ok(answer.get(key).and_then(Value::as_str).map(str::to_owned))
    };
    let name = text("query-name", "name")?;
    let uuid = text("query-uuid", "UUID")?.filter(|uuid| uuid.chars().any(|c| c != '0' && c != '-'));
    let status = text("query-status", "status")?;
    Ok(MonitorReply { name, uuid, status, backends: backends(monitor)? })
}

/// Queries the memory backends.
pub(super) fn backends(monitor: &mut dyn QmpMonitor) -> Result<Vec<MemoryBackend>, MonitorError> {
    let answer = monitor.execute("query-memdev", json!({}), PATIENCE)?;
    serde_json::from_value(answer)
        .map_err(|why| MonitorError::Refused { command: "query-memdev".to_owned(), why: why.to_string() })
}

/// Offers a backend to KSM or withdraws it. Withdrawing un-merges it before this returns.
pub(super) fn set_merge(monitor: &mut dyn QmpMonitor, id: &str, on: bool) -> Result<(), MonitorError> {
    let arguments = json!({ "path": format!("/objects/{id}"), "property": "merge", "value": on });
    let patience = if on { PATIENCE_TO_SWITCH_ON } else { PATIENCE_TO_SWITCH };
    monitor.execute("qom-set", arguments, patience).map(|_| ())
}

/// Sets the default for memory that QEMU allocates from now on, such as that of a hot-plugged device. A refusal of an
/// old QEMU is no error: the guest's offer is queried periodically.
pub(super) fn set_default(monitor: &mut dyn QmpMonitor, on: bool) {
    let arguments = json!({ "path": "/machine", "property": "mem-merge", "value": on });
    let _ = monitor.execute("qom-set", arguments, PATIENCE);
}

#[cfg(test)]
mod tests;
