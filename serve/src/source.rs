//! The source of figures, and the rendering of its models as JSON.

use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};
use serde_json::Value as Json;

/// The error of an unavailable source: a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceUnavailable(pub String);

/// A source of figures. Its methods may block for seconds; they are called from blocking threads.
pub trait FigureSource: Send + Sync + 'static {
    /// Returns the host's KSM status.
    ///
    /// # Errors
    /// The source does not answer.
    fn status(&self) -> Result<StatusReport, SourceUnavailable>;

    /// Returns all guests of the host.
    ///
    /// # Errors
    /// The source does not answer.
    fn guests(&self) -> Result<GuestsReport, SourceUnavailable>;

    /// Returns the balance plan.
    ///
    /// # Errors
    /// The source does not answer.
    fn balance(&self) -> Result<BalanceReport, SourceUnavailable>;
}

/// Functions that render each model as JSON, as the command line prints it.
#[derive(Debug, Clone, Copy)]
pub struct ModelRenderer {
    /// Renders as `ksmith status --json`.
    pub status: fn(&StatusReport) -> Json,
    /// Renders as `ksmith guests --json`.
    pub guests: fn(&GuestsReport) -> Json,
    /// Renders as `ksmith balance --json`.
    pub balance: fn(&BalanceReport) -> Json,
    /// Returns the JSON Schema of a command's output; `None` if there is no such command.
    pub schema: fn(&str) -> Option<Json>,
}
