//! `ksmith setup`: what this host needs for ksmith's service, done with notes of how it was before, and undone by them.
//!
//! [`Facts`] are what the host is; [`Plan`] is what would be done, in [`Step`]s; [`carry_out`] does it and [`undo`] undoes it.
//! Each step is in the [`Notes`] before it is done, so that a kill at any moment leaves nothing that can't be undone. All
//! effects are behind [`Effects`]: `host.rs` is the only file that calls a program (`systemctl`, `groupadd`, `groupdel`).

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
