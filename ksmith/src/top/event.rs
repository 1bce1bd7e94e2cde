//! What reaches the state, and what it asks for.

use std::time::Duration;

use ksmith_core::guest::GuestId;
use ksmith_core::model::{BalanceReport, GuestsReport, Status};
use ksmith_core::printable::Page;
use ksmith_core::sample::ProcessId;
use ratatui::crossterm::event::{KeyEvent, MouseEvent};

/// All figures of one moment.
#[derive(Debug, Clone)]
pub struct Sight {
    /// The time since `ksmith top` started.
    pub at: Duration,
    /// The host's KSM and the daemon.
    pub status: Status,
    /// The guests of the host.
    pub guests: GuestsReport,
    /// The balance of a daemon that balances.
    pub balance: Option<BalanceReport>,
    /// A sentence on where the figures come from, where that has changed.
    pub note: Option<String>,
}

impl Sight {
    /// What could not be read, one sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = self.status.errors();
        // The same fault may have been met by both.
        notes.extend(self.guests.errors.iter().filter(|error| !notes.contains(error)).cloned().collect::<Vec<_>>());
        notes
    }
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse was used.
    Mouse(MouseEvent),
    /// The terminal has another size now.
    Resize(u16, u16),
    /// New figures have come.
    Seen(Box<Sight>),
    /// It was found out why a guest's memory does not merge, or why that can't be found out.
    Explained(GuestId, Result<Page, String>),
}

/// What the state asks of its shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    /// Find out why the memory of these processes of a guest does not merge.
    Explain(GuestId, Vec<ProcessId>),
    /// End the program.
    End,
}
