//! Readings of page tables, for commands that sample the host themselves.

use ksmith_core::model::StatusReport;
use ksmith_core::sample::Sample;
use ksmith_host::merge_reader::DirectMergeReader;
use ksmith_host::root::Root;
use ksmith_host::undo::StateDir;

/// Corrects a sample that has KSM's counters only: by the daemon's readings, if it has answered, and else by reading the page
/// tables of each process that may merge once. A captured tree has none.
pub(super) fn fill_readings(sample: &mut Sample, root: &Root, daemon: Option<&StatusReport>) {
    match daemon {
        Some(status) => sample.adopt_readings(&status.sample),
        None if root.is_host() => DirectMergeReader::read_once(&StateDir::from_root(root), sample),
        None => {}
    }
}
