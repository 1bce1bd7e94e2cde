//! A simulated pool and its guests with page cache, working sets and phases: a policy runs for hours in milliseconds.
//!
//! The model:
//! * A guest's kernel keeps files in its page cache while memory is free, and drops files that were read once first.
//! * A file that is needed again and was dropped is read from disk, and tasks wait for it.
//! * Programs that do not fit into the guest's memory are killed.
//! * The host spends on a guest all memory that the guest ever touched, until it is taken.
//! * The pool swaps what does not fit into it.

mod behaviour;
mod guest;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod tests;

pub use behaviour::DemandPhase;
pub use guest::{GuestMemoryUse, SimGuest};
