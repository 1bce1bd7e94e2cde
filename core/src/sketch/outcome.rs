//! What all three modes arrive at, in pages.

use super::interval::Interval;
use super::pairs::Pairs;

/// Pages of one guest (or of all) by what merging makes of them. Where a part is estimated it need not be whole.
///
/// `zero + within + across + unique` is what was looked at: each page is in exactly one of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GuestOutcome {
    /// Pages looked at that do not change.
    pub pages: u64,
    /// Pages of zeros.
    pub zero: f64,
    /// Copies beyond the first of each other content in this guest: what goes even if the guest is alone.
    pub within: f64,
    /// Contents of this guest, one page each, that another guest holds as well.
    pub across: f64,
    /// Pages whose content nobody else has.
    pub unique: f64,
    /// Pages that merging saves. A content's saving is shared out by the number of copies each guest has.
    pub saved: Interval,
}

/// All guests and their sum.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// In the order in which the guests were numbered.
    pub guests: Vec<GuestOutcome>,
    /// All together; its interval is narrower than the sum of theirs.
    pub total: GuestOutcome,
    /// What each two guests share, if it was asked for.
    pub pairs: Option<Pairs>,
}

impl Outcome {
    /// Sums the guests; `saved` is what all save together.
    pub(super) fn of(guests: Vec<GuestOutcome>, saved: Interval, pairs: Option<Pairs>) -> Self {
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
