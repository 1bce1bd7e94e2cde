//! Processes without known mergeable memory.

use std::collections::HashMap;
use std::time::Duration;

/// A process without known mergeable memory. It is known by its PID alone and keeps no file open. If the PID is reused,
/// the only harm is one useless reading.
pub(super) struct PlainEntry {
    pub(super) looks: u8,
    pub(super) due: Duration,
    pub(super) flags_due: Duration,
    pub(super) scan: u32,
    state: PlainState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlainState {
    /// The process may get mergeable memory later.
    Open,
    /// Its figures are not readable.
    Hidden,
    /// A kernel thread or a zombie, which is not read again as long as events arrive.
    Memoryless,
}

/// All plain processes by PID, with the number of hidden ones, since every sample needs it and ten thousand processes
/// are possible.
#[derive(Default)]
pub(super) struct PlainTable {
    all: HashMap<u32, PlainEntry>,
    hidden: u64,
}

impl PlainTable {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns the number of hidden processes.
    pub(super) fn hidden(&self) -> u64 {
        self.hidden
    }

    pub(super) fn get(&self, pid: u32) -> Option<&PlainEntry> {
        self.all.get(&pid)
    }

    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut PlainEntry> {
        self.all.get_mut(&pid)
    }

    /// Enters a process as open, in place of an earlier entry of its PID.
    pub(super) fn enter(&mut self, pid: u32, looks: u8, due: Duration, scan: u32) {
        self.remove(pid);
        self.all.insert(pid, PlainEntry { looks, due, flags_due: Duration::ZERO, scan, state: PlainState::Open });
    }

    pub(super) fn set_state(&mut self, pid: u32, state: PlainState) {
        let Some(plain) = self.all.get_mut(&pid) else { return };
        self.hidden -= u64::from(plain.state == PlainState::Hidden);
        self.hidden += u64::from(state == PlainState::Hidden);
        plain.state = state;
    }

    pub(super) fn remove(&mut self, pid: u32) {
        let was = self.all.remove(&pid);
        self.hidden -= u64::from(was.is_some_and(|plain| plain.state == PlainState::Hidden));
    }

    /// Makes every process that may get mergeable memory due at `now`. Returns their PIDs.
    pub(super) fn make_due(&mut self, now: Duration) -> Vec<u32> {
        let open = self.all.iter_mut().filter(|(_, plain)| plain.state != PlainState::Memoryless);
        let due = |(pid, plain): (&u32, &mut PlainEntry)| {
            plain.due = now;
            *pid
        };
        open.map(due).collect()
    }

    /// Drops the processes that scan number `scan` did not find.
    pub(super) fn keep_found_by(&mut self, scan: u32) {
        self.all.retain(|_, plain| plain.scan == scan);
        self.hidden = self.all.values().filter(|plain| plain.state == PlainState::Hidden).count() as u64;
    }

    /// Drops kernel threads and zombies, because an event about one may have been lost.
    pub(super) fn drop_memoryless(&mut self) {
        self.all.retain(|_, plain| plain.state != PlainState::Memoryless);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_hidden_are_counted_whatever_happens(
            steps in prop::collection::vec((0_u8..6, 0_u32..5, 0_u32..2), 0..60),
        ) {
            let mut table = PlainTable::default();
            for (what, pid, scan) in steps {
                match what {
                    0 => table.enter(pid, 0, Duration::ZERO, scan),
                    1 => table.set_state(pid, PlainState::Hidden),
                    2 => table.set_state(pid, PlainState::Open),
                    3 => table.remove(pid),
                    4 => table.keep_found_by(scan),
                    _ => table.set_state(pid, PlainState::Memoryless),
                }
                let hidden = table.all.values().filter(|plain| plain.state == PlainState::Hidden).count() as u64;
                prop_assert_eq!(table.hidden(), hidden);
            }
        }
    }
}
