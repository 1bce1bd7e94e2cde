//! The model of `ksmith balance`: the pool, its guests, and the plan for each, with reasons.

use serde::{Deserialize, Serialize};

use crate::balance::{GuestView, KsmStep, PoolView};

/// Everything that `ksmith balance` shows, as of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceReport {
    /// True if a daemon carries plans out.
    pub is_enabled: bool,
    /// The name of the policy.
    pub policy: String,
    /// The state of the policy, in one word.
    pub state: String,
    /// The reason of the state, in a sentence.
    pub reason: String,
    /// `host`, or the cgroup.
    pub pool_name: String,
    /// The pool that guests share.
    pub pool: PoolView,
    /// The low watermark: below it memory is taken.
    pub low_bytes: u64,
    /// The high watermark: above it memory goes back.
    pub high_bytes: u64,
    /// The consequence if all merged pages diverged, where there is too little memory for that.
    pub exposed: Option<String>,
    /// The guests of the pool.
    pub guests: Vec<GuestRow>,
    /// The steps requested of merging, with their reasons.
    pub merging: Vec<(KsmStep, String)>,
    /// The recent resizes, the newest first.
    pub recent: Vec<ResizeRecord>,
}

/// One guest with what is planned for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestRow {
    /// As the policy saw it.
    #[serde(flatten)]
    pub guest: GuestView,
    /// The way in which it is resized: `mconsole`, `virtio-balloon`, `virtio-mem`, `cgroup`.
    pub way: Option<String>,
    /// The permanent obstacle to resizing it, if there is one.
    pub why_not: Option<String>,
    /// The floor below which no memory is taken from it now.
    pub least_bytes: u64,
    /// The memory that it is to have; `None` if it stays as it is.
    pub to_bytes: Option<u64>,
    /// The reason of the plan, in a sentence.
    pub reason: Option<String>,
}

/// One resize of a guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResizeRecord {
    /// The guest's key.
    pub key: String,
    /// The guest's name.
    pub name: String,
    /// Seconds since the resize.
    pub seconds_ago: f64,
    /// The memory that it had before.
    pub from_bytes: u64,
    /// The memory that it was to have.
    pub to_bytes: u64,
    /// The memory that it had afterwards; `None` if that is not known yet, or the resize failed.
    pub got_bytes: Option<u64>,
    /// The reason for the failure, if it failed.
    pub error: Option<String>,
    /// The reason for the resize.
    pub reason: String,
}

impl ResizeRecord {
    /// Returns true if the outcome is known.
    pub fn is_over(&self) -> bool {
        self.got_bytes.is_some() || self.error.is_some()
    }
}

/// A daemon's view of balance in a line or two, for `ksmith status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceStatus {
    /// The name of the policy.
    pub policy: String,
    /// The state of the policy, in one word.
    pub state: String,
    /// The reason of the state, in a sentence.
    pub reason: String,
    /// The memory taken from guests and not given back, in all.
    pub taken_bytes: u64,
    /// The reason why no more memory is offered to merging, while that is so.
    pub exposed: Option<String>,
}

impl BalanceReport {
    /// The short form.
    pub fn status(&self) -> BalanceStatus {
        BalanceStatus {
            policy: self.policy.clone(),
            state: self.state.clone(),
            reason: self.reason.clone(),
            taken_bytes: self.guests.iter().map(|row| row.guest.taken_bytes()).sum(),
            exposed: self.exposed.clone(),
        }
    }
}
