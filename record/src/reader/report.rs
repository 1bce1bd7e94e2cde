//! What a history answers.

use ksmith_core::guest::Named;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// What the history says of a stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryReport {
    /// The beginning, in seconds since 1970.
    pub since: f64,
    /// The end, in the same unit.
    pub until: f64,
    /// The time between two rows, about.
    pub resolution_seconds: f64,
    /// The guest that the rows are of. `None`: the host.
    pub guest: Option<GuestLife>,
    /// The names of the columns; the first is `time`, in seconds since 1970.
    pub columns: Vec<String>,
    /// The rows, the oldest first. An unknown value is `null`.
    pub rows: Vec<Vec<Json>>,
    /// The decisions, the oldest first.
    pub decisions: Vec<DecisionRow>,
    /// The events, the oldest first.
    pub events: Vec<EventRow>,
    /// The guests that lived in that time.
    pub guests: Vec<GuestLife>,
}

/// A decision that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DecisionRow {
    /// Seconds since 1970.
    pub time: f64,
    /// Name of the policy.
    pub policy: String,
    /// State of the policy, in a word.
    pub state: String,
    /// The reason, in a sentence.
    pub reason: String,
    /// The settings that were changed.
    pub settings: String,
}

/// An event that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventRow {
    /// Seconds since 1970.
    pub time: f64,
    /// What kind of event it is.
    pub kind: String,
    /// What happened, in a sentence.
    pub text: String,
}

/// A guest that was recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuestLife {
    /// Its key, `PID:START`.
    pub id: String,
    /// Name of the guest.
    pub name: String,
    /// UUID of the guest.
    pub uuid: Option<String>,
    /// Kind of the guest.
    pub kind: String,
    /// Its trust domain.
    pub domain: Option<String>,
    /// The user of its first process.
    pub user: Option<String>,
    /// Its first record, in seconds since 1970.
    pub first: f64,
    /// Its end, in seconds since 1970. `None`: it lives.
    pub last: Option<f64>,
    /// Its row in the table of guests.
    #[serde(skip)]
    pub(super) row: i64,
}

impl Named for GuestLife {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn uuid(&self) -> Option<&str> {
        self.uuid.as_deref()
    }

    fn pid(&self) -> Option<u32> {
        self.id.split_once(':').and_then(|(pid, _)| pid.parse().ok())
    }

    fn key(&self) -> String {
        self.id.clone()
    }

    fn is_verified(&self) -> bool {
        // The history does not tell.
        false
    }
}

/// A guest with its last figures in a stretch of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Saver {
    /// The guest that saved memory.
    pub life: GuestLife,
    /// Its part of what the host saved.
    pub saved_bytes: Option<f64>,
    /// Saved less KSM's metadata for it.
    pub profit_bytes: Option<f64>,
    /// Its resident memory.
    pub rss_bytes: Option<f64>,
}
