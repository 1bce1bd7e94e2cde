//! Examines a process, to find out why its memory does not merge: reads what the kernel shows of it and, with
//! privilege, some of its pages, and hands the evidence to [`ksmith_core::diagnose::process`].
//!
//! Nothing is changed by it. Only pages that pagemap shows in memory are read, through `/proc/PID/mem`, so that
//! nothing is faulted in and merged pages stay merged.

mod equals;
mod examine;
mod host;
mod huge_pages;
mod intent;
mod looks;
mod pages;
mod patient;
mod placement;
mod report;
mod splits;

pub use crate::memory::nodes::memory_nodes;
pub use examine::{ExaminationOptions, examine};
pub use huge_pages::huge_page_circumstances;
pub use patient::{ExaminationError, ExaminedProcess, find};
pub use placement::{ksmd_placement, ksmd_placement_now};
pub use report::DoctorReport;
