//! The interface to one guest's memory, whatever the guest is.

use std::fmt;
use std::io;
use std::time::Duration;

use ksmith_core::balance::ReportedFigures;

/// Reads and resizes one guest's memory.
///
/// Every call ends in bounded time, whatever the guest does: a look in about two seconds, a resize in ten. The host's
/// own measure goes before the guest's figures: `given_bytes` is what the hypervisor or the ledger says,
/// `resident_bytes` is the host's.
pub trait MemoryActuator: Send + fmt::Debug {
    /// Enables what a look needs, such as the guest's statistics. Called before a look that may lead to a resize, and
    /// never for a look that only shows figures: that must write nothing.
    fn prepare(&mut self) {}

    /// Looks at the guest, and changes nothing.
    ///
    /// # Errors
    /// See [`ActuatorError`]. A figure that the guest does not report is `None` in [`ActuatorFigures::inside`], and no error.
    fn read_figures(&mut self) -> Result<ActuatorFigures, ActuatorError>;

    /// Resizes the guest towards `to_bytes` in verified steps, and stops early where a step has no effect.
    ///
    /// Returns the verified amount afterwards, which may be any between the one before and `to_bytes`.
    ///
    /// # Errors
    /// See [`ActuatorError`]. Changes before the failure are in the ledger.
    fn resize(&mut self, to_bytes: u64) -> Result<u64, ActuatorError>;

    /// The abilities of the actuator, known without asking.
    fn abilities(&self) -> ActuatorAbilities;
}

/// The figures of one guest at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ActuatorFigures {
    /// The memory that its hypervisor lets it have now.
    pub given_bytes: u64,
    /// The memory that it was started with.
    pub whole_bytes: u64,
    /// The memory that the host spends on it.
    pub resident_bytes: u64,
    /// The guest's own figures. Rates are since the look before.
    pub inside: ReportedFigures,
}

/// The abilities of an actuator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActuatorAbilities {
    /// The mechanism: `mconsole`, `virtio-balloon`, `virtio-mem`, `cgroup`. A stable name for columns and JSON.
    pub way: &'static str,
    /// True if memory can be taken.
    pub can_take: bool,
    /// True if memory can be given back.
    pub can_give: bool,
    /// The granule of resizes.
    pub step_bytes: u64,
    /// Reason and remedy, if an ability is missing.
    pub why_not: Option<String>,
}

/// An error of a look or a resize.
#[derive(Debug, thiserror::Error)]
pub enum ActuatorError {
    /// The guest has ended.
    #[error("it has ended")]
    Gone,
    /// The guest does not answer.
    #[error("it did not answer within {patience:?}")]
    Silent {
        /// The time that was allowed.
        patience: Duration,
    },
    /// The guest or its hypervisor refuses.
    #[error("it refuses {what}: {why}")]
    Refused {
        /// The request that was refused.
        what: String,
        /// The reason, in the words of the other side.
        why: String,
    },
    /// The answer is impossible.
    #[error("its answer makes no sense: {0}")]
    Nonsense(String),
    /// The guest has no means of being resized; the sentence names the remedy.
    #[error("it can't be resized: {0}")]
    Unable(String),
    /// A file or socket fails.
    #[error("{what}: {source}")]
    Io {
        /// The file or socket.
        what: String,
        /// The failure of that file or socket.
        source: io::Error,
    },
}
