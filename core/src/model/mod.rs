//! Models: what each command shows, as plain data. They cross the control socket, and know no terminal.

mod balance;
mod guests;
mod history;
mod sketch;
mod status;
mod verdict;

pub use balance::{BalanceReport, BalanceStatus, GuestRow, ResizeRecord};
pub use guests::GuestsReport;
pub use history::HistoryStatus;
pub use sketch::SketchStatus;
pub use status::{DaemonStatus, ProcessStatus, StatusReport, committed_bytes};
pub use verdict::{HostVerdict, VerdictLevel};
