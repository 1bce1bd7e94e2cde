//! The daemon's read-only socket: `ksmith serve` requests its figures there, and can request nothing else.
//!
//! The lines are those of the control socket ([`crate::control`]), and [`crate::control::ControlClient`] speaks to either.
//! Only the requests for status, guests and balance are known here, by a type of their own. An answer is at most a
//! second old, and all peers get the same text: requests without end cost the daemon three answers a second.
//! [`crate::control::trimmed`] leaves out what `--json` does not show.

mod config;
mod rate;
mod server;

pub use config::ViewConfig;
pub use server::serve;
