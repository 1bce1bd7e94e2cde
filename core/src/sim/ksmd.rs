//! The state of the scanning thread: its cursor, its activity and its counters.

use super::counters::UnfinishedRun;

/// The place of the walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkCursor {
    /// An index in [`SimKsmd::order`].
    pub guest: usize,
    /// The run of pages that comes next.
    pub run: u32,
}

/// The activity of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KsmdActivity {
    /// Waiting to be woken: not running, or nothing to scan.
    Waiting,
    /// Sleeping between batches.
    Sleeping { until_ns: u64 },
    /// Scanning, with `left` visits left in the batch.
    Scanning { left: u64 },
}

/// The state of the thread.
#[derive(Debug, Clone)]
pub(super) struct SimKsmd {
    pub activity: KsmdActivity,
    /// Guests in the order of the walk.
    pub order: Vec<u32>,
    /// `None` between two passes.
    pub cursor: Option<WalkCursor>,
    /// The run before the cursor, if ksmd has not come to its end.
    pub inside: Option<UnfinishedRun>,
    /// The number of the pass, which distinguishes its unstable tree from earlier ones. Unlike `full_scans` it is never
    /// reset.
    pub pass: u32,
    /// The time until which it has worked. A step under way ends a little after the machine's time.
    pub clock_ns: u64,
    /// The time for which it has worked, with that of waiting for a CPU.
    pub worked_ns: u64,
    /// The part of a CPU that it gets while it works, in thousandths.
    share_permille: u32,
    /// The visits of this batch, which kernels before 6.10 count only if the pass does not end in it.
    pub batch_visits: u64,
    pub full_scans: u64,
    pub scanned: u64,
    pub skipped: u64,
}

impl SimKsmd {
    pub fn new(share_permille: u32) -> Self {
        Self {
            activity: KsmdActivity::Waiting,
            order: Vec::new(),
            cursor: None,
            inside: None,
            pass: 0,
            clock_ns: 0,
            worked_ns: 0,
            share_permille,
            batch_visits: 0,
            full_scans: 0,
            scanned: 0,
            skipped: 0,
        }
    }

    pub fn is_between_passes(&self) -> bool {
        self.cursor.is_none()
    }

    /// The CPU time until `now_ns`, with the part of a step under way.
    pub fn cpu_ns_at(&self, now_ns: u64) -> u64 {
        let worked_ns = self.worked_ns.saturating_sub(self.clock_ns.saturating_sub(now_ns));
        if self.share_permille == 1000 { worked_ns } else { worked_ns / 1000 * u64::from(self.share_permille) }
    }

    /// Adds a new guest just behind the cursor, so that it can settle until the next pass.
    pub fn enlist(&mut self, guest: u32) {
        match &mut self.cursor {
            Some(cursor) => {
                self.order.insert(cursor.guest, guest);
                cursor.guest += 1;
            }
            None => self.order.push(guest),
        }
    }

    /// Moves an ended guest just ahead of the cursor, so that its `rmap_item`s are freed soon.
    ///
    /// A guest without any leaves the walk at once. Returns true if it left.
    pub fn retire(&mut self, guest: u32, tracked: bool) -> bool {
        let Some(at) = self.order.iter().position(|&id| id == guest) else { return true };
        if self.cursor.is_some_and(|cursor| cursor.guest == at) {
            return false;
        }
        self.order.remove(at);
        if let Some(cursor) = &mut self.cursor
            && at < cursor.guest
        {
            cursor.guest -= 1;
        }
        if tracked {
            self.order.insert(self.cursor.map_or(0, |cursor| cursor.guest + 1), guest);
        }
        !tracked
    }

    pub fn spend(&mut self, ns: u64) {
        self.clock_ns += ns;
        self.worked_ns += ns;
    }
}
