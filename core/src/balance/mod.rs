//! Balance: who gives memory, who gets it. The same shape as [`decide`](crate::decide), for guests: what was seen
//! goes in, actions with reasons come out, and bounds that no policy can leave stand between them and the guests.

mod bounds;
mod classes;
mod config;
mod forecast;
mod no_swap;
mod plan;
mod room;
mod share_out;
pub mod sim;
mod squeal;
mod squeeze;
#[cfg(test)]
mod testing;
mod trust;
mod view;

pub use bounds::Bounds;
pub use classes::{FitsAll, GuestRule, Terms};
pub use config::{BalanceConfig, BalanceKind, Marks, Pool, SqueezeConfig, WhenExposed, shortness};
pub use forecast::shortfall;
pub use no_swap::NoSwap;
pub use plan::{Action, BalancePolicy, KsmStep, Plan};
pub use room::Room;
pub use squeal::Squeal;
pub use squeeze::Squeeze;
pub use trust::Trust;
pub use view::{Class, GuestView, Inside, PoolView, View};

/// The policy that a configuration names.
pub fn policy(config: &BalanceConfig) -> Box<dyn BalancePolicy> {
    match config.policy {
        BalanceKind::NoSwap => Box::new(NoSwap::new(config.clone())),
        BalanceKind::Squeeze => Box::new(Squeeze::new(config.clone())),
    }
}
