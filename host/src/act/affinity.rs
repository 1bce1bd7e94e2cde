//! The CPU affinity of ksmd. On a compute node ksmd belongs on the CPUs that are reserved for the system.

use std::collections::BTreeSet;
use std::io;

use ksmith_core::kernel::{nodes, number_list};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::ksmd;
use crate::root::Root;

/// An error from binding ksmd to CPUs.
#[derive(Debug, thiserror::Error)]
pub enum AffinityError {
    /// The text is not a list of CPUs.
    #[error("{0:?} is not a list of CPUs: write it as 0-1,4")]
    NoList(String),
    /// ksmd can't be found.
    #[error("ksmd can't be found, so it stays on any CPU; in a container that is so")]
    NoKsmd,
    /// The kernel refused the affinity.
    #[error("ksmd can't be bound to CPUs {cpus}: {source}; are they online?")]
    Refused {
        /// The list.
        cpus: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The service manager forbids it.
    #[error(
        "ksmd can't be bound to CPUs {0}: this is not permitted; the systemd unit permits it with \
         packaging/systemd/options/ksmd-cpus.conf as a drop-in"
    )]
    Forbidden(String),
    /// The journal could not be written, so nothing was changed.
    #[error(transparent)]
    Journal(#[from] super::UndoError),
}

/// Returns the CPUs that ksmd may use, as a list: `0-1`.
pub(super) fn now(root: &Root) -> Result<String, AffinityError> {
    let set = sched_getaffinity(Some(pid(root)?))
        .map_err(|error| AffinityError::Refused { cpus: "?".to_owned(), source: error.into() })?;
    Ok(number_list(&(0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect()))
}

/// Binds ksmd to a list of CPUs.
pub(super) fn bind(root: &Root, cpus: &str) -> Result<(), AffinityError> {
    let wanted = parse(cpus)?;
    let mut set = CpuSet::new();
    wanted.iter().for_each(|cpu| set.set(*cpu as usize));
    sched_setaffinity(Some(pid(root)?), &set).map_err(|error| match error {
        Errno::PERM => AffinityError::Forbidden(cpus.to_owned()),
        error => AffinityError::Refused { cpus: cpus.to_owned(), source: error.into() },
    })
}

/// Returns the list in the form that [`now`] returns.
pub(super) fn canonical(cpus: &str) -> Result<String, AffinityError> {
    parse(cpus).map(|cpus| number_list(&cpus))
}

fn pid(root: &Root) -> Result<Pid, AffinityError> {
    // The PID of ksmd in a captured tree is another process's here.
    let found = root.is_host().then(|| ksmd::pid(root)).flatten();
    found.and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or(AffinityError::NoKsmd)
}

fn parse(cpus: &str) -> Result<BTreeSet<u32>, AffinityError> {
    // CPUs are listed as nodes are, and are as many at most.
    nodes(cpus).ok_or_else(|| AffinityError::NoList(cpus.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for (text, canon) in [("0", "0"), ("0-1", "0-1"), ("3,0,1", "0-1,3"), ("5-7,6", "5-7")] {
            assert_eq!(canonical(text).unwrap(), canon);
        }
        for bad in ["", "a", "1-0", "-1", "9999"] {
            assert!(canonical(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_captured_trees_ksmd_is_left_alone() {
        let tree = tempfile::tempdir().unwrap();
        assert!(matches!(bind(&Root::at(tree.path()), "0"), Err(AffinityError::NoKsmd)));
    }
}
