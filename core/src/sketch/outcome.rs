//! The outcome of all three modes, in pages.

use super::interval::{ConfidenceInterval, proportion};
use super::pairs::PairMatrix;

/// The pages of one guest, or of all, by class. Estimated numbers need not be whole.
///
/// Each page is in exactly one class: `zero + within + across + unique = pages`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GuestOutcome {
    /// The pages that were read and do not change.
    pub pages: u64,
    /// Pages of zeros.
    pub zero: f64,
    /// Copies beyond the first of each other content in this guest: merging saves them even if the guest is alone.
    pub within: f64,
    /// Contents of this guest, one page each, that another guest holds as well.
    pub across: f64,
    /// Pages with a content that no other guest has.
    pub unique: f64,
    /// Pages that merging saves. The saving of a content is split by each guest's number of copies.
    pub saved: ConfidenceInterval,
}

/// All guests and their sum.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SavingsOutcome {
    /// In the order in which the guests were numbered.
    pub guests: Vec<GuestOutcome>,
    /// All together; its interval is narrower than the sum of theirs.
    pub total: GuestOutcome,
    /// The contents that each two guests share, if requested.
    pub pairs: Option<PairMatrix>,
}

impl SavingsOutcome {
    /// Sums the guests; `saved` is the saving of all together.
    pub(super) fn from_guests(
        guests: Vec<GuestOutcome>,
        saved: ConfidenceInterval,
        pairs: Option<PairMatrix>,
    ) -> Self {
        let mut total = GuestOutcome { saved, ..GuestOutcome::default() };
        for guest in &guests {
            total.pages += guest.pages;
            total.zero += guest.zero;
            total.within += guest.within;
            total.across += guest.across;
            total.unique += guest.unique;
        }
        Self { guests, total, pairs }
    }
}

/// A second look at some pages of one guest, after the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SecondReading {
    /// Pages looked at twice that held zeros at first, and those of them that hold something else now.
    pub zero: (u64, u64),
    /// Likewise for pages that held anything else.
    pub other: (u64, u64),
}

impl SavingsOutcome {
    /// Adds pages that KSM has put on the kernel's zero page: they are known without being read, and all saved.
    pub fn add_merged_zero_pages(&mut self, guest: usize, pages: u64) {
        for outcome in self.guests.get_mut(guest).into_iter().chain([&mut self.total]) {
            let more = pages as f64;
            outcome.pages += pages;
            outcome.zero += more;
            outcome.saved.expected += more;
            outcome.saved.low += more;
            outcome.saved.high += more;
        }
    }

    /// Removes pages that change too fast to merge, estimated from a second look at a random part of each guest's
    /// pages.
    ///
    /// It is unknown which changing pages would have been saved: `expected` assumes the guest's average, `low` that all
    /// of them would, `high` that none would.
    pub fn without_changing(&mut self, looks: &[SecondReading]) {
        let (mut expected, mut low) = (0.0, 0.0);
        for (guest, look) in self.guests.iter_mut().zip(looks) {
            let nonzero = guest.pages as f64 - guest.zero;
            let zero = proportion(look.zero.1, look.zero.0, guest.zero);
            let other = proportion(look.other.1, look.other.0, nonzero);
            // Nothing looked at means nothing known, not that nothing changes: but then there is next to nothing.
            let most = |part: ConfidenceInterval, looked: u64| if looked == 0 { 0.0 } else { part.high };
            let saved = (guest.saved.expected - guest.zero).max(0.0);
            let average = if nonzero > 0.0 { (saved / nonzero).min(1.0) } else { 0.0 };
            let lost = zero.expected + other.expected * average;
            let lost_at_most = most(zero, look.zero.0) + most(other, look.other.0);
            let keep = if nonzero > 0.0 { 1.0 - other.expected / nonzero } else { 1.0 };
            let changing = (zero.expected + other.expected).round().min(guest.pages as f64);
            guest.pages -= changing as u64;
            guest.zero -= zero.expected;
            guest.within *= keep;
            guest.across *= keep;
            guest.unique *= keep;
            guest.saved = guest.saved.reduced(lost, lost_at_most);
            expected += lost;
            low += lost_at_most;
        }
        let saved = self.total.saved.reduced(expected, low);
        let pairs = self.pairs.take();
        *self = Self::from_guests(std::mem::take(&mut self.guests), saved, pairs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> SavingsOutcome {
        let guest = GuestOutcome {
            pages: 1000,
            zero: 200.0,
            within: 400.0,
            across: 100.0,
            unique: 300.0,
            saved: ConfidenceInterval::exactly(600.0),
        };
        SavingsOutcome::from_guests(vec![guest], ConfidenceInterval::exactly(600.0), None)
    }

    #[test]
    fn merged_zero_pages_are_saved_whole() {
        let mut outcome = outcome();
        outcome.add_merged_zero_pages(0, 50);
        assert_eq!((outcome.total.pages, outcome.total.zero, outcome.guests[0].saved.high), (1050, 250.0, 650.0));
    }

    #[test]
    fn changing_pages_leave_and_take_their_savings_with_them() {
        let mut outcome = outcome();
        outcome.without_changing(&[SecondReading { zero: (100, 10), other: (400, 100) }]);
        let guest = &outcome.guests[0];
        assert_eq!(guest.pages, 1000 - 20 - 200);
        assert_eq!((guest.zero, guest.within), (180.0, 300.0));
        // Half of what is not zero was saved: 20 + 100.
        assert_eq!(guest.saved.expected, 480.0);
        assert!(guest.saved.low < 380.0 && guest.saved.high == 600.0);
        assert_eq!(outcome.total.saved, guest.saved);
    }

    #[test]
    fn no_second_look_changes_nothing() {
        let mut same = outcome();
        same.without_changing(&[SecondReading::default()]);
        assert_eq!(same, outcome());
    }
}
