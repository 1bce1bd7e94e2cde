//! Balance on the live host: the guests' memory is looked at and resized through actuators, within a pool.
//!
//! Each guest has a thread of its own, so that one that hangs costs its own patience and nobody else's.
//!
//! What was taken is on disk before it is taken (the ledger, `balance.json` in the state directory), by the actuator
//! itself, step by step: a killed ksmith can be carried on from, and `ksmith restore` gives everything back.

mod account;
mod actuator;
mod actuators;
mod balancer;
mod balloon;
mod cgroup;
mod given_back;
mod holds;
mod keeper;
mod ledger;
mod member;
mod newcomer;
mod pool;
mod rates;
mod uml;

pub use actuator::{Abilities, Actuator, ActuatorError, Look};
pub use actuators::{actuator, cgroup_actuator};
pub use balancer::{Balancer, Ordered, Turn};
pub use given_back::{GivenBack, Lacking};
pub use holds::{Holds, HoldsError};
pub use keeper::Told;
pub use ledger::{CgroupWas, Entry, Ledger, LedgerError};
pub use member::key_of;
pub use pool::{PoolError, PoolReader};
