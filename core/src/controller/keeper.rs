//! The settings of khugepaged under which merged pages stay merged.

use crate::kernel::Ksm;
use crate::knobs::{Knob, KnobSettings};

/// The reason for a change of khugepaged's settings.
pub const KEEPS_MERGES: &str = "[huge_pages] keep: so that khugepaged undoes no merge";

/// The terms on which khugepaged's settings are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeepTerms {
    /// True to hold them.
    pub keep: bool,
    /// True if this kernel frees the zero pages of a huge page that it splits, as since Linux 6.12.
    pub splits_free_zeros: bool,
}

/// The keeper of merged pages, which holds `max_ptes_shared` and `max_ptes_none` at 0.
///
/// ksmd splits a huge page to merge one page of it. khugepaged makes a range a huge page again while no more than
/// `max_ptes_shared` of its pages are shared and no more than `max_ptes_none` are empty or zero pages
/// (`hpage_collapse_scan_pmd` in `mm/khugepaged.c`; `examples/kernel/khugepaged.c` shows it). Each merged page then gets a
/// copy, and each freed zero memory. ksmd merges them anew, and the two go on for ever.
///
/// 0 is the only value that ends this: one merged or zero page is what splits a huge page, and with any greater value a
/// range with so few is put together again. All ranges of ordinary pages become huge pages as before, and page faults
/// and `MADV_COLLAPSE` read neither file. The price falls on two kinds of ranges, until the settings are restored:
/// those with empty pages and those with pages shared since a fork are not made huge. From Linux 6.12 on, with
/// `shrink_underused`, `max_ptes_none` also says from how many zero pages on a huge page is split when memory is short.
///
/// So each file is held only for a reason: `max_ptes_shared` once ksmd scans or anything is merged, and
/// `max_ptes_none` if splits or `use_zero_pages` leave zero pages besides. Both are then held as long as ksmith is in
/// control: no counter tells of the zeros that splits have freed, so that none tells when they are gone.
#[derive(Debug, Default)]
pub(super) struct MergeKeeper {
    terms: KeepTerms,
    /// The values that were found, of the settings that are held.
    found: KnobSettings,
}

impl MergeKeeper {
    pub(super) fn set_terms(&mut self, terms: KeepTerms) {
        self.terms = terms;
    }

    /// Returns the settings of khugepaged that go with a decision. Once they are held no longer, returns the values
    /// that were found, unless another program has changed them since.
    pub(super) fn settings(&mut self, ksm: &Ksm, decided: &KnobSettings) -> KnobSettings {
        if !self.terms.keep {
            // Until a sample shows the value, the write is tried again. Another program's value is left alone.
            let is_ours = |(knob, was): &(Knob, u64)| *was != 0 && knob.current(ksm) == Some(0);
            self.found = self.found.iter().filter(is_ours).collect();
            return self.found.clone();
        }
        let soon = |knob: Knob| decided.get(knob).or(knob.current(ksm));
        let zeros = ksm.zero_pages() > 0;
        let merges = soon(Knob::Run) == Some(1) || ksm.pages_shared.get() > Some(0) || zeros;
        let leaves_zeros = merges && (self.terms.splits_free_zeros || soon(Knob::UseZeroPages) == Some(1) || zeros);
        for (knob, is_due) in [(Knob::MaxPtesShared, merges), (Knob::MaxPtesNone, leaves_zeros)] {
            if let (true, None, Some(value)) = (is_due, self.found.get(knob), knob.current(ksm)) {
                self.found.set(knob, value);
            }
        }
        self.found.iter().map(|(knob, _)| (knob, 0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Reading;

    const KEEP: KeepTerms = KeepTerms { keep: true, splits_free_zeros: true };

    fn keeper(terms: KeepTerms) -> MergeKeeper {
        MergeKeeper { terms, ..MergeKeeper::default() }
    }

    /// KSM that is off, beside a khugepaged with the kernel's defaults.
    fn ksm() -> Ksm {
        Ksm {
            run: Reading::Value(0),
            use_zero_pages: Reading::Value(0),
            max_ptes_shared: Reading::Value(256),
            max_ptes_none: Reading::Value(511),
            ..Ksm::default()
        }
    }

    fn scanning() -> KnobSettings {
        KnobSettings::none().with(Knob::Run, 1)
    }

    #[test]
    fn a_host_on_which_nothing_merges_is_left_alone() {
        let mut keeper = keeper(KEEP);
        for decided in [KnobSettings::none(), KnobSettings::none().with(Knob::Run, 0)] {
            assert!(keeper.settings(&ksm(), &decided).is_empty());
        }
    }

    #[test]
    fn both_are_held_from_the_first_scan_on() {
        let mut keeper = keeper(KEEP);
        let held = keeper.settings(&ksm(), &scanning());
        assert_eq!(held.to_string(), "max_ptes_shared=0 max_ptes_none=0");
        // Once parked, with nothing that a counter shows: zeros may have been freed by splits.
        let parked = keeper.settings(&ksm(), &KnobSettings::none().with(Knob::Run, 0));
        assert_eq!(parked, held);
    }

    #[test]
    fn what_was_merged_before_is_kept_although_nothing_is_scanned() {
        let merged = Ksm { pages_shared: Reading::Value(1), ..ksm() };
        assert_eq!(keeper(KEEP).settings(&merged, &KnobSettings::none()).iter().count(), 2);
    }

    #[test]
    fn where_no_zeros_are_freed_ranges_with_empty_pages_stay_as_they_are() {
        let old = KeepTerms { splits_free_zeros: false, ..KEEP };
        assert_eq!(keeper(old).settings(&ksm(), &scanning()).to_string(), "max_ptes_shared=0");
        let zeros = scanning().with(Knob::UseZeroPages, 1);
        assert_eq!(keeper(old).settings(&ksm(), &zeros).iter().count(), 2);
        let merged = Ksm { ksm_zero_pages: Reading::Value(1), ..ksm() };
        assert_eq!(keeper(old).settings(&merged, &KnobSettings::none()).iter().count(), 2);
    }

    #[test]
    fn a_kernel_without_the_files_is_no_error() {
        let without = Ksm {
            max_ptes_shared: Reading::Absent,
            max_ptes_none: Reading::Absent,
            run: Reading::Value(1),
            ..ksm()
        };
        assert!(keeper(KEEP).settings(&without, &scanning()).is_empty());
    }

    #[test]
    fn what_is_held_no_longer_goes_back_once_unless_it_is_anothers() {
        let mut keeper = keeper(KEEP);
        keeper.settings(&ksm(), &scanning());
        keeper.set_terms(KeepTerms { keep: false, ..KEEP });
        let held = Ksm { max_ptes_shared: Reading::Value(0), max_ptes_none: Reading::Value(9), ..ksm() };
        assert_eq!(keeper.settings(&held, &scanning()).to_string(), "max_ptes_shared=256");
        assert_eq!(keeper.settings(&held, &scanning()).to_string(), "max_ptes_shared=256", "it was not written");
        let released = Ksm { max_ptes_shared: Reading::Value(256), ..held };
        assert!(keeper.settings(&released, &scanning()).is_empty());
    }
}
