//! What a further look is expected to bring, and what is learned of that.

use super::Profit;
use crate::decide::View;
use crate::decide::round::Outcome;
use crate::sample::Sample;

/// Of pages that changed between two looks, the part that may have come to rest, where no witness tells.
const VOLATILE: f64 = 0.2;

/// Witnesses from which on what became of them is worth learning from.
const FEWEST_TRIED: u32 = 8;

/// How far what the witnesses rely on is believed at least.
const LEAST_FAITH: f64 = 0.05;

/// Of pages that come to rest with a content that was merged before, the part that is taken to merge again.
const FAMILIAR: f64 = 0.8;

/// What a further look may bring, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Expected {
    /// Whatever was learned.
    surely: f64,
    /// If it is trusted fully.
    perhaps: f64,
    /// Witnesses that are to be merged by it.
    relied: u32,
    /// What part of the sure bytes counts, 0 to 1, since they may soon be written to again.
    lasting: f64,
}

impl Expected {
    pub(super) fn bytes(self, trust: f64) -> f64 {
        self.surely + self.perhaps * trust
    }

    /// Bytes that are worth as much as if they stayed merged.
    fn worth(self, trust: f64) -> f64 {
        self.surely * self.lasting + self.perhaps * trust
    }

    /// What each byte that it may bring is worth, 0 to 1.
    pub(super) fn worth_of_each(self) -> f64 {
        let bytes = self.bytes(1.0);
        if bytes > 0.0 { self.worth(1.0) / bytes } else { 1.0 }
    }
}

impl Profit {
    /// Bytes that one more look would save: of the pages that were changing, those that have come to rest and
    /// equal another page.
    pub(super) fn expected_from_another_look(&self, view: &View<'_>) -> Expected {
        let changing = view.now.ksm.pages_volatile.get().unwrap_or(0).saturating_mul(view.now.page_size) as f64;
        Expected { perhaps: changing * VOLATILE * merging_part(view.now), ..Expected::default() }
    }

    /// Bytes that visiting everything twice would save, by what the witnesses say: of the pages that have changed
    /// and come to rest, those that were merged before with what they hold, and of the others those that equal
    /// another page. 0 without witnesses.
    pub(super) fn expected_from_revisit(&self, view: &View<'_>) -> Expected {
        let Some(witnesses) = view.now.witnesses.value() else { return Expected::default() };
        let ksm = &view.now.ksm;
        let pages = ksm.tracked_pages().saturating_add(ksm.zero_pages());
        let bytes = pages.saturating_mul(view.now.page_size) as f64;
        Expected {
            surely: bytes * witnesses.familiar_part() * FAMILIAR * self.faith,
            relied: witnesses.seated.saturating_add(witnesses.paired),
            lasting: witnesses.lasting_part(),
            perhaps: bytes * witnesses.unfamiliar_part() * merging_part(view.now),
        }
    }

    /// Whether nearly all that a revisit surely brings are pages whose checksums ksmd knows.
    pub(super) fn one_look_does(&self, view: &View<'_>) -> bool {
        let Some(witnesses) = view.now.witnesses.value() else { return false };
        let expected = self.expected_from_revisit(view);
        u64::from(witnesses.returned) * 10 >= u64::from(witnesses.familiar) * 9
            && expected.surely * expected.lasting >= expected.perhaps * self.trust
    }

    /// Whether the witnesses say that a revisit pays.
    pub(super) fn revisit_pays(&self, view: &View<'_>) -> bool {
        let expected = self.expected_from_revisit(view);
        let cost = self.price_of_two_looks(view);
        expected.worth(self.trust) >= cost.max(self.growth_bytes(view.now) as f64 / 4.0)
    }

    /// Compares the witnesses that were to be merged with those that are.
    pub(super) fn learn_faith(&mut self, now: &Sample) {
        let Some(witnesses) = now.witnesses.value() else { return };
        let relied = self.expected.relied.min(witnesses.relied);
        if relied >= FEWEST_TRIED {
            let found = (f64::from(witnesses.found) / f64::from(relied)).min(1.0);
            self.faith = (self.faith + 0.5 * (found - self.faith)).clamp(LEAST_FAITH, 1.0);
        }
    }

    /// Compares what a look brought with what could have been expected of it, had it been trusted fully. Of what the
    /// witnesses see at rest one failure says little: half of the trust is left. Of pages of which it is known only
    /// that they have changed once, most change again: a fifth.
    pub(super) fn learn(&mut self, outcome: &Outcome, view: &View<'_>) {
        if let Some(witnesses) = view.now.witnesses.value() {
            if witnesses.tried >= FEWEST_TRIED {
                let met = f64::from(witnesses.met) / f64::from(witnesses.tried);
                let kept = (met / merging_part(view.now).max(0.01)).min(1.0);
                self.trust = (self.trust + 0.5 * (kept - self.trust)).clamp(0.01, 1.0);
            }
        } else if self.expected.perhaps > 0.0 {
            // Of pages that went apart from all others that shared them one is no loss.
            let (shared, sharing) =
                (view.now.ksm.pages_shared.get().unwrap_or(0), view.now.ksm.pages_sharing.get().unwrap_or(0));
            let lost = sharing as f64 / (shared.saturating_add(sharing)).max(1) as f64;
            let uncounted =
                breaks(view.now).saturating_sub(self.breaks).saturating_mul(view.now.page_size) as f64 * lost;
            let saved = outcome.saved_bytes as f64 + uncounted;
            let kept = ((saved - self.expected.surely) / self.expected.perhaps).clamp(0.0, 1.0);
            self.trust = (self.trust + 0.8 * (kept - self.trust)).clamp(0.01, 1.0);
        }
    }
}

/// Whether what the witnesses expect of a revisit are pages of which none is merged yet.
pub(super) fn is_for_pairs(now: &Sample) -> bool {
    now.witnesses.value().is_some_and(|witnesses| witnesses.paired * 10 > witnesses.familiar)
}

/// Merged pages that were copied on write since boot. 0 before Linux 5.19.
pub(super) fn breaks(now: &Sample) -> u64 {
    now.vmstat.value().and_then(|vmstat| vmstat.cow_ksm).unwrap_or(0)
}

/// Of the pages at rest, the part that equals another one.
fn merging_part(now: &Sample) -> f64 {
    let resting = now.ksm.pages_unshared.get().unwrap_or(0) as f64;
    let saved = now.ksm.saved_pages() as f64;
    saved / (saved + resting).max(1.0)
}
