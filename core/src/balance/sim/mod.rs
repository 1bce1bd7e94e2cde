//! Guests and the pool they share as a discrete machine: page cache, working sets and phases, so that a policy runs for
//! hours in milliseconds.
//!
//! What it keeps of the real thing: a guest's kernel keeps what it read in its page cache as long as there is room;
//! what it needs again and has lost is read from disk, and waited for; what does not fit at all kills a program. The
//! host spends on a guest whatever the guest ever touched, until it is taken. What does not fit into the pool is
//! swapped.

mod behaviour;
mod guest;
mod machine;
#[cfg(test)]
mod tests;

pub use behaviour::{Behaviour, Phase};
pub use guest::SimGuest;
pub use machine::{PoolConfig, Record, SimPool};
