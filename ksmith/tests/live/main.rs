//! Tests on the live kernel, in one binary: most hold the machine's one KSM (`KernelLock`), so they queue anyway.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

#[path = "../../../preload/tests/support/mod.rs"]
mod preload_library;
#[path = "../../benches/sleepers/mod.rs"]
mod sleepers;
#[path = "../support/mod.rs"]
mod support;

mod act;
mod balance_daemon;
mod calibrate;
mod daemon;
mod demo;
mod doctor;
mod domains;
mod domains_report;
mod estimate;
mod estimate_vm;
mod faults;
mod fold_daemon;
mod fold_loop;
mod fold_qemu;
mod fold_stress;
mod guests;
mod guests_daemon;
mod guests_descriptors;
mod guided;
mod huge_pages;
mod huge_pages_profit;
mod huge_pages_qemu;
mod lab;
mod lab_run;
mod lease;
mod merge_forecast;
mod merge_readings;
mod microvm_clones;
mod observe;
mod observe_reused_pid;
mod page_samples;
mod platform_pages;
mod policies;
mod preload;
mod profit_short;
mod ranges;
mod restore;
mod run;
mod scripted;
mod services;
mod settings;
mod sim_vs_kernel;
mod sketch;
mod top;
