//! What the witnesses say.

use std::time::Duration;

use super::LASTING;
use crate::units::Span;

/// What the witnesses say, in pages. A share of them stands for the same share of all mergeable memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Witnesses {
    /// Pages that were looked at.
    pub pages: u32,
    /// Of these, pages that were written to since ksmd last set out to visit all memory.
    pub changed: u32,
    /// Of the changed, pages that held the same at the look before: they have come to rest.
    pub rested: u32,
    /// Of the rested, pages with a content that was merged before, there or elsewhere: they will merge again.
    pub familiar: u32,
    /// Of the familiar, pages that hold what they held when ksmd visited them last: one more visit merges them.
    pub returned: u32,
    /// Of the familiar, pages that find a merged one: others hold the same, or there is as much room as they have left, or
    /// they hold zeros.
    pub seated: u32,
    /// Of the other familiar, pages that may meet one of another guest. The rest have nobody to merge with as long as
    /// those who shared with them hold something else.
    pub paired: u32,
    /// Of the paired, pages that can only meet each other: of two one is left.
    pub mutual: u32,
    /// How long the seated and the paired may stay as they are, on average: as long as they stayed last or have rested
    /// by now, up to [`LASTING`]. `None` if there are none.
    pub lasts: Option<Duration>,
    /// Pages that rested with a familiar content when ksmd was sent out last, and hold it still.
    pub relied: u32,
    /// Of the relied on, pages that are merged.
    pub found: u32,
    /// Pages that rested with a content of which nobody knew whether it would merge, when ksmd was sent out last, and hold
    /// it still.
    pub tried: u32,
    /// Of the tried, pages that are merged.
    pub met: u32,
    /// Looks taken so far: when this moves, there is something new.
    pub looks: u64,
}

impl Witnesses {
    /// The share of memory that has come to rest with a content that was merged before and that a revisit would save, 0
    /// to 1: of two pages that meet one is left.
    pub fn familiar_part(&self) -> f64 {
        let saved = f64::from(self.seated) + f64::from(self.paired) - f64::from(self.mutual) / 2.0;
        saved / f64::from(self.pages.max(1))
    }

    /// The part that merging the seated and the paired is worth, 0 to 1: what is soon written to again saves little, and
    /// costs the guest a copy of each page.
    pub fn lasting_part(&self) -> f64 {
        self.lasts.map_or(1.0, |lasts| (lasts.as_secs_f64() / LASTING.as_secs_f64()).min(1.0))
    }

    /// What a revisit could find, for people.
    pub fn in_words(&self) -> String {
        let finding = self.seated.saturating_add(self.paired);
        let lasting = match self.lasts {
            Some(lasts) if lasts < LASTING => format!(", though perhaps for {} only", Span(lasts)),
            _ => String::new(),
        };
        format!(
            "of {} pages at random {} have changed since, {} of these rest, {} hold what was merged before and {finding} \
             would find others that hold it{lasting}",
            self.pages, self.changed, self.rested, self.familiar
        )
    }

    /// The share of memory that has come to rest and of which nobody knows whether a revisit would save it, 0 to 1.
    pub fn unfamiliar_part(&self) -> f64 {
        let known = self.seated.saturating_add(self.paired);
        f64::from(self.rested.saturating_sub(known)) / f64::from(self.pages.max(1))
    }
}
