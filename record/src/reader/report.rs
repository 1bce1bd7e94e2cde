//! Reports: the results of history queries.

use std::collections::BTreeMap;

use ksmith_core::guest::NamedGuest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The history of a time range.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistoryReport {
    /// The beginning, in seconds since 1970.
    pub since: f64,
    /// The end, in seconds since 1970.
    pub until: f64,
    /// Approximate time between two rows.
    pub resolution_seconds: f64,
    /// The guest that the rows describe; null for the host.
    pub guest: Option<GuestLife>,
    /// The label whose values the columns are, each with the bytes that its guests saved; null for other rows.
    #[serde(default)]
    pub label: Option<String>,
    /// The names of the columns; the first is `time`, in seconds since 1970.
    pub columns: Vec<String>,
    /// The rows, the oldest first. An unknown value is `null`.
    #[schemars(with = "Vec<Vec<Option<f64>>>")]
    pub rows: Vec<Vec<Json>>,
    /// For each row of the host the recorded time that it stands for, in seconds: up to a sample, and within a minute
    /// or an hour. No two rows stand for the same time. 0 for a guest.
    #[serde(default, skip_serializing)]
    pub recorded_seconds: Vec<f64>,
    /// The row before the first, from which counters go on. `None` if the history begins with the first.
    #[serde(skip)]
    pub before: Option<Vec<Json>>,
    /// The decisions, the oldest first.
    pub decisions: Vec<DecisionRow>,
    /// The events, the oldest first.
    pub events: Vec<EventRow>,
    /// The guests that lived in the time range.
    pub guests: Vec<GuestLife>,
}

/// A recorded decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionRow {
    /// Seconds since 1970.
    pub time: f64,
    /// Name of the policy.
    pub policy: String,
    /// State of the policy, in a word.
    pub state: String,
    /// The reason, in a short line.
    pub reason: String,
    /// The arithmetic behind the reason, if there is any.
    #[serde(default)]
    pub reason_detail: Option<String>,
    /// The settings that were changed.
    pub settings: String,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EventRow {
    /// Seconds since 1970.
    pub time: f64,
    /// The kind of the event.
    pub kind: String,
    /// Description of the event, in a sentence.
    pub text: String,
}

/// A recorded guest, from its start to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The operator's labels, each with its value.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The user of its first process.
    pub user: Option<String>,
    /// Time of its first record, in seconds since 1970.
    pub first: f64,
    /// Time of its end, in seconds since 1970; null while it lives.
    pub last: Option<f64>,
    /// Its row in the table of guests.
    #[serde(skip)]
    pub(super) row: i64,
}

impl NamedGuest for GuestLife {
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

/// A guest with its last figures in a time range.
#[derive(Debug, Clone, PartialEq)]
pub struct SavingGuest {
    /// The guest that saved memory.
    pub life: GuestLife,
    /// Its share of the host's savings.
    pub saved_bytes: Option<f64>,
    /// Its savings less KSM's metadata.
    pub profit_bytes: Option<f64>,
    /// Its memory that is mapped to merged pages.
    pub merged_bytes: Option<f64>,
    /// Its resident memory.
    pub rss_bytes: Option<f64>,
}
