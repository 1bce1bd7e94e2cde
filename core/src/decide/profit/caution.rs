//! How much memory must be new to be worth a burst: more, the less such bursts have brought.
//!
//! A solver that frees and allocates its arrays in each iteration has new memory all the time, none of which stays as it
//! is until ksmd has been there twice.

use crate::decide::round::Outcome;
use crate::sample::Sample;

use super::guests::{Changes, mergeable_bytes};

/// By how much the threshold rises with a burst that did not pay.
const STEP: u64 = 8;

/// What was learned of growth, by the bursts that it led to.
#[derive(Debug, Clone, Copy)]
pub struct Caution {
    factor: u64,
    /// Whether the present burst is also for processes that were not there before: it teaches nothing of growth.
    has_newcomers: bool,
    /// Where the present burst stood when it had last paid.
    paid_until: Outcome,
    /// Whether the present burst has gone on in vain since.
    is_in_vain: bool,
}

impl Default for Caution {
    fn default() -> Self {
        Self { factor: 1, has_newcomers: false, paid_until: Outcome::default(), is_in_vain: false }
    }
}

impl Caution {
    /// Whether what is new is worth a burst, of which at least `least` bytes are needed in any case. Newcomers have a
    /// fresh start, and so has memory that doubled.
    pub fn is_worth_it(self, changes: Changes, least: u64, now: &Sample) -> bool {
        let half = mergeable_bytes(now) / 2;
        let needed =
            if changes.newcomers > 0 { least } else { least.saturating_mul(self.factor).min(half).max(least) };
        changes.grown_bytes >= needed
    }

    /// A burst begins, or goes on, for what is new.
    pub fn burst(&mut self, changes: Changes) {
        self.has_newcomers |= changes.newcomers > 0;
    }

    /// Whether a burst may go on for what has grown meanwhile. It may cost a pass, or two for newcomers of which nothing has merged
    /// yet, and a pass whenever it has paid: what fills is worth waiting for, but memory that comes and goes would keep
    /// ksmd at it for ever.
    pub fn lets_go_on(&mut self, changes: Changes, so_far: &Outcome, pass_seconds: f64, price: f64) -> bool {
        if so_far.cpu_seconds < self.paid_until.cpu_seconds {
            // Of a burst that was given up.
            self.paid_until = Outcome::default();
        }
        let since = Outcome {
            saved_bytes: so_far.saved_bytes.saturating_sub(self.paid_until.saved_bytes),
            cpu_seconds: so_far.cpu_seconds - self.paid_until.cpu_seconds,
        };
        if since.saved_bytes > 0 && since.yield_per_cpu_second() >= price {
            self.paid_until = *so_far;
            return true;
        }
        let has_paid = self.paid_until.cpu_seconds > 0.0;
        let passes = if self.is_for_newcomers(changes) && !has_paid { 2.0 } else { 1.0 };
        let goes_on = since.cpu_seconds < passes * pass_seconds;
        self.is_in_vain |= !goes_on;
        goes_on
    }

    /// Whether the burst is for processes that were not there before, or some have come since.
    pub fn is_for_newcomers(&self, changes: Changes) -> bool {
        self.has_newcomers || changes.newcomers > 0
    }

    /// Whether the burst was for memory that comes and goes.
    pub fn doubts(&self, paid: bool, changes: Changes) -> bool {
        self.is_in_vain || !paid && !self.is_for_newcomers(changes)
    }

    /// What the burst teaches: if it paid, that growth is to be trusted; else, or if it did not pay in the end, that more of it is
    /// needed.
    pub fn learn(&mut self, paid: bool) {
        let is_growth_in_vain = self.is_in_vain || !paid && !self.has_newcomers;
        let factor = match (is_growth_in_vain, paid) {
            (true, _) => self.factor.saturating_mul(STEP),
            (false, true) => 1,
            (false, false) => self.factor,
        };
        *self = Self { factor, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::KsmStat;
    use crate::sample::{Process, ProcessId};

    const MIB: u64 = 1 << 20;

    fn holding(rss_bytes: u64) -> Sample {
        let id = ProcessId { pid: 1, start_ticks: 1 };
        let ksm = KsmStat { mergeable: Some(true), ..KsmStat::default() };
        let name = "job".into();
        let job = Process { id, name, is_vm: false, rss_bytes, cpu_ticks: 0, minor_faults: 0, ksm };
        Sample { page_size: 4096, processes: vec![job], ..Sample::default() }
    }

    fn needs(caution: Caution, mib: u64) -> bool {
        let is_worth_it = |grown_bytes| {
            caution.is_worth_it(Changes { grown_bytes, ..Changes::default() }, MIB, &holding(100 * MIB))
        };
        is_worth_it(mib * MIB) && !is_worth_it(mib * MIB - 1)
    }

    #[test]
    fn bursts_in_vain_raise_the_threshold_up_to_half_of_the_memory() {
        let mut caution = Caution::default();
        assert!(needs(caution, 1));
        caution.learn(false);
        assert!(needs(caution, 8));
        caution.learn(false);
        assert!(needs(caution, 50));
        caution.learn(true);
        assert!(needs(caution, 1));
    }

    /// Whether a burst goes on that has saved and cost so much, at a price of 100 and a second for a pass.
    fn goes_on(caution: &mut Caution, newcomers: usize, saved_bytes: i64, cpu_seconds: f64) -> bool {
        let changes = Changes { newcomers, ..Changes::default() };
        caution.lets_go_on(changes, &Outcome { saved_bytes, cpu_seconds }, 1.0, 100.0)
    }

    #[test]
    fn a_burst_for_growth_goes_on_as_long_as_it_pays() {
        let fresh = |newcomers, saved_bytes, cpu_seconds| {
            goes_on(&mut Caution::default(), newcomers, saved_bytes, cpu_seconds)
        };
        assert!(fresh(0, 0, 0.9), "nothing merges on a first visit");
        assert!(!fresh(0, 0, 1.1));
        assert!(fresh(0, 200, 2.0));
        assert!(!fresh(0, 199, 2.0));
        assert!(fresh(1, 0, 1.9), "newcomers are waited for");
        assert!(!fresh(1, 0, 2.1), "and not for ever");
    }

    /// As seen with Quantum ESPRESSO: what its ranks share merges at once, and then they free and allocate without end.
    #[test]
    fn newcomers_that_allocate_and_free_for_ever_are_left_alone_once_that_does_not_pay() {
        let mut caution = Caution::default();
        caution.burst(Changes { newcomers: 4, ..Changes::default() });
        assert!(goes_on(&mut caution, 0, 100, 0.5));
        assert!(goes_on(&mut caution, 0, 270, 1.0));
        assert!(goes_on(&mut caution, 0, 220, 1.9), "no pass since it paid");
        assert!(!goes_on(&mut caution, 0, 270, 2.1), "what went and came back was saved before");
        caution.learn(true);
        assert!(needs(caution, 8), "such growth is not trusted, although the burst paid as a whole");
        assert!(goes_on(&mut caution, 0, 0, 0.9), "the next one starts afresh");
    }

    #[test]
    fn newcomers_have_a_fresh_start() {
        let mut caution = Caution::default();
        let newcomer = Changes { newcomers: 1, grown_bytes: MIB, ..Changes::default() };
        caution.burst(newcomer);
        caution.burst(Changes::default());
        caution.learn(false);
        assert!(needs(caution, 1), "a burst for newcomers says nothing of growth");
        caution.learn(false);
        assert!(needs(caution, 8));
        assert!(caution.is_worth_it(newcomer, MIB, &holding(100 * MIB)));
    }
}
