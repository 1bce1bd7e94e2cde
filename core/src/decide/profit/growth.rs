//! The amount of new memory that is worth a burst: the less such bursts saved, the more is needed.
//!
//! A solver that frees and allocates its arrays in each iteration always has new memory, none of which stays unchanged
//! until ksmd has visited it twice.

use super::guests::GuestChanges;
use super::probability::MergeProbability;
use crate::scan::ScanOutcome;

/// The state learned from bursts for growth.
#[derive(Debug, Clone, Copy)]
pub struct GrowthModel {
    /// The probability that growth merges.
    probability: MergeProbability,
    /// True if the present burst is also for new guests: then it teaches nothing of growth.
    has_new_guests: bool,
    /// The outcome of the present burst when it had last paid.
    paid_until: ScanOutcome,
    /// True if the present burst was continued since without paying.
    is_wasted: bool,
}

impl Default for GrowthModel {
    fn default() -> Self {
        let probability = MergeProbability::expecting(1.0);
        Self { probability, has_new_guests: false, paid_until: ScanOutcome::default(), is_wasted: false }
    }
}

impl GrowthModel {
    /// Returns the new memory in bytes that is expected to merge: `grown_bytes * p`, where `p` is 1 for new guests.
    pub fn merging_bytes(self, changes: GuestChanges) -> f64 {
        let grown = changes.grown_bytes as f64;
        if changes.new_guests > 0 { grown } else { grown * self.probability.mean() }
    }

    /// Records that a burst starts, or is continued, for these changes.
    pub fn note_burst(&mut self, changes: GuestChanges) {
        self.has_new_guests |= changes.new_guests > 0;
    }

    /// Returns true if a burst may continue for memory that has grown meanwhile.
    ///
    /// It may cost a pass each time it has paid, and two passes for new guests of which nothing has merged yet. Memory
    /// that comes and goes would else keep ksmd busy for ever.
    pub fn may_continue(
        &mut self,
        changes: GuestChanges,
        so_far: &ScanOutcome,
        pass_seconds: f64,
        price: f64,
    ) -> bool {
        if so_far.cpu_seconds < self.paid_until.cpu_seconds {
            // It is the outcome of a burst that was given up.
            self.paid_until = ScanOutcome::default();
        }
        let since = ScanOutcome {
            saved_bytes: so_far.saved_bytes.saturating_sub(self.paid_until.saved_bytes),
            cpu_seconds: so_far.cpu_seconds - self.paid_until.cpu_seconds,
        };
        if since.saved_bytes > 0 && since.yield_per_cpu_second() >= price {
            self.paid_until = *so_far;
            return true;
        }
        let has_paid = self.paid_until.cpu_seconds > 0.0;
        let passes = if self.is_for_new_guests(changes) && !has_paid { 2.0 } else { 1.0 };
        let continues = since.cpu_seconds < passes * pass_seconds;
        self.is_wasted |= !continues;
        continues
    }

    /// Returns true if the burst is for new guests, or some have started since.
    pub fn is_for_new_guests(&self, changes: GuestChanges) -> bool {
        self.has_new_guests || changes.new_guests > 0
    }

    /// Learns from a burst, which counts as so many trials, whether growth pays. A burst for new guests that did not
    /// pay teaches nothing.
    pub fn learn(&mut self, paid: bool, trials: f64) {
        let mut probability = self.probability;
        if self.is_wasted || !paid && !self.has_new_guests {
            probability.learn(0.0, trials);
        } else if paid {
            probability.learn(1.0, trials);
        }
        *self = Self { probability, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn grown(grown_bytes: u64) -> GuestChanges {
        GuestChanges { grown_bytes, ..GuestChanges::default() }
    }

    /// Returns true if at least so many MiB of growth are expected to merge one of them.
    fn needs(growth: GrowthModel, mib: u64) -> bool {
        let is_enough = |grown_bytes| growth.merging_bytes(grown(grown_bytes)) >= MIB as f64;
        is_enough(mib * MIB) && !is_enough(mib * MIB - 1)
    }

    #[test]
    fn wasted_bursts_raise_the_threshold() {
        let mut growth = GrowthModel::default();
        assert!(needs(growth, 1));
        growth.learn(false, 3.0);
        assert!(needs(growth, 8));
        growth.learn(false, 3.0);
        assert!(needs(growth, 64));
        growth.learn(true, 3.0);
        assert!(growth.merging_bytes(grown(2 * MIB)) >= MIB as f64, "it has paid again");
    }

    /// Returns true if a burst continues that has saved and cost so much, at a price of 100 and a second for a pass.
    fn continues(growth: &mut GrowthModel, new_guests: usize, saved_bytes: i64, cpu_seconds: f64) -> bool {
        let changes = GuestChanges { new_guests, ..GuestChanges::default() };
        growth.may_continue(changes, &ScanOutcome { saved_bytes, cpu_seconds }, 1.0, 100.0)
    }

    #[test]
    fn a_burst_for_growth_continues_as_long_as_it_pays() {
        let fresh = |new_guests, saved_bytes, cpu_seconds| {
            continues(&mut GrowthModel::default(), new_guests, saved_bytes, cpu_seconds)
        };
        assert!(fresh(0, 0, 0.9), "nothing merges on a first visit");
        assert!(!fresh(0, 0, 1.1));
        assert!(fresh(0, 200, 2.0));
        assert!(!fresh(0, 199, 2.0));
        assert!(fresh(1, 0, 1.9), "new guests are waited for");
        assert!(!fresh(1, 0, 2.1), "and not for ever");
    }

    /// As seen with Quantum ESPRESSO: what its ranks share merges at once, and then they free and allocate without end.
    #[test]
    fn new_guests_that_allocate_and_free_for_ever_are_left_alone_once_that_does_not_pay() {
        let mut growth = GrowthModel::default();
        growth.note_burst(GuestChanges { new_guests: 4, ..GuestChanges::default() });
        assert!(continues(&mut growth, 0, 100, 0.5));
        assert!(continues(&mut growth, 0, 270, 1.0));
        assert!(continues(&mut growth, 0, 220, 1.9), "no pass since it paid");
        assert!(!continues(&mut growth, 0, 270, 2.1), "what went and came back was saved before");
        growth.learn(true, 3.0);
        assert!(needs(growth, 8), "such growth is not trusted, although the burst paid as a whole");
        assert!(continues(&mut growth, 0, 0, 0.9), "the next one starts afresh");
    }

    #[test]
    fn new_guests_have_a_fresh_start() {
        let mut growth = GrowthModel::default();
        let new_guest = GuestChanges { new_guests: 1, grown_bytes: MIB, ..GuestChanges::default() };
        growth.note_burst(new_guest);
        growth.note_burst(GuestChanges::default());
        growth.learn(false, 3.0);
        assert!(needs(growth, 1), "a burst for new_guests says nothing of growth");
        growth.learn(false, 3.0);
        assert!(needs(growth, 8));
        assert_eq!(growth.merging_bytes(new_guest), MIB as f64);
    }
}
