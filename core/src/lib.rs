//! The pure part of ksmith: what the kernel's text means, what to do about it, and a machine to try it on.
//!
//! Nothing here touches a file, a clock, a thread or the environment (`core/clippy.toml` holds the crate to
//! that): everything arrives as an argument. So one [`decide::Policy`] object runs live, in the simulator
//! and over recorded history, and makes the same decisions.

#![forbid(unsafe_code)]

pub mod account;
pub mod alarm;
pub mod amount;
pub mod balance;
pub mod contradiction;
pub mod controller;
pub mod cpu_use;
pub mod decide;
pub mod diagnose;
pub mod field;
pub mod figures;
pub mod filter;
pub mod fold;

pub mod guest;
pub mod history;
pub mod huge_worth;
pub mod job;
pub mod kernel;
pub mod knobs;
pub mod lease;
pub mod limits;
pub mod merge_forecast;
pub mod merge_schedule;
pub mod model;
pub mod other_controllers;
pub mod page_sample;
pub mod printable;
pub mod reading;
pub mod sample;
pub mod scan;
pub mod sim;
pub mod sketch;
pub mod token_bucket;
pub mod trial;
pub mod units;
