//! Changes of the guests since ksmd last visited all of their memory: growth, activity, starts and ends.

use std::time::Duration;

use rustc_hash::FxHashMap;

use super::constants::KNOWN_PART;
use super::level::MemoryLevel;
use super::situation::ProcessHolding;
use crate::sample::ProcessId;

/// One process at the last complete scan.
#[derive(Debug, Clone, Copy)]
struct ProcessMark {
    /// The level of its memory when ksmd last started to visit all memory twice, or the present level if that is lower.
    bytes: u64,
    level: MemoryLevel,
    /// True until ksmd starts to visit all its memory twice.
    is_new: bool,
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
    /// The time until the first of those that fill their memory may have filled it, where nothing is new because of them.
    settles_in: Option<Duration>,
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
    /// Records the processes of the next sample, and returns the changes. A guest that stays small lowers its mark, so
    /// that memory which returns counts as new. Memory that is soon allocated again is not ([`MemoryLevel`]).
    ///
    /// With `after_init` nothing is new while most of what is new is still being filled: a scan would visit that too. Later
    /// only what a process keeps is new to it ([`MemoryLevel::held_bytes`]).
    pub fn follow(&mut self, processes: &[ProcessHolding], after_init: bool, at: Duration) -> GuestChanges {
        let mut ended = std::mem::take(&mut self.marks);
        let mut changes = GuestChanges::default();
        let mut filling_bytes = 0_u64;
        let mut settles_in: Option<Duration> = None;
        for now in processes {
            let new = || ProcessMark { bytes: 0, is_new: true, ..ProcessMark::from_holding(now, at) };
            let mut mark = ended.remove(&now.id).unwrap_or_else(new);
            mark.level.record(now.bytes, at);
            mark.bytes = mark.bytes.min(mark.level.peak_bytes());
            mark.merged_pages = now.merged_pages;
            self.marks.insert(now.id, mark);
            let held_bytes = if after_init && !mark.is_new { mark.level.held_bytes() } else { now.bytes };
            let grown_bytes = held_bytes.saturating_sub(mark.bytes);
            changes.grown_bytes = changes.grown_bytes.saturating_add(grown_bytes);
            if after_init && !mark.level.has_settled(at) {
                filling_bytes = filling_bytes.saturating_add(grown_bytes);
                let soonest = mark.level.settles_in(at);
                settles_in = Some(settles_in.map_or(soonest, |other| other.min(soonest)));
            }
            if mark.is_new {
                changes.new_guests += 1;
                changes.has_faulted = true;
                continue;
            }
            if !mark.is_filling {
                changes.settled_bytes = changes.settled_bytes.saturating_add(grown_bytes);
            }
            changes.has_faulted |= now.minor_faults > mark.faults_before;
            changes.cpu_ticks = changes.cpu_ticks.saturating_add(now.cpu_ticks.saturating_sub(mark.cpu_ticks));
            changes.faults = changes.faults.saturating_add(now.minor_faults.saturating_sub(mark.minor_faults));
        }
        let are_filling = filling_bytes > changes.grown_bytes / 2;
        self.settles_in = settles_in.filter(|_| are_filling);
        if are_filling {
            changes = GuestChanges { new_guests: 0, grown_bytes: 0, settled_bytes: 0, ..changes };
        }
        let old = ended.values().filter(|mark| !mark.is_new);
        self.ended_pages = old.fold(self.ended_pages, |sum, mark| sum.saturating_add(mark.merged_pages));
        GuestChanges { ended_pages: self.ended_pages, ..changes }
    }

    /// Returns the time after which memory may be new that is not yet, since processes were filling it at the last sample.
    pub fn settles_in(&self) -> Option<Duration> {
        self.settles_in
    }

    /// Forgets processes that have offered their memory again: all of it is new.
    pub fn forget(&mut self, offered: &[ProcessId]) {
        for id in offered {
            self.marks.remove(id);
        }
    }

    /// Marks all memory as old: ksmd starts to visit it twice.
    pub fn mark(&mut self, processes: &[ProcessHolding], at: Duration) {
        let grew_much =
            |mark: &ProcessMark, now: &ProcessHolding| (mark.bytes as f64) < now.bytes as f64 * KNOWN_PART;
        let is_filling = |before: Option<&ProcessMark>, now: &ProcessHolding| {
            before.is_none_or(|mark| mark.is_filling && grew_much(mark, now))
        };
        self.mark_all(processes, at, is_filling);
    }

    /// Marks also as old what has grown since, which ksmd has yet to reach. A guest that is filling its memory still
    /// is.
    pub fn mark_ahead(&mut self, processes: &[ProcessHolding], at: Duration) {
        self.mark_all(processes, at, |before, _| before.is_none_or(|mark| mark.is_filling));
    }

    fn mark_all(
        &mut self,
        processes: &[ProcessHolding],
        at: Duration,
        is_filling: impl Fn(Option<&ProcessMark>, &ProcessHolding) -> bool,
    ) {
        let before = std::mem::take(&mut self.marks);
        self.marks.extend(processes.iter().map(|now| {
            let last = before.get(&now.id);
            let is_filling = is_filling(last.filter(|mark| !mark.is_new), now);
            let mut level = last.map_or(MemoryLevel::new(now.bytes, at), |mark| mark.level);
            level.record(now.bytes, at);
            (
                now.id,
                ProcessMark { bytes: level.peak_bytes(), level, is_filling, ..ProcessMark::from_holding(now, at) },
            )
        }));
        self.ended_pages = 0;
    }

    /// Begins to count activity anew: ksmd is parked, or starts a smaller scan. New memory stays new.
    pub fn rest(&mut self, processes: &[ProcessHolding]) {
        for holding in processes {
            if let Some(mark) = self.marks.get_mut(&holding.id) {
                let ProcessHolding { cpu_ticks, minor_faults, merged_pages, .. } = *holding;
                *mark = ProcessMark { cpu_ticks, minor_faults, merged_pages, ..*mark };
            }
        }
        self.ended_pages = 0;
    }
}

impl ProcessMark {
    fn from_holding(holding: &ProcessHolding, at: Duration) -> Self {
        let ProcessHolding { bytes, cpu_ticks, minor_faults, merged_pages, .. } = *holding;
        Self {
            bytes,
            level: MemoryLevel::new(bytes, at),
            is_new: false,
            faults_before: minor_faults,
            is_filling: false,
            cpu_ticks,
            minor_faults,
            merged_pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::from_secs(7);

    fn guest(pid: u32, bytes: u64) -> ProcessHolding {
        let id = ProcessId { pid, start_ticks: 1 };
        ProcessHolding { id, bytes, cpu_ticks: 0, minor_faults: 0, merged_pages: 0 }
    }

    fn marked(processes: &[ProcessHolding]) -> GuestMarks {
        let mut guests = GuestMarks::default();
        guests.mark(processes, AT);
        guests
    }

    #[test]
    fn new_guests_and_growth_are_counted_until_marked() {
        let mut guests = marked(&[guest(1, 100)]);
        let later = [guest(1, 150), guest(2, 30)];
        let changes = guests.follow(&later, false, AT);
        assert_eq!((changes.new_guests, changes.grown_bytes), (1, 80));
        guests.mark(&later, AT);
        assert_eq!(guests.follow(&later, false, AT), GuestChanges::default());
    }

    #[test]
    fn memory_that_appeared_during_a_scan_is_new_when_ksmd_is_parked() {
        let mut guests = marked(&[guest(1, 100)]);
        let later = [ProcessHolding { minor_faults: 5, cpu_ticks: 7, ..guest(1, 150) }, guest(2, 30)];
        guests.rest(&later);
        let expected =
            GuestChanges { new_guests: 1, grown_bytes: 80, has_faulted: true, ..GuestChanges::default() };
        assert_eq!(guests.follow(&later, false, AT), expected, "its activity meanwhile has been looked at");
    }

    #[test]
    fn what_a_guest_grows_by_is_settled_once_it_has_filled_its_memory() {
        let mut guests = marked(&[guest(1, 100)]);
        let growth = |guests: &mut GuestMarks, bytes| {
            let changes = guests.follow(&[guest(1, bytes)], false, AT);
            (changes.grown_bytes, changes.settled_bytes)
        };
        assert_eq!(growth(&mut guests, 200), (100, 0), "it was new");
        guests.mark(&[guest(1, 200)], AT);
        assert_eq!(growth(&mut guests, 400), (200, 0), "it had doubled");
        guests.mark_ahead(&[guest(1, 400)], AT);
        assert_eq!(growth(&mut guests, 410), (10, 0), "nothing was decided between");
        guests.mark(&[guest(1, 410)], AT);
        assert_eq!(growth(&mut guests, 500), (90, 90), "it had hardly grown");
        guests.mark(&[guest(1, 500)], AT);
        assert_eq!(growth(&mut guests, 1000), (500, 500), "it does not fill its memory twice");
    }

    #[test]
    fn memory_that_was_offered_again_is_new_and_has_not_ended() {
        let merged = ProcessHolding { merged_pages: 7, ..guest(1, 100) };
        let mut guests = marked(&[merged]);
        guests.forget(&[merged.id]);
        let changes = guests.follow(&[merged], false, AT);
        assert_eq!((changes.new_guests, changes.grown_bytes, changes.ended_pages), (1, 100, 0));
    }

    #[test]
    fn memory_that_is_soon_allocated_again_is_no_growth() {
        let mut guests = marked(&[guest(1, 100)]);
        let second = Duration::from_secs;
        // An iteration frees memory, and the next allocates as much.
        for turn in 0..100 {
            let (low, high) = (second(8 + 20 * turn), second(18 + 20 * turn));
            assert_eq!(guests.follow(&[guest(1, 40)], false, low).grown_bytes, 0);
            assert_eq!(guests.follow(&[guest(1, 100)], false, high).grown_bytes, 0);
        }
        assert_eq!(guests.follow(&[guest(1, 110)], false, second(2009)).grown_bytes, 10, "it holds more than ever");
    }

    #[test]
    fn memory_is_marked_by_its_level_and_not_by_a_moment() {
        let mut guests = marked(&[guest(1, 100)]);
        guests.follow(&[guest(1, 900)], false, Duration::from_secs(8));
        guests.mark(&[guest(1, 500)], Duration::from_secs(9));
        assert_eq!(guests.follow(&[guest(1, 900)], false, Duration::from_secs(10)).grown_bytes, 0);
    }

    #[test]
    fn memory_that_returns_after_a_while_is_new() {
        let mut guests = marked(&[guest(1, 100)]);
        for second in 8..80 {
            guests.follow(&[guest(1, 40)], false, Duration::from_secs(second));
        }
        assert_eq!(guests.follow(&[guest(1, 100)], false, Duration::from_secs(80)).grown_bytes, 60);
    }

    #[test]
    fn after_init_memory_counts_once_the_most_of_it_has_been_there_for_a_while() {
        let mut guests = GuestMarks::default();
        let mut grown = |ms: u64, bytes| {
            let changes = guests.follow(&[guest(1, bytes)], true, Duration::from_millis(ms));
            (changes.new_guests, changes.grown_bytes)
        };
        // It fills its memory in eight seconds, and frees and allocates some of it from then on.
        let filling = (0..80).map(|n| grown(100 * n, 10 + 10 * n));
        assert!(filling.into_iter().all(|changes| changes == (0, 0)));
        assert_eq!([8500, 9000, 9900].map(|ms| grown(ms, if ms == 9000 { 500 } else { 820 })), [(0, 0); 3]);
        assert_eq!(grown(11_000, 600), (1, 600));
        // A small process that has settled is no reason to scan those that have not.
        let mut guests = GuestMarks::default();
        let mut grown = |ms: u64, rank| {
            guests.follow(&[guest(1, 10), guest(2, rank)], true, Duration::from_millis(ms)).grown_bytes
        };
        assert_eq!([grown(0, 10), grown(1000, 400), grown(1500, 900), grown(3000, 900)], [0, 0, 0, 910]);
    }

    /// As seen with Quantum ESPRESSO: half as much again for a second or three, once in five to ten seconds.
    #[test]
    fn after_init_what_a_step_allocates_and_frees_is_no_growth() {
        let grown = |kept: u64, step: u64| {
            let mut guests = GuestMarks::default();
            let at = |second| Duration::from_secs(second);
            (0..20).for_each(|second| _ = guests.follow(&[guest(1, 700)], true, at(second)));
            guests.mark(&[guest(1, 700)], at(20));
            let bytes = |second: u64| if second % 8 < 3 { 700 + kept + step } else { 700 + kept };
            (21..100).map(|second| guests.follow(&[guest(1, bytes(second))], true, at(second)).grown_bytes).max()
        };
        assert_eq!(grown(0, 400), Some(0));
        assert_eq!(grown(90, 400), Some(90), "what it keeps");
    }

    #[test]
    fn merged_pages_of_ended_guests_are_noted() {
        let mut guests = marked(&[guest(1, 100), guest(2, 100)]);
        guests.follow(&[guest(1, 100), ProcessHolding { merged_pages: 7, ..guest(2, 100) }], false, AT);
        let after = [guest(1, 100)];
        assert_eq!(guests.follow(&after, false, AT).ended_pages, 7);
        guests.mark(&after, AT);
        assert_eq!(guests.follow(&after, false, AT).ended_pages, 0);
    }

    #[test]
    fn a_reused_pid_is_a_new_guest() {
        let mut guests = marked(&[guest(1, 100)]);
        let other = ProcessHolding { id: ProcessId { pid: 1, start_ticks: 2 }, ..guest(1, 100) };
        assert_eq!(guests.follow(&[other], false, AT).new_guests, 1);
    }
}
