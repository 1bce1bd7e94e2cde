//! Balance: which guests give memory, and which get it.
//!
//! The module has the shape of [`decide`](crate::decide): a policy gets a [`BalanceView`] and returns a [`BalancePlan`] of actions
//! with reasons, and [`PlanBounds`] that no policy can leave are applied to every plan.

mod backoff;
mod bounds;
mod classes;
mod config;
mod forecast;
mod key;
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

pub use backoff::ResizeBackoff;
pub use bounds::PlanBounds;
pub use classes::{FitsAll, GuestRule, GuestTerms};
pub use config::{
    BalanceConfig, BalanceKind, ExposureResponse, PoolScope, PoolWatermarks, SqueezeConfig, shortness,
};
pub use forecast::shortfall;
pub use key::ConfigKey;
pub use no_swap::NoSwapPolicy;
pub use plan::{BalanceAction, BalancePlan, BalancePolicy, KsmStep};
pub use pressure::MemoryPressure;
pub use resize_range::ResizeRange;
pub use squeeze::SqueezePolicy;
pub use view::{BalanceView, GuestClass, GuestView, PoolView, ReportedFigures};

/// Creates the policy that a configuration names.
pub fn policy(config: &BalanceConfig) -> Box<dyn BalancePolicy> {
    match config.policy {
        BalanceKind::NoSwap => Box::new(NoSwapPolicy::new(config.clone())),
        BalanceKind::Squeeze => Box::new(SqueezePolicy::new(config.clone())),
    }
}
