//! The daemon and what it runs: the control loop, the sockets, balance and trust domains.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod balance;
pub mod balance_service;
pub mod config;
pub mod control;
pub mod daemon;
mod decision_rate;
pub mod domains;
pub mod folder;
pub mod notifier;
pub mod recorder;
pub mod registry;
pub mod sketcher;
pub mod socket;
#[cfg(test)]
mod testing;
pub mod user_socket;
pub mod view_socket;

/// The most threads of the daemon that wait for guests, whatever guests there are.
pub const GUEST_THREADS: usize = balance::MOST_THREADS + domains::MOST_THREADS + registry::MOST_THREADS;
