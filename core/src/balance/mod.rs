//! Balance: who gives memory, who gets it. The same shape as [`decide`](crate::decide), for guests: what was seen
//! goes in, actions with reasons come out, and bounds that no policy can leave stand between them and the guests.

mod plan;
mod view;

pub use plan::{Action, BalancePolicy, KsmStep, Plan};
pub use view::{Class, GuestView, Inside, PoolView, View};
