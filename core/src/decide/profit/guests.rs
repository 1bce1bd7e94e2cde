//! Changes of the guests since ksmd last visited all of their memory: growth, activity, starts and ends.

use rustc_hash::FxHashMap;

use super::constants::KNOWN_PART;
use super::situation::ProcessHolding;
use crate::sample::ProcessId;

/// One process at the last complete scan.
#[derive(Debug, Clone, Copy)]
struct ProcessMark {
    /// Bytes when ksmd last started to visit all memory twice.
    bytes: u64,
    faults_before: u64,
    /// True if it was still filling its memory then: it was new, or had grown much each time since.
    is_filling: bool,
    /// CPU time when ksmd was last parked, in clock ticks.
    cpu_ticks: u64,
    minor_faults: u64,
    /// Merged pages when the process was last seen.
    merged_pages: u64,
}

/// The processes with mergeable memory, compared with the last complete scan.
#[derive(Debug, Clone, Default)]
pub struct GuestMarks {
    marks: FxHashMap<ProcessId, ProcessMark>,
    /// Merged pages of processes that have ended since.
    ended_pages: u64,
}

/// The changes: new memory since the last [`GuestMarks::mark`], everything else since the last [`GuestMarks::rest`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuestChanges {
    /// Processes that have started.
    pub new_guests: usize,
    /// New bytes of mergeable memory, those of new guests included.
    pub grown_bytes: u64,
    /// Of these, those of processes that had filled their memory before.
    pub settled_bytes: u64,
    /// True if any process obtained or copied a page. Growth by a few pages does not show in RSS, which the kernel
    /// counts inexactly.
    pub has_faulted: bool,
    /// CPU time that the processes used, in clock ticks.
    pub cpu_ticks: u64,
    /// Pages that they obtained or copied.
    pub faults: u64,
    /// Merged pages of processes that have ended. They count as saved until ksmd visits them.
    pub ended_pages: u64,
}

impl GuestMarks {
    /// Records the processes of the next sample, and returns the changes. A guest that shrinks lowers its mark, so that
    /// memory which returns counts as new.
    pub fn follow(&mut self, processes: &[ProcessHolding]) -> GuestChanges {
        let mut ended = std::mem::take(&mut self.marks);
        let mut changes = GuestChanges::default();
        for now in processes {
            let Some(mark) = ended.remove(&now.id) else {
                changes.new_guests += 1;
                changes.has_faulted = true;
                changes.grown_bytes = changes.grown_bytes.saturating_add(now.bytes);
                continue;
            };
            let mark = ProcessMark { bytes: mark.bytes.min(now.bytes), merged_pages: now.merged_pages, ..mark };
            let grown_bytes = now.bytes - mark.bytes;
            changes.grown_bytes = changes.grown_bytes.saturating_add(grown_bytes);
            if !mark.is_filling {
                changes.settled_bytes = changes.settled_bytes.saturating_add(grown_bytes);
            }
            changes.has_faulted |= now.minor_faults > mark.faults_before;
            changes.cpu_ticks = changes.cpu_ticks.saturating_add(now.cpu_ticks.saturating_sub(mark.cpu_ticks));
            changes.faults = changes.faults.saturating_add(now.minor_faults.saturating_sub(mark.minor_faults));
            self.marks.insert(now.id, mark);
        }
        self.ended_pages = ended.values().fold(self.ended_pages, |sum, mark| sum.saturating_add(mark.merged_pages));
        GuestChanges { ended_pages: self.ended_pages, ..changes }
    }

    /// Marks all memory as old: ksmd starts to visit it twice.
    pub fn mark(&mut self, processes: &[ProcessHolding]) {
        let grew_much =
            |mark: &ProcessMark, now: &ProcessHolding| (mark.bytes as f64) < now.bytes as f64 * KNOWN_PART;
        self.mark_all(processes, |before, now| before.is_none_or(|mark| mark.is_filling && grew_much(mark, now)));
    }

    /// Marks also as old what has grown since, which ksmd has yet to reach. A guest that is filling its memory still
    /// is.
    pub fn mark_ahead(&mut self, processes: &[ProcessHolding]) {
        self.mark_all(processes, |before, _| before.is_none_or(|mark| mark.is_filling));
    }

    fn mark_all(
        &mut self,
        processes: &[ProcessHolding],
        is_filling: impl Fn(Option<&ProcessMark>, &ProcessHolding) -> bool,
    ) {
        let before = std::mem::take(&mut self.marks);
        self.marks.extend(processes.iter().map(|now| {
            let is_filling = is_filling(before.get(&now.id), now);
            (now.id, ProcessMark { is_filling, ..ProcessMark::from_holding(now) })
        }));
        self.ended_pages = 0;
    }

    /// Begins to count activity anew: ksmd is parked, or starts a smaller scan. New memory stays new.
    pub fn rest(&mut self, processes: &[ProcessHolding]) {
        for holding in processes {
            if let Some(mark) = self.marks.get_mut(&holding.id) {
                let ProcessMark { bytes, faults_before, is_filling, .. } = *mark;
                *mark = ProcessMark { bytes, faults_before, is_filling, ..ProcessMark::from_holding(holding) };
            }
        }
        self.ended_pages = 0;
    }
}

impl ProcessMark {
    fn from_holding(holding: &ProcessHolding) -> Self {
        let ProcessHolding { bytes, cpu_ticks, minor_faults, merged_pages, .. } = *holding;
        Self { bytes, faults_before: minor_faults, is_filling: false, cpu_ticks, minor_faults, merged_pages }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(pid: u32, bytes: u64) -> ProcessHolding {
        let id = ProcessId { pid, start_ticks: 1 };
        ProcessHolding { id, bytes, cpu_ticks: 0, minor_faults: 0, merged_pages: 0 }
    }

    fn marked(processes: &[ProcessHolding]) -> GuestMarks {
        let mut guests = GuestMarks::default();
        guests.mark(processes);
        guests
    }

    #[test]
    fn new_guests_and_growth_are_counted_until_marked() {
        let mut guests = marked(&[guest(1, 100)]);
        let later = [guest(1, 150), guest(2, 30)];
        let changes = guests.follow(&later);
        assert_eq!((changes.new_guests, changes.grown_bytes), (1, 80));
        guests.mark(&later);
        assert_eq!(guests.follow(&later), GuestChanges::default());
    }

    #[test]
    fn memory_that_appeared_during_a_scan_is_new_when_ksmd_is_parked() {
        let mut guests = marked(&[guest(1, 100)]);
        let later = [ProcessHolding { minor_faults: 5, cpu_ticks: 7, ..guest(1, 150) }, guest(2, 30)];
        guests.rest(&later);
        let expected =
            GuestChanges { new_guests: 1, grown_bytes: 80, has_faulted: true, ..GuestChanges::default() };
        assert_eq!(guests.follow(&later), expected, "its activity meanwhile has been looked at");
    }

    #[test]
    fn what_a_guest_grows_by_is_settled_once_it_has_filled_its_memory() {
        let mut guests = marked(&[guest(1, 100)]);
        let growth = |guests: &mut GuestMarks, bytes| {
            let changes = guests.follow(&[guest(1, bytes)]);
            (changes.grown_bytes, changes.settled_bytes)
        };
        assert_eq!(growth(&mut guests, 200), (100, 0), "it was new");
        guests.mark(&[guest(1, 200)]);
        assert_eq!(growth(&mut guests, 400), (200, 0), "it had doubled");
        guests.mark_ahead(&[guest(1, 400)]);
        assert_eq!(growth(&mut guests, 410), (10, 0), "nothing was decided between");
        guests.mark(&[guest(1, 410)]);
        assert_eq!(growth(&mut guests, 500), (90, 90), "it had hardly grown");
        guests.mark(&[guest(1, 500)]);
        assert_eq!(growth(&mut guests, 1000), (500, 500), "it does not fill its memory twice");
    }

    #[test]
    fn memory_that_was_freed_and_obtained_again_is_new() {
        let mut guests = marked(&[guest(1, 100)]);
        guests.follow(&[guest(1, 40)]);
        assert_eq!(guests.follow(&[guest(1, 100)]).grown_bytes, 60);
    }

    #[test]
    fn merged_pages_of_ended_guests_are_noted() {
        let mut guests = marked(&[guest(1, 100), guest(2, 100)]);
        guests.follow(&[guest(1, 100), ProcessHolding { merged_pages: 7, ..guest(2, 100) }]);
        let after = [guest(1, 100)];
        assert_eq!(guests.follow(&after).ended_pages, 7);
        guests.mark(&after);
        assert_eq!(guests.follow(&after).ended_pages, 0);
    }

    #[test]
    fn a_reused_pid_is_a_new_guest() {
        let mut guests = marked(&[guest(1, 100)]);
        let other = ProcessHolding { id: ProcessId { pid: 1, start_ticks: 2 }, ..guest(1, 100) };
        assert_eq!(guests.follow(&[other]).new_guests, 1);
    }
}
