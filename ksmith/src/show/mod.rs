//! Showing: from what was seen and decided to text and JSON. Names neither observe nor act.

mod balance;
mod guests;
mod status;
mod table;

pub use balance::{BalanceReport, BalanceStatus, Done, GuestRow};
pub use guests::{By, GuestsReport, GuestsView, Sort};
pub use status::{DaemonStatus, ProcessStatus, Status};
pub use table::Table;
