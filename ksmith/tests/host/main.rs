//! Tests that need the machine, its programs or captured trees, but not its KSM: they run in parallel.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod attacks_execs;
mod attacks_owners;
mod balance_qemu;
mod balance_service;
mod balance_uml;
mod balance_virtio_mem;
mod captured_trees;
mod cgroup;
mod executing;
mod history_faults;
mod hpc_packaging;
mod job_ranks;
mod kernel_lock;
mod ksmtuned_oracle;
mod kubernetes;
mod manual;
mod notify_example;
mod observe_descriptors;
mod optin_packaging;
mod other_controllers;
mod own_process;
mod package_links;
mod page_table_figures;
mod platform_pages;
mod proxmox;
mod read_only_sys;
mod reads;
mod security_page;
mod serve;
mod serve_packaging;
mod setup;
mod shared_image;
mod sketch_uml;
mod soak_rule;
mod spoofed_guests;
mod systemd_packaging;
mod terminal;
mod unit_directories;
