//! The counts of the sampled pages.

use std::time::Duration;

use crate::units::TimeSpan;

/// The lifetime from which contents count in full.
pub const LASTING: Duration = Duration::from_secs(45);

/// The counts of the sampled pages. A part of them estimates the same part of all mergeable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageSamples {
    /// Pages that were read.
    pub pages: u32,
    /// Of these, pages that were written to since ksmd last started to visit all memory.
    pub changed: u32,
    /// Pages that changed during the last two passes, or in both halves of the last one where that was long, and were
    /// not merged when they were read.
    pub changing: u32,
    /// Changed pages that hold the same as at the reading before.
    pub stable: u32,
    /// Stable pages with a content that was merged before, there or elsewhere.
    pub recurring: u32,
    /// Recurring pages that hold what ksmd found at its last visit: one more visit merges them.
    pub reverted: u32,
    /// Recurring pages that match a merged page: a page of equal content is merged, a frame has free partners, or the
    /// content is zeros.
    pub matches_merged: u32,
    /// Other recurring pages that match an unmerged page of another guest. The rest match no page.
    pub matches_unmerged: u32,
    /// Pages among `matches_unmerged` that can only merge with each other: of two one is left.
    pub mutual: u32,
    /// The mean expected lifetime of the matching contents, up to [`LASTING`]. `None` if there are none.
    pub lifetime: Option<Duration>,
    /// Pages that were recurring when ksmd was last started, and hold the same still.
    pub recurring_tried: u32,
    /// Of these, pages that are merged.
    pub recurring_merged: u32,
    /// Pages that were stable with unknown contents when ksmd was last started, and hold the same still.
    pub unknown_tried: u32,
    /// Of these, pages that are merged.
    pub unknown_merged: u32,
    /// Pages that were stable with unknown contents when ksmd was last started, and have changed since.
    pub unknown_gone: u32,
    /// Readings so far: when this changes, there is something new.
    pub reads: u64,
}

impl PageSamples {
    /// Returns the part of memory that is stable with recurring contents and that a revisit would save, 0 to 1.
    ///
    /// `(matches_merged + matches_unmerged - mutual / 2) / pages`
    pub fn recurring_part(&self) -> f64 {
        let saved =
            f64::from(self.matches_merged) + f64::from(self.matches_unmerged) - f64::from(self.mutual) / 2.0;
        saved / f64::from(self.pages.max(1))
    }

    /// Returns the part that merging recurring contents is worth, 0 to 1: `lifetime / LASTING`.
    ///
    /// Contents that are soon written to again save little, and cost the guest a copy of each page.
    pub fn lifetime_part(&self) -> f64 {
        self.lifetime.map_or(1.0, |lifetime| (lifetime.as_secs_f64() / LASTING.as_secs_f64()).min(1.0))
    }

    /// Returns the part of memory that changes all the time, 0 to 1.
    pub fn changing_part(&self) -> f64 {
        f64::from(self.changing) / f64::from(self.pages.max(1))
    }

    /// Returns a sentence on the pages that a revisit could merge.
    pub fn in_words(&self) -> String {
        let finding = self.matches_merged.saturating_add(self.matches_unmerged);
        let lifetime_part = match self.lifetime {
            Some(lifetime) if lifetime < LASTING => format!(", though perhaps for {} only", TimeSpan(lifetime)),
            _ => String::new(),
        };
        format!(
            "of {} sampled pages {} have changed, {} of these are stable, {} hold what was merged before and {finding} \
             match another page{lifetime_part}",
            self.pages, self.changed, self.stable, self.recurring
        )
    }

    /// Returns the part of memory that is stable and of which it is not known whether a revisit would save it, 0 to 1.
    pub fn unknown_part(&self) -> f64 {
        let known = self.matches_merged.saturating_add(self.matches_unmerged);
        f64::from(self.stable.saturating_sub(known)) / f64::from(self.pages.max(1))
    }
}
