//! `ksmith setup`: prepares this host for ksmith's service. Notes of the earlier state make it undoable.
//!
//! [`SetupFacts`] are the state of the host, and a [`SetupPlan`] is a list of [`SetupStep`]s; [`carry_out`] does them and [`undo`]
//! undoes them. Each step is in the [`SetupNotes`] before it is done, so that a kill at any moment leaves nothing that can't
//! be undone. All effects are behind [`SetupEffects`]: only `host.rs` calls a program (`systemctl`, `groupadd`, `groupdel`,
//! `tuned-adm`).

mod carry_out;
mod domain_nodes;
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
pub use domain_nodes::NodeFacts;
pub use effects::{SetupEffects, SetupError};
pub use facts::SetupFacts;
pub use host::HostEffects;
pub use notes::{NOTES, SetupNotes};
pub use plan::{SetupChoices, SetupPlan};
pub use step::SetupStep;
pub use undo::{UndoReport, undo};
