//! The plan of a balance policy: actions and their reasons.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BalanceView, GuestView};
use crate::decide::DecisionReason;

/// A balance policy: a pure function of the views it was shown, as [`Policy`](crate::decide::Policy) is.
pub trait BalancePolicy: fmt::Debug + Send {
    /// Returns the name in the configuration: `[balance] policy = "…"`.
    fn name(&self) -> &'static str;
    /// Makes the plan for this view.
    fn decide(&mut self, view: &BalanceView) -> BalancePlan;
}

/// The actions, their reason, and the time of the next view.
#[derive(Debug, Clone, PartialEq)]
pub struct BalancePlan {
    /// In the order in which they are to be done: takes before gives.
    pub actions: Vec<BalanceAction>,
    /// The state in a word, and the reason in a sentence.
    pub reason: DecisionReason,
    /// The latest time of the next view, from now.
    pub check_after: Duration,
}

/// One action of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum BalanceAction {
    /// Let a guest have another amount of memory.
    Resize {
        /// The key of the guest.
        key: String,
        /// The amount that it has.
        from_bytes: u64,
        /// The amount that it is to have.
        to_bytes: u64,
        /// The reason, for a person.
        reason: String,
    },
    /// Have merging changed.
    Ksm {
        /// The change to merging.
        step: KsmStep,
        /// The reason, for a person.
        reason: String,
    },
}

impl BalanceAction {
    /// Creates a resize of this guest; `None` if it has that amount.
    pub(super) fn resize(guest: &GuestView, to_bytes: u64, reason: impl FnOnce() -> String) -> Option<Self> {
        let (key, from_bytes) = (guest.key.clone(), guest.given_bytes);
        (to_bytes != from_bytes).then(|| Self::Resize { key, from_bytes, to_bytes, reason: reason() })
    }

    /// Returns the key of the guest that it resizes, if any.
    pub(super) fn resized(&self) -> Option<&str> {
        match self {
            Self::Resize { key, .. } => Some(key),
            Self::Ksm { .. } => None,
        }
    }

    /// Returns true if it gives a guest memory.
    pub(super) fn is_give(&self) -> bool {
        matches!(self, Self::Resize { from_bytes, to_bytes, .. } if to_bytes > from_bytes)
    }
}

/// A change to merging that balance may request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "kebab-case")]
pub enum KsmStep {
    /// Merge what can be merged now: sharing comes before taking, and taking before swapping.
    BurstMerge,
    /// Stop merging this guest: its pages diverge, and the pool has memory for their copies.
    Unmerge {
        /// The key of the guest.
        key: String,
    },
    /// Offer no more memory to merging until the exposure is covered again.
    RefuseSwitches,
}
