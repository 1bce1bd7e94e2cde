//! Queries of the recorded history, and the trait that answers them.

use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::Value as Json;

/// Default limit of a history's rows.
const POINTS: usize = 1000;

/// Upper bound of the limit that a query may set.
const MOST_POINTS: usize = 10_000;

/// A history backend. Called from a blocking thread.
pub trait HistoryBackend: Send + Sync + 'static {
    /// Returns the rows, decisions, events and guests of a time range, as `ksmith history --json` prints them. The rows
    /// of the host have its memory too.
    ///
    /// # Errors
    /// There is no history, or no such guest.
    fn history(&self, query: &HistoryQuery) -> Result<Json, HistoryError>;
}

/// The error of a history query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// The store is missing or unreadable.
    #[error("{0}")]
    Unavailable(String),
    /// The query is invalid.
    #[error("{0}")]
    Meaningless(String),
    /// The query names an unknown guest or label.
    #[error("{0}")]
    Unknown(String),
}

/// A history query.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct HistoryQuery {
    /// The beginning, as written in the request.
    pub since: String,
    /// The end, as written in the request.
    pub until: String,
    /// The guest, by its id `PID.STARTTICKS`. `None` for the host.
    pub guest: Option<String>,
    /// The label whose values the columns are. `None` for figures.
    pub by: Option<String>,
    /// Limit of rows.
    #[serde(deserialize_with = "bounded")]
    pub points: usize,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self { since: "2h".to_owned(), until: "now".to_owned(), guest: None, by: None, points: POINTS }
    }
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    usize::deserialize(deserializer).map(|points| points.clamp(1, MOST_POINTS))
}
