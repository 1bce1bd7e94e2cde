//! The findings of `ksmith doctor`: faults of KSM on this host, and why the memory of one process does not merge.

mod host;
pub mod process;

pub use host::{
    DaemonPresence, Finding, HostCircumstances, HugePageCircumstances, KsmdPlacement, Severity, diagnose,
};
