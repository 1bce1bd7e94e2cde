//! What the guests did since ksmd last looked at all of their memory: grew, were active, came or went.

use rustc_hash::FxHashMap;

use crate::sample::{Process, ProcessId, Sample};

/// One process at the last complete look.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// When ksmd last set out to visit all that was there twice.
    held_bytes: u64,
    faults_before: u64,
    /// When it was parked last.
    cpu_ticks: u64,
    minor_faults: u64,
    /// Pages that KSM had merged or mapped to the zero page when the process was last seen.
    merged_pages: u64,
}

/// The processes with mergeable memory, compared with the last complete look.
#[derive(Debug, Clone, Default)]
pub struct Guests {
    marks: FxHashMap<ProcessId, Mark>,
    /// Merged pages of processes that have left since the last complete look.
    left_pages: u64,
}

/// What changed: new memory since ksmd last set out to visit everything twice, anything else since it was parked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes {
    /// Processes that were not there.
    pub newcomers: usize,
    /// Bytes of mergeable memory that were not there, the newcomers' included.
    pub grown_bytes: u64,
    /// Whether any process obtained or copied a page: what grew by a few pages only does not show in RSS, of which
    /// the kernel keeps no exact account.
    pub has_faulted: bool,
    /// CPU time the processes used, in clock ticks.
    pub cpu_ticks: u64,
    /// Pages they obtained or copied.
    pub faults: u64,
    /// Merged pages of processes that have left: counted as saved until ksmd comes by.
    pub left_pages: u64,
}

impl Guests {
    /// Follows guests that shrink, so that memory which comes back counts as new, and notes those that left.
    pub fn follow(&mut self, sample: &Sample) {
        let mut left = std::mem::take(&mut self.marks);
        for process in mergeable(sample) {
            if let Some(mark) = left.remove(&process.id) {
                let held_bytes = mark.held_bytes.min(held_bytes(process, sample));
                let merged_pages = process.merging_pages().saturating_add(process.zero_pages());
                self.marks.insert(process.id, Mark { held_bytes, merged_pages, ..mark });
            }
        }
        self.left_pages = left.values().fold(self.left_pages, |sum, mark| sum.saturating_add(mark.merged_pages));
    }

    /// What changed since the last [`Guests::mark`].
    pub fn changes(&self, sample: &Sample) -> Changes {
        let mut changes = Changes { left_pages: self.left_pages, ..Changes::default() };
        for process in mergeable(sample) {
            let Some(mark) = self.marks.get(&process.id) else {
                changes.newcomers += 1;
                changes.has_faulted = true;
                changes.grown_bytes = changes.grown_bytes.saturating_add(held_bytes(process, sample));
                continue;
            };
            let grown = held_bytes(process, sample).saturating_sub(mark.held_bytes);
            changes.grown_bytes = changes.grown_bytes.saturating_add(grown);
            changes.has_faulted |= process.minor_faults > mark.faults_before;
            changes.cpu_ticks = changes.cpu_ticks.saturating_add(process.cpu_ticks.saturating_sub(mark.cpu_ticks));
            changes.faults = changes.faults.saturating_add(process.minor_faults.saturating_sub(mark.minor_faults));
        }
        changes
    }

    /// ksmd sets out to visit all that is there now twice: it is no longer new.
    pub fn mark(&mut self, sample: &Sample) {
        self.marks.clear();
        self.marks.extend(mergeable(sample).map(|process| (process.id, Mark::of(process, sample))));
        self.left_pages = 0;
    }

    /// ksmd is parked, or has set out for less than that. What has come meanwhile is still new.
    pub fn rest(&mut self, sample: &Sample) {
        for process in mergeable(sample) {
            if let Some(mark) = self.marks.get_mut(&process.id) {
                let Mark { held_bytes, faults_before, .. } = *mark;
                *mark = Mark { held_bytes, faults_before, ..Mark::of(process, sample) };
            }
        }
        self.left_pages = 0;
    }
}

impl Mark {
    fn of(process: &Process, sample: &Sample) -> Self {
        Self {
            held_bytes: held_bytes(process, sample),
            faults_before: process.minor_faults,
            cpu_ticks: process.cpu_ticks,
            minor_faults: process.minor_faults,
            merged_pages: process.merging_pages().saturating_add(process.zero_pages()),
        }
    }
}

/// The processes that matter here.
pub fn mergeable(sample: &Sample) -> impl Iterator<Item = &Process> {
    sample.processes.iter().filter(|process| process.may_merge())
}

/// Bytes that the processes that matter here hold.
pub fn mergeable_bytes(sample: &Sample) -> u64 {
    mergeable(sample).fold(0, |sum, process| sum.saturating_add(held_bytes(process, sample)))
}

/// Bytes that a process holds. A page that is merged with the kernel's zero page leaves RSS, and is back in it once it is
/// written to: it was there all the time, and to ksmd it is nothing new.
fn held_bytes(process: &Process, sample: &Sample) -> u64 {
    process.rss_bytes.saturating_add(process.zero_pages().saturating_mul(sample.page_size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KsmStat;

    fn sample(guests: &[(u32, u64)]) -> Sample {
        let process = |&(pid, rss_bytes): &(u32, u64)| Process {
            id: ProcessId { pid, start_ticks: 1 },
            name: "guest".into(),
            is_vm: true,
            rss_bytes,
            cpu_ticks: 0,
            minor_faults: 0,
            ksm: KsmStat::default(),
        };
        Sample { processes: guests.iter().map(process).collect(), ..Sample::default() }
    }

    #[test]
    fn newcomers_and_growth_are_counted_until_marked() {
        let mut guests = Guests::default();
        guests.mark(&sample(&[(1, 100)]));
        let later = sample(&[(1, 150), (2, 30)]);
        guests.follow(&later);
        let changes = guests.changes(&later);
        assert_eq!((changes.newcomers, changes.grown_bytes), (1, 80));
        guests.mark(&later);
        assert_eq!(guests.changes(&later), Changes::default());
    }

    #[test]
    fn what_came_while_ksmd_was_under_way_is_new_when_it_is_parked() {
        let mut guests = Guests::default();
        guests.mark(&sample(&[(1, 100)]));
        let mut later = sample(&[(1, 150), (2, 30)]);
        (later.processes[0].minor_faults, later.processes[0].cpu_ticks) = (5, 7);
        guests.rest(&later);
        let changes = guests.changes(&later);
        let expected = Changes { newcomers: 1, grown_bytes: 80, has_faulted: true, ..Changes::default() };
        assert_eq!(changes, expected, "what it computed meanwhile has been looked at");
    }

    #[test]
    fn memory_that_went_and_came_back_is_new() {
        let mut guests = Guests::default();
        guests.mark(&sample(&[(1, 100)]));
        guests.follow(&sample(&[(1, 40)]));
        assert_eq!(guests.changes(&sample(&[(1, 100)])).grown_bytes, 60);
    }

    #[test]
    fn a_page_that_was_empty_and_is_written_to_is_not_new() {
        let with_zeros = |rss_bytes, zero_pages| {
            let mut seen = sample(&[(1, rss_bytes)]);
            seen.page_size = 10;
            seen.processes[0].ksm.zero_pages = Some(zero_pages);
            seen
        };
        let mut guests = Guests::default();
        guests.mark(&with_zeros(100, 0));
        guests.follow(&with_zeros(30, 7));
        assert_eq!(guests.changes(&with_zeros(80, 2)).grown_bytes, 0);
        assert_eq!(guests.changes(&with_zeros(130, 2)).grown_bytes, 50);
        assert_eq!(mergeable_bytes(&with_zeros(30, 7)), 100);
    }

    #[test]
    fn merged_pages_of_those_who_left_are_noted() {
        let mut guests = Guests::default();
        let mut before = sample(&[(1, 100), (2, 100)]);
        before.processes[1].ksm.merging_pages = Some(7);
        guests.mark(&sample(&[(1, 100), (2, 100)]));
        guests.follow(&before);
        let after = sample(&[(1, 100)]);
        guests.follow(&after);
        assert_eq!(guests.changes(&after).left_pages, 7);
        guests.mark(&after);
        assert_eq!(guests.changes(&after).left_pages, 0);
    }

    #[test]
    fn a_reused_pid_is_a_newcomer() {
        let mut guests = Guests::default();
        guests.mark(&sample(&[(1, 100)]));
        let mut other = sample(&[(1, 100)]);
        other.processes[0].id.start_ticks = 2;
        guests.follow(&other);
        assert_eq!(guests.changes(&other).newcomers, 1);
    }
}
