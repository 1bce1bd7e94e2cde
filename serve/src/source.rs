//! Where the figures come from, and how a model becomes JSON.

use ksmith_core::model::{BalanceReport, GuestsReport, Status};
use serde_json::Value as Json;

/// Why there are no figures, in a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Where the figures come from. The methods may wait for seconds; they are called from threads of their own.
pub trait Source: Send + Sync + 'static {
    /// The host's KSM.
    ///
    /// # Errors
    /// There is no answer.
    fn status(&self) -> Result<Status, Unavailable>;

    /// All guests of the host.
    ///
    /// # Errors
    /// There is no answer.
    fn guests(&self) -> Result<GuestsReport, Unavailable>;

    /// The plan of balance.
    ///
    /// # Errors
    /// There is no answer.
    fn balance(&self) -> Result<BalanceReport, Unavailable>;
}

/// The JSON of each model, as the command line prints it.
#[derive(Debug, Clone, Copy)]
pub struct Render {
    /// As `ksmith status --json`.
    pub status: fn(&Status) -> Json,
    /// As `ksmith guests --json`.
    pub guests: fn(&GuestsReport) -> Json,
    /// As `ksmith balance --json`.
    pub balance: fn(&BalanceReport) -> Json,
    /// The JSON Schema of what a command prints. `None`: there is no such command.
    pub schema: fn(&str) -> Option<Json>,
}
