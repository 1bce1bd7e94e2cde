//! Processes without mergeable memory, as far as we know.

use std::collections::HashMap;
use std::time::Duration;

/// One such process. It is known by its PID alone and keeps nothing open: whatever process has the PID, the worst
/// that can happen is a look in vain.
pub(super) struct Plain {
    pub(super) looks: u8,
    pub(super) due: Duration,
    pub(super) flags_due: Duration,
    pub(super) scan: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It may yet get mergeable memory.
    Open,
    /// We may not see its figures.
    Hidden,
    /// A kernel thread or a zombie: never looked at again as long as events arrive.
    Memoryless,
}

/// All of them by PID, with the number of the hidden kept: they may be ten thousand, and every sample wants it.
#[derive(Default)]
pub(super) struct PlainTable {
    all: HashMap<u32, Plain>,
    hidden: u64,
}

impl PlainTable {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// How many are hidden.
    pub(super) fn hidden(&self) -> u64 {
        self.hidden
    }

    pub(super) fn get(&self, pid: u32) -> Option<&Plain> {
        self.all.get(&pid)
    }

    pub(super) fn get_mut(&mut self, pid: u32) -> Option<&mut Plain> {
        self.all.get_mut(&pid)
    }

    /// Enters a process that is open, in the place of what was known under its PID.
    pub(super) fn enter(&mut self, pid: u32, looks: u8, due: Duration, scan: u32) {
        self.remove(pid);
        self.all.insert(pid, Plain { looks, due, flags_due: Duration::ZERO, scan, state: State::Open });
    }

    pub(super) fn set_state(&mut self, pid: u32, state: State) {
        let Some(plain) = self.all.get_mut(&pid) else { return };
        self.hidden -= u64::from(plain.state == State::Hidden);
        self.hidden += u64::from(state == State::Hidden);
        plain.state = state;
    }

    pub(super) fn remove(&mut self, pid: u32) {
        let was = self.all.remove(&pid);
        self.hidden -= u64::from(was.is_some_and(|plain| plain.state == State::Hidden));
    }

    /// Has everybody who may get mergeable memory be looked at now. Returns who that is.
    pub(super) fn make_due(&mut self, now: Duration) -> Vec<u32> {
        let open = self.all.iter_mut().filter(|(_, plain)| plain.state != State::Memoryless);
        let due = |(pid, plain): (&u32, &mut Plain)| {
            plain.due = now;
            *pid
        };
        open.map(due).collect()
    }

    /// Drops whom scan number `scan` did not find.
    pub(super) fn keep_found_by(&mut self, scan: u32) {
        self.all.retain(|_, plain| plain.scan == scan);
        self.hidden = self.all.values().filter(|plain| plain.state == State::Hidden).count() as u64;
    }

    /// Drops those that are looked at only when an event tells of them, when one was lost.
    pub(super) fn drop_memoryless(&mut self) {
        self.all.retain(|_, plain| plain.state != State::Memoryless);
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
                    1 => table.set_state(pid, State::Hidden),
                    2 => table.set_state(pid, State::Open),
                    3 => table.remove(pid),
                    4 => table.keep_found_by(scan),
                    _ => table.set_state(pid, State::Memoryless),
                }
                let hidden = table.all.values().filter(|plain| plain.state == State::Hidden).count() as u64;
                prop_assert_eq!(table.hidden(), hidden);
            }
        }
    }
}
