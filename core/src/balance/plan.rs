//! What a policy of balance wants done, and why.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::View;
use crate::decide::Reason;

/// A way of balancing guests: a pure function of the views it was shown, as [`Policy`](crate::decide::Policy) is.
pub trait BalancePolicy: fmt::Debug + Send {
    /// The name in the configuration: `[balance] policy = "…"`.
    fn name(&self) -> &'static str;
    /// What to do now.
    fn decide(&mut self, view: &View) -> Plan;
}

/// What to do, why, and when to look again.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// In the order in which they are to be done: takes before gives.
    pub actions: Vec<Action>,
    /// The whole in a word and a sentence.
    pub reason: Reason,
    /// When to look again at the latest.
    pub check_after: Duration,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Let a guest have another amount of memory.
    Resize {
        /// Whose.
        key: String,
        /// What it has.
        from_bytes: u64,
        /// What it is to have.
        to_bytes: u64,
        /// Why, for a person.
        reason: String,
    },
    /// Have merging changed.
    Ksm {
        /// How.
        step: KsmStep,
        /// Why, for a person.
        reason: String,
    },
}

/// What balance may ask of merging.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum KsmStep {
    /// Merge what can be merged now: sharing comes before squeezing, and squeezing before swapping.
    BurstMerge,
    /// Stop merging this guest, whose pages diverge, while there is room for them to do so one guest at a time.
    Unmerge {
        /// Which guest.
        key: String,
    },
    /// Offer no more memory to merging until the exposure is covered again.
    RefuseSwitches,
}
