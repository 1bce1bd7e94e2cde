//! Balance on the live host: the guests of a pool are looked at and resized through actuators.
//!
//! A bounded pool of threads waits for the guests, so that a guest that hangs delays no other.
//!
//! An actuator notes each take in the ledger (in the undo store) before the take. So the next daemon
//! goes on where a killed one ended, and `ksmith restore` gives everything back.

mod account;
mod actuator;
mod actuators;
mod balancer;
mod cgroup;
mod first_poll;
mod given_back;
mod holds;
mod ledger;
mod member;
mod pool;
mod qemu;
mod rates;
mod restore;
mod uml;
mod worker;

pub use actuator::{ActuatorAbilities, ActuatorError, ActuatorFigures, MemoryActuator};
pub use actuators::{actuator, cgroup_actuator};
pub use balancer::{AcceptedOrder, BalanceTurn, Balancer, OrderError};
pub use given_back::{GivenBack, LackingGuest};
pub use holds::HoldList;
pub use ledger::{LedgerDevice, LedgerEntry, MemoryLedger, OriginalCgroup};
pub use pool::{PoolError, PoolReader};
pub use worker::ActuatorAnswer;

/// The most threads that wait for guests: those of the pool, and the one of balance itself.
pub const MOST_THREADS: usize = worker::LIMITS.threads + 1;
