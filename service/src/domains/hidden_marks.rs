//! Verified guests that mark memory for ksmd's visits, and un-mark it for the guard's looks in between.
//!
//! When ksmd visits a process, it forgets the pages of memory that is no longer marked (`remove_trailing_rmap_items`,
//! `mm/ksm.c`). So what it knows of a guest that is off only becomes less, and a few passes later nothing is left. It
//! knows more of a guest whose monitor was taken over.

use std::collections::BTreeMap;

use ksmith_core::guest::GuestId;

/// Passes after which ksmd has visited each process that it knew: the one under way, a whole one, and one more, since
/// processes are read a moment before the count of passes.
const PASSES: u64 = 3;

/// The guests that are off, with the pages of each that ksmd knows.
#[derive(Debug, Default)]
pub(super) struct HiddenMarks(BTreeMap<GuestId, TrackedPages>);

/// The pages of a guest that ksmd knows, beyond those that are marked for all to see.
#[derive(Debug, Clone, Copy)]
struct TrackedPages {
    /// The fewest since the guest was switched.
    least: u64,
    /// Completed passes when there were none of them last, or the guest was seen first.
    since: Option<u64>,
    /// True if the guest has had hidden marks, until ksmd knows none of these pages any more.
    has_hidden: bool,
}

impl HiddenMarks {
    /// Returns true if a guest must have marked memory since an earlier look, though none of it shows: ksmd knows
    /// `tracked` of its pages, of which `shown` are marked now, after so many complete passes.
    pub(super) fn find(&mut self, id: GuestId, tracked: u64, shown: u64, full_scans: Option<u64>) -> bool {
        let tracked = tracked.saturating_sub(shown);
        let first = TrackedPages { least: tracked, since: full_scans, has_hidden: false };
        let known = self.0.entry(id).or_insert(first);
        if tracked == 0 {
            *known = first;
            return false;
        }
        let passes = full_scans.zip(known.since).map_or(0, |(now, then)| now.saturating_sub(then));
        known.has_hidden |= tracked > known.least || passes >= PASSES;
        known.least = known.least.min(tracked);
        known.has_hidden
    }

    /// Records that a guest's marks show: ksmd may come to know more of it.
    pub(super) fn show(&mut self, id: GuestId, tracked: u64) {
        if let Some(known) = self.0.get_mut(&id) {
            known.least = known.least.max(tracked);
        }
    }

    /// Forgets a guest that may merge.
    pub(super) fn forget(&mut self, id: GuestId) {
        self.0.remove(&id);
    }

    /// Forgets all guests but these.
    pub(super) fn keep(&mut self, is_there: impl Fn(GuestId) -> bool) {
        self.0.retain(|id, _| is_there(*id));
    }
}

#[cfg(test)]
mod tests {
    use ksmith_core::sample::ProcessId;

    use super::*;

    fn id() -> GuestId {
        ProcessId { pid: 7, start_ticks: 1 }.into()
    }

    #[test]
    fn a_guest_of_which_ksmd_forgets_all_within_some_passes_has_none() {
        let mut marks = HiddenMarks::default();
        let found: Vec<bool> = [(100, 5), (100, 6), (40, 7), (0, 7), (0, 90)]
            .map(|(tracked, passes)| marks.find(id(), tracked, 0, Some(passes)))
            .into();
        assert_eq!(found, [false; 5]);
    }

    #[test]
    fn a_guest_of_which_ksmd_knows_more_than_before_or_still_some_has_hidden_marks_until_ksmd_knows_none() {
        for seen in [[(0, 5), (1, 5)], [(100, 5), (101, 5)], [(100, 5), (100, 8)], [(100, 5), (1, 8)]] {
            let mut marks = HiddenMarks::default();
            let mut find = |(tracked, passes)| marks.find(id(), tracked, 0, Some(passes));
            assert_eq!(seen.map(&mut find), [false, true], "{seen:?}");
            assert!(find((1, 8)) && !find((0, 9)) && find((1, 9)));
        }
        let mut marks = HiddenMarks::default();
        let without_passes = [3, 3, 4].map(|tracked| marks.find(id(), tracked, 0, None));
        assert_eq!(without_passes, [false, false, true]);
    }

    #[test]
    fn marks_that_show_count_as_such_but_give_no_more_passes() {
        let mut marks = HiddenMarks::default();
        assert!(!marks.find(id(), 10, 10, Some(1)) && !marks.find(id(), 10, 10, Some(100)), "firmware");
        assert!(marks.find(id(), 11, 10, Some(100)));
        let mut marks = HiddenMarks::default();
        assert!(!marks.find(id(), 10, 0, Some(1)));
        marks.show(id(), 50);
        assert!(!marks.find(id(), 50, 0, Some(3)), "it was switched off again");
        marks.show(id(), 50);
        assert!(marks.find(id(), 50, 0, Some(4)), "and again, and ksmd has never forgotten it");
        marks.forget(id());
        assert!(!marks.find(id(), 50, 0, Some(4)), "it was in the admitted domain meanwhile");
        marks.keep(|_| false);
        assert!(marks.0.is_empty());
    }
}
