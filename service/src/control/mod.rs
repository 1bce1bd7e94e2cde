//! The control socket, at which commands query a running daemon. Root only; one JSON line each way.

mod client;
mod figures;
mod pending;
mod server;
mod trimmed;

pub use crate::socket::{PeerGuard, PeerWatch, watch_peer};
pub use client::{ClientError, ControlClient};
pub use figures::{FigureAnswers, WatchRequest, WatchedFigures};
pub use pending::PendingRequest;
pub(crate) use pending::refusal;
pub use server::serve;
pub use trimmed::trimmed;

use ksmith_core::account::HostTotals;
use ksmith_core::decide::{CpuShare, PolicyLimits};
use ksmith_core::sample::{ProcessSample, Sample};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};

/// A control request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub enum ControlRequest {
    /// The newest sample and what was decided on it.
    Status,
    /// The guests of the host, with their figures.
    Guests,
    /// The plan of balance.
    Balance,
    /// Hold a guest, or release it.
    Hold(HoldRequest),
    /// Give a guest memory, or take some; answered when it is done.
    Resize(ResizeRequest),
    /// Report that a guest was switched by another program than the daemon.
    Switched {
        /// The PID.
        pid: u32,
        /// True if it is on now.
        on: bool,
    },
    /// Make clean passes; answered when they are done.
    Scan {
        /// Number of passes, at least 1.
        passes: u64,
        /// The most CPU that ksmd may use for it, over 0 and up to 1; less where the configuration says so.
        #[serde(default)]
        max_cpu: Option<f64>,
    },
    /// Keep ksmd parked; answered at once.
    Pause {
        /// The time of the pause, over 0. `None` until it is resumed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seconds: Option<f64>,
    },
    /// End a pause; answered at once.
    Resume,
}

/// A request to hold a guest, or to release it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldRequest {
    /// Its key, UUID, name or PID.
    pub guest: String,
    /// True to release it.
    pub release: bool,
    /// True to describe the effect only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

/// A request to give a guest memory, or to take some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    /// Its key, UUID, name or PID.
    pub guest: String,
    /// True to give, false to take.
    pub give: bool,
    /// The amount of memory.
    pub bytes: u64,
    /// True to describe the effect only.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

/// Omits a field from requests that do without it, for a daemon that does not know it.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Refusal of a scan that has nothing to do.
pub const NOTHING_TO_SCAN: &str =
    "no process offers memory to KSM, so there is nothing to scan; see `ksmith doctor`";

/// Returns true if ksmd has nothing to scan. A hypervisor may run that does not offer its memory.
pub fn nothing_to_scan(sample: &Sample) -> bool {
    sample.ksm.tracked_pages() == 0 && !sample.processes.iter().any(ProcessSample::may_merge)
}

/// Error of a scan that the daemon's end cuts short.
const STOPPED: &str = "the daemon was stopped before the scan was done: start it, or scan again";

/// Error of any other request that the daemon's end leaves unanswered.
const UNANSWERED: &str = "the daemon was stopped before it answered: start it, and ask again";

impl ControlRequest {
    /// Returns the error for the case that the daemon ends before it answers.
    fn cut_short(&self) -> &'static str {
        if matches!(self, Self::Scan { .. }) { STOPPED } else { UNANSWERED }
    }
}

/// Returns the limits of a scan on demand: the operator's, and `max_cpu` if that is less than theirs.
#[must_use]
pub fn scan_limits(configured: &PolicyLimits, max_cpu: CpuShare) -> PolicyLimits {
    let max_cpu = if max_cpu < configured.max_cpu { max_cpu } else { configured.max_cpu };
    PolicyLimits { max_cpu, ..configured.clone() }
}

/// A control reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "lowercase")]
pub enum ControlReply {
    /// The answer to [`ControlRequest::Status`].
    Status(Box<StatusReport>),
    /// The answer to [`ControlRequest::Guests`].
    Guests(Box<GuestsReport>),
    /// The answer to [`ControlRequest::Switched`].
    Noted,
    /// The answer to [`ControlRequest::Scan`].
    Scan(ScanReply),
    /// The answer to [`ControlRequest::Balance`].
    Balance(Box<BalanceReport>),
    /// The answer to [`ControlRequest::Hold`], [`ControlRequest::Pause`] and [`ControlRequest::Resume`].
    Done {
        /// The effect in a sentence.
        message: String,
    },
    /// The answer to [`ControlRequest::Resize`].
    Resized(ResizeReply),
    /// The answer to a request for a guest that matches none, or several.
    NoGuest {
        /// The reason, with the candidates.
        message: String,
    },
    /// The answer to anything that can't be done.
    Error {
        /// The reason for the refusal.
        message: String,
    },
}

impl ControlReply {
    /// Refuses a request.
    pub fn error(why: impl ToString) -> Self {
        Self::Error { message: why.to_string() }
    }
}

/// The outcome of a resize.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResizeReply {
    /// The guest's name.
    pub guest: String,
    /// Amount before the resize.
    pub from_bytes: u64,
    /// Amount that was requested.
    pub wanted_bytes: u64,
    /// Amount after the resize.
    pub given_bytes: u64,
}

/// Figures from before and after a scan on demand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScanReply {
    /// Before the first pass.
    pub before: ScanFigures,
    /// After the last.
    pub after: ScanFigures,
}

/// Figures that show the effect of a scan on demand.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScanFigures {
    /// Saved, in bytes.
    pub saved_bytes: u64,
    /// Saved less metadata.
    pub profit_bytes: i64,
    /// CPU seconds that ksmd has used since boot.
    pub ksmd_cpu_seconds: f64,
}

impl ScanFigures {
    /// Computes the figures of a sample.
    pub fn from_sample(sample: &Sample) -> Self {
        let totals = HostTotals::from_sample(sample);
        Self {
            saved_bytes: totals.saved_bytes,
            profit_bytes: totals.profit_bytes,
            ksmd_cpu_seconds: sample.ksmd_cpu_ns.get().unwrap_or(0) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_one_json_object_each() {
        let read = |text| serde_json::from_str::<ControlRequest>(text);
        assert_eq!(read(r#"{"request":"status"}"#).unwrap(), ControlRequest::Status);
        assert_eq!(
            read(r#"{"request":"scan","passes":2}"#).unwrap(),
            ControlRequest::Scan { passes: 2, max_cpu: None }
        );
        let limited = ControlRequest::Scan { passes: 2, max_cpu: Some(0.5) };
        assert_eq!(read(r#"{"request":"scan","passes":2,"max_cpu":0.5}"#).unwrap(), limited);
        assert_eq!(read(r#"{"request":"pause"}"#).unwrap(), ControlRequest::Pause { seconds: None });
        assert_eq!(
            read(r#"{"request":"pause","seconds":90}"#).unwrap(),
            ControlRequest::Pause { seconds: Some(90.0) }
        );
        assert_eq!(read(r#"{"request":"resume"}"#).unwrap(), ControlRequest::Resume);
        for bad in [r#"{"request":"scan"}"#, r#"{"request":"scan","passes":-1}"#, r#"{"request":"halt"}"#, "[]", ""]
        {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_scan_keeps_to_the_operators_limits() {
        let share = |part| CpuShare::new(part).unwrap();
        let configured = PolicyLimits { max_cpu: share(0.5), max_pages_to_scan: 700, min_sleep_milliseconds: 9 };
        let of = |part| scan_limits(&configured, share(part));
        assert_eq!(of(1.0), configured);
        assert_eq!(of(0.2), PolicyLimits { max_cpu: share(0.2), ..configured.clone() });
    }
}
