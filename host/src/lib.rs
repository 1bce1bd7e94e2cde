//! Access to the kernel and the guests: observes, acts, reads memory, queries hypervisors.
//!
//! Nothing here serves requests or shows results. The crates above this one do that.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod acl;
pub mod act;
pub mod bad_file;
mod chosen_path;
pub mod cpus;
pub mod doctor;
pub mod estimate;
pub mod fair_pool;
pub mod fold;
mod forked;
pub mod guests;
pub mod hypervisor;
pub mod job;
pub mod ksm_counts;
pub mod ksmd;
pub mod live;
pub mod mappings;
pub mod memory;
mod merge_forecast;
pub mod merge_reader;
pub mod observe;
pub mod other_controllers;
pub mod own_use;
pub mod owner;
pub mod page_sampler;
mod pagemap_scan;
pub mod passed_descriptors;
pub mod peer_credentials;
pub mod pool;
pub mod proc_file;
pub mod process;
pub mod reader;
pub mod root;
pub mod signals;
pub mod systemd;
pub mod undo;
pub mod users;
pub mod worker_thread;

pub use reader::accountable;
