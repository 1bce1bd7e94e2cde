//! The schedule of scans of all of `/proc`, with and without the kernel's events.

use std::time::Duration;

use ksmith_core::kernel::TextEnd;

use super::kept_file::KeptFile;
use super::scratch::ReadBuffer;
use crate::root::Root;

/// Interval of checks for new processes, without events.
const WITHOUT_EVENTS: Duration = Duration::from_secs(5);

/// Interval of scans with events, where a scan is only a safeguard.
const WITH_EVENTS: Duration = Duration::from_secs(300);

/// The schedule of scans. The first scan is due at once.
pub(super) struct ProcessDiscovery {
    /// `/proc/loadavg`, which ends with the newest PID. While that stays the same, no process was started. If the file
    /// is unreadable, every scan takes place.
    births: KeptFile,
    last_birth: Option<u64>,
    due: Duration,
    is_demanded: bool,
    has_events: bool,
}

impl ProcessDiscovery {
    pub(super) fn new(root: &Root) -> Self {
        Self {
            births: KeptFile::new(root, "proc/loadavg", TextEnd::ShortRead),
            last_birth: None,
            due: Duration::ZERO,
            is_demanded: true,
            has_events: false,
        }
    }

    /// Makes a scan due at the next call of [`is_due`](Self::is_due).
    pub(super) fn demand(&mut self) {
        self.is_demanded = true;
    }

    /// Records whether the kernel's events arrive.
    pub(super) fn set_events(&mut self, has_events: bool) {
        self.has_events = has_events;
        self.due = Duration::ZERO;
    }

    /// Returns true if the kernel's events arrive.
    pub(super) fn has_events(&self) -> bool {
        self.has_events
    }

    /// Returns true if a scan is due, and schedules the next one.
    pub(super) fn is_due(&mut self, now: Duration, scratch: &mut ReadBuffer) -> bool {
        if !self.is_demanded && now < self.due {
            return false;
        }
        self.due = now + if self.has_events { WITH_EVENTS } else { WITHOUT_EVENTS };
        // Read before the scan, so that a process started during the scan counts as new next time.
        let birth = self.births.read(scratch).value().and_then(|text| last_pid(text));
        let is_quiet = birth.is_some() && birth == self.last_birth;
        self.last_birth = birth;
        std::mem::take(&mut self.is_demanded) || !is_quiet
    }
}

fn last_pid(loadavg: &str) -> Option<u64> {
    loadavg.split_ascii_whitespace().nth(4)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_scan_is_due_at_once_and_then_only_after_a_process_was_started() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("proc")).unwrap();
        let born = |pid| fs::write(tree.path().join("proc/loadavg"), format!("0 0 0 1/9 {pid}\n")).unwrap();
        let mut scratch = ReadBuffer::new();
        let mut discovery = ProcessDiscovery::new(&Root::at(tree.path()));
        let mut due_at =
            |discovery: &mut ProcessDiscovery, second| discovery.is_due(Duration::from_secs(second), &mut scratch);
        born(100);
        assert!(due_at(&mut discovery, 0));
        assert!(!due_at(&mut discovery, 6), "no process was started");
        born(101);
        assert!(!due_at(&mut discovery, 7), "too early");
        assert!(due_at(&mut discovery, 11));
        discovery.demand();
        assert!(due_at(&mut discovery, 12));
        fs::remove_file(tree.path().join("proc/loadavg")).unwrap();
        assert!(due_at(&mut discovery, 20) && due_at(&mut discovery, 30), "can't tell: scan");
        discovery.set_events(true);
        assert!(due_at(&mut discovery, 31));
        assert!(!due_at(&mut discovery, 300));
        discovery.set_events(false);
        assert!(due_at(&mut discovery, 301));
    }
}
