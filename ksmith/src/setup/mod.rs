//! `ksmith setup`: prepares this host for ksmith's service. Notes of the earlier state make it undoable.
//!
//! [`Facts`] are the state of the host, and a [`Plan`] is a list of [`Step`]s; [`carry_out`] does them and [`undo`]
//! undoes them. Each step is in the [`Notes`] before it is done, so that a kill at any moment leaves nothing that can't
//! be undone. All effects are behind [`Effects`]: only `host.rs` calls a program (`systemctl`, `groupadd`, `groupdel`,
//! `tuned-adm`).

mod carry_out;
mod drop_ins;
mod effects;
mod facts;
mod host;
mod notes;
mod plan;
mod step;
mod undo;

#[cfg(test)]
mod tests;

pub use carry_out::{carry_out, needs_restart};
pub use effects::{Effects, SetupError};
pub use facts::Facts;
pub use host::HostEffects;
pub use notes::{NOTES, Notes};
pub use plan::{Choices, Plan};
pub use step::Step;
pub use undo::{Undone, undo};
