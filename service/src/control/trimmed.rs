//! Answers without what `--json` does not show.

use super::ControlReply;

/// The same answer, less what no command shows: libvirt's metadata of guests, and the activity of processes.
///
/// What is left is what `ksmith status --json`, `guests --json` and `balance --json` print, and the host's figures
/// under /proc that every user may read.
#[must_use]
pub fn trimmed(mut answer: ControlReply) -> ControlReply {
    match &mut answer {
        ControlReply::Status(status) => {
            for process in &mut status.sample.processes {
                process.cpu_ticks = 0;
                process.minor_faults = 0;
            }
        }
        ControlReply::Guests(report) => {
            for guest in &mut report.guests {
                guest.metadata = None;
                guest.uid = None;
                guest.offered = None;
            }
        }
        _ => {}
    }
    answer
}
