//! When to go through all of `/proc`: what the kernel's events leave to a scan, and what a scan leaves out.

use std::time::Duration;

use super::kept_file::KeptFile;
use super::scratch::{End, Scratch};
use crate::root::Root;

/// Without events: how often to ask whether there may be new processes.
const WITHOUT_EVENTS: Duration = Duration::from_secs(5);

/// With events a scan is only a safeguard.
const WITH_EVENTS: Duration = Duration::from_secs(300);

/// Decides when a scan is due. The first one is at once.
pub(super) struct Discovery {
    /// `/proc/loadavg` ends with the PID given out last: as long as it stays, nobody was born. Where it is not
    /// readable every scan takes place.
    births: KeptFile,
    last_birth: Option<u64>,
    due: Duration,
    is_demanded: bool,
    has_events: bool,
}

impl Discovery {
    pub(super) fn new(root: &Root) -> Self {
        Self {
            births: KeptFile::new(root, "proc/loadavg", End::ShortRead),
            last_birth: None,
            due: Duration::ZERO,
            is_demanded: true,
            has_events: false,
        }
    }

    /// Scan at the next opportunity.
    pub(super) fn demand(&mut self) {
        self.is_demanded = true;
    }

    /// Whether the kernel's events arrive.
    pub(super) fn set_events(&mut self, has_events: bool) {
        self.has_events = has_events;
        self.due = Duration::ZERO;
    }

    /// Whether the kernel's events arrive.
    pub(super) fn has_events(&self) -> bool {
        self.has_events
    }

    /// Whether to scan now. If so, the next scan is reckoned from now.
    pub(super) fn is_due(&mut self, now: Duration, scratch: &mut Scratch) -> bool {
        if !self.is_demanded && now < self.due {
            return false;
        }
        self.due = now + if self.has_events { WITH_EVENTS } else { WITHOUT_EVENTS };
        // Asked before the scan: who is born during it counts as new next time.
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
    fn a_scan_is_due_at_once_then_only_when_somebody_was_born() {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("proc")).unwrap();
        let born = |pid| fs::write(tree.path().join("proc/loadavg"), format!("0 0 0 1/9 {pid}\n")).unwrap();
        let mut scratch = Scratch::new();
        let mut discovery = Discovery::new(&Root::at(tree.path()));
        let mut due_at =
            |discovery: &mut Discovery, second| discovery.is_due(Duration::from_secs(second), &mut scratch);
        born(100);
        assert!(due_at(&mut discovery, 0));
        assert!(!due_at(&mut discovery, 6), "nobody was born");
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
