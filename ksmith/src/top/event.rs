//! The events of the state, and its requests.

use std::time::Duration;

use ksmith_core::guest::GuestId;
use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};
use ksmith_core::printable::TextPage;
use ksmith_core::sample::ProcessId;
use ratatui::crossterm::event::{KeyEvent, MouseEvent};

use super::replay::PastFigures;

/// All figures of one moment.
#[derive(Debug, Clone)]
pub struct HostSnapshot {
    /// The time since `ksmith top` started.
    pub at: Duration,
    /// The host's KSM and the daemon.
    pub status: StatusReport,
    /// The guests of the host.
    pub guests: GuestsReport,
    /// The balance of a daemon that balances.
    pub balance: Option<BalanceReport>,
    /// A sentence on the source of the figures, if that has changed.
    pub note: Option<String>,
}

impl HostSnapshot {
    /// Returns the errors of reading, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.status.errors();
        // The same fault may have been met by both.
        notes.extend(self.guests.errors.iter().filter(|error| !notes.contains(error)).cloned().collect::<Vec<_>>());
        notes
    }
}

/// An event of the terminal, or of a thread.
#[derive(Debug, Clone)]
pub enum TopEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse was used.
    Mouse(MouseEvent),
    /// The terminal has another size.
    Resize(u16, u16),
    /// New figures have come.
    Seen(Box<HostSnapshot>),
    /// A part of the history has come.
    Past(Box<PastFigures>),
    /// The guests of the moment that a replay shows have come.
    Recalled(Box<GuestsReport>),
    /// The diagnosis of a guest's memory has come, or the reason why there is none.
    Explained(GuestId, Result<TextPage, String>),
}

/// A request of the state to its shell.
#[derive(Debug, Clone, PartialEq)]
pub enum TopRequest {
    /// Diagnose the memory of these processes of a guest.
    Explain(GuestId, Vec<ProcessId>),
    /// Read the guests of a moment, in seconds since `ksmith top` started.
    Recall(f64),
    /// End the program.
    End,
}
