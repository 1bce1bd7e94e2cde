//! What happened: the question, and where the answer comes from.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value as Json;

/// Rows of a history at most, where the question does not say.
const POINTS: usize = 1000;

/// Rows of a history at most, whatever the question says.
const MOST_POINTS: usize = 10_000;

/// Where the history comes from. Called from a thread of its own.
pub trait History: Send + Sync + 'static {
    /// The rows, decisions, events and guests of a time, as `ksmith history --json` prints them.
    ///
    /// # Errors
    /// There is no history, or none of that guest.
    fn history(&self, query: &HistoryQuery) -> Result<Json, HistoryError>;
}

/// Why there is no history to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// There is no store, or it can't be read.
    #[error("{0}")]
    Unavailable(String),
    /// The question makes no sense.
    #[error("{0}")]
    Meaningless(String),
    /// There is no such guest.
    #[error("{0}")]
    Unknown(String),
}

/// What is asked of the history.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct HistoryQuery {
    /// The beginning, as it was written.
    pub since: String,
    /// The end, as it was written.
    pub until: String,
    /// The guest, by its id `PID.STARTTICKS`. `None`: the host.
    pub guest: Option<String>,
    /// Rows at most.
    #[serde(deserialize_with = "bounded")]
    pub points: usize,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self { since: "2h".to_owned(), until: "now".to_owned(), guest: None, points: POINTS }
    }
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    usize::deserialize(deserializer).map(|points| points.clamp(1, MOST_POINTS))
}
