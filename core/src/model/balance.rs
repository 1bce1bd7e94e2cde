//! The model of `ksmith balance`: the pool, its guests, and the plan for each, with reasons.

use serde::{Deserialize, Serialize};

use crate::balance::{GuestView, KsmStep, PoolView};

/// Everything that `ksmith balance` shows, as of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceReport {
    /// Whether a daemon carries plans out.
    pub is_enabled: bool,
    /// The name of the policy.
    pub policy: String,
    /// What it is doing, in one word.
    pub state: String,
    /// The reason of the state, in a sentence.
    pub reason: String,
    /// `host`, or the cgroup.
    pub pool_name: String,
    /// What guests share.
    pub pool: PoolView,
    /// Below this memory is taken.
    pub low_bytes: u64,
    /// Above this it goes back.
    pub high_bytes: u64,
    /// What it would mean if all merged pages diverged, where there is too little for that.
    pub exposed: Option<String>,
    /// The guests of the pool.
    pub guests: Vec<GuestRow>,
    /// What is asked of merging, and why.
    pub merging: Vec<(KsmStep, String)>,
    /// The resizes of lately, the newest first.
    pub recent: Vec<Done>,
}

/// One guest with what is planned for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestRow {
    /// As the policy saw it.
    #[serde(flatten)]
    pub guest: GuestView,
    /// How it is resized: `mconsole`, `virtio-balloon`, `cgroup`.
    pub way: Option<String>,
    /// What stands in the way of resizing it, for good.
    pub why_not: Option<String>,
    /// It would not be taken below this now.
    pub least_bytes: u64,
    /// What it is to have. `None`: it stays as it is.
    pub to_bytes: Option<u64>,
    /// The reason of the plan, in a sentence.
    pub reason: Option<String>,
}

/// One thing that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The guest's key.
    pub key: String,
    /// The guest's name.
    pub name: String,
    /// Seconds since it was done.
    pub seconds_ago: f64,
    /// What it had.
    pub from_bytes: u64,
    /// What it was to have.
    pub to_bytes: u64,
    /// What it had afterwards. `None`: that is not known yet, or it failed.
    pub got_bytes: Option<u64>,
    /// Why it failed.
    pub error: Option<String>,
    /// Why it was done.
    pub reason: String,
}

impl Done {
    /// Whether its outcome is known.
    pub fn is_over(&self) -> bool {
        self.got_bytes.is_some() || self.error.is_some()
    }
}

/// A daemon's view of balance in a line or two, for `ksmith status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BalanceStatus {
    /// The name of the policy.
    pub policy: String,
    /// What it is doing, in one word.
    pub state: String,
    /// The reason of the state, in a sentence.
    pub reason: String,
    /// What was taken from guests and not given back, in all.
    pub taken_bytes: u64,
    /// Why no more memory is offered to merging, while that is so.
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
