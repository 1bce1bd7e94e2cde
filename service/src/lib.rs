//! The daemon and what it runs: the control loop, the sockets, balance and trust domains.

pub mod balance;
pub mod balance_service;
pub mod config;
pub mod control;
pub mod daemon;
pub mod domains;
pub mod registry;
pub mod socket;
#[cfg(test)]
mod testing;
pub mod user_socket;
