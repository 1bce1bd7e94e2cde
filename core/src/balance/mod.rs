//! Balance: which guests give memory, and which get it.
//!
//! The module has the shape of [`decide`](crate::decide): a policy gets a [`View`] and returns a [`Plan`] of actions
//! with reasons, and [`Bounds`] that no policy can leave are applied to every plan.

mod backoff;
mod bounds;
mod classes;
mod config;
mod forecast;
mod no_swap;
mod plan;
mod pressure;
mod resize_range;
mod share_out;
pub mod sim;
mod squeeze;
#[cfg(test)]
mod testing;
mod view;

pub use backoff::Backoff;
pub use bounds::Bounds;
pub use classes::{FitsAll, GuestRule, Terms};
pub use config::{BalanceConfig, BalanceKind, Marks, Pool, SqueezeConfig, WhenExposed, shortness};
pub use forecast::shortfall;
pub use no_swap::NoSwap;
pub use plan::{Action, BalancePolicy, KsmStep, Plan};
pub use pressure::Pressure;
pub use resize_range::ResizeRange;
pub use squeeze::Squeeze;
pub use view::{Class, GuestView, Inside, PoolView, View};

/// Creates the policy that a configuration names.
pub fn policy(config: &BalanceConfig) -> Box<dyn BalancePolicy> {
    match config.policy {
        BalanceKind::NoSwap => Box::new(NoSwap::new(config.clone())),
        BalanceKind::Squeeze => Box::new(Squeeze::new(config.clone())),
    }
}
