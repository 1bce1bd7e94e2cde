//! What takes memory from one guest and gives it back, whatever the guest is.

use std::fmt;
use std::io;
use std::time::Duration;

use ksmith_core::balance::Inside;

/// One guest's memory. Every call ends in bounded time (about two seconds at most for a look, ten for a resize),
/// whatever the guest does.
///
/// What a guest says is never believed where the host can measure: `given_bytes` is what the hypervisor or the
/// ledger knows, `resident_bytes` is the host's own figure.
pub trait Actuator: Send + fmt::Debug {
    /// Looks, and changes nothing.
    ///
    /// # Errors
    /// See [`ActuatorError`]. What only the guest could tell and did not is `None` in [`Look::inside`], no error.
    fn look(&mut self) -> Result<Look, ActuatorError>;

    /// Lets the guest have `to_bytes`, in steps of its own, each verified; stops early where a step does not take.
    /// Returns what the guest has afterwards, as verified: it may be any amount between before and `to_bytes`.
    ///
    /// # Errors
    /// Nothing more can be said of the guest than [`ActuatorError`] says. What was changed before is in the ledger.
    fn resize(&mut self, to_bytes: u64) -> Result<u64, ActuatorError>;

    /// What it can and can't do. Costs nothing.
    fn abilities(&self) -> Abilities;
}

/// What was seen of one guest.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Look {
    /// What its hypervisor lets it have now.
    pub given_bytes: u64,
    /// What it was started with.
    pub whole_bytes: u64,
    /// What the host spends on it.
    pub resident_bytes: u64,
    /// What it says of itself; rates are since the look before.
    pub inside: Inside,
}

/// What an actuator can do to its guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// The way: `mconsole`, `virtio-balloon`, `cgroup`. Stable, for columns and JSON.
    pub way: &'static str,
    /// Whether memory can be taken.
    pub can_take: bool,
    /// Whether memory can be given back.
    pub can_give: bool,
    /// The granularity.
    pub step_bytes: u64,
    /// Why one of them can't be done, and what would make it possible.
    pub why_not: Option<String>,
}

/// Why a guest could not be looked at or resized.
#[derive(Debug, thiserror::Error)]
pub enum ActuatorError {
    /// It has ended.
    #[error("it has ended")]
    Gone,
    /// It does not answer.
    #[error("it gave no answer within {patience:?}")]
    Silent {
        /// How long it was waited for.
        patience: Duration,
    },
    /// It, or its hypervisor, refuses.
    #[error("it refuses {what}: {why}")]
    Refused {
        /// What was asked.
        what: String,
        /// Its own words.
        why: String,
    },
    /// It answers what can't be true.
    #[error("its answer makes no sense: {0}")]
    Nonsense(String),
    /// This guest has no such means; the sentence says what would give it one.
    #[error("it can't be resized: {0}")]
    Unable(String),
    /// A file or socket fails.
    #[error("{what}: {source}")]
    Io {
        /// Which.
        what: String,
        /// How.
        source: io::Error,
    },
}
