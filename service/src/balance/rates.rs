//! Rates of counters between two looks.

use std::time::Duration;

use ksmith_core::balance::ReportedFigures;

/// The shortest span of a rate.
///
/// A turn may look twice within milliseconds: one page in a millisecond is no wave, and two faults in ten milliseconds
/// are no memory pressure.
const SHORTEST: Duration = Duration::from_millis(400);

/// A guest's counters since its start. `None`: not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PagingCounters {
    pub(super) major_faults: Option<u64>,
    pub(super) swap_in_bytes: Option<u64>,
    pub(super) swap_out_bytes: Option<u64>,
}

/// The last counters with their time, and the last rates per second.
#[derive(Debug)]
pub(super) struct CounterRates<const N: usize> {
    before: Option<(Duration, [Option<u64>; N])>,
    rates: [Option<f64>; N],
}

impl<const N: usize> Default for CounterRates<N> {
    fn default() -> Self {
        Self { before: None, rates: [None; N] }
    }
}

impl<const N: usize> CounterRates<N> {
    /// Returns the rates since the last counters. Counters within [`SHORTEST`] of those return the last rates.
    ///
    /// The first counters have no rate, and neither has a counter that went back: the guest has rebooted, or lies. `at`
    /// is the time of the counters by the clock of their source: a guest that reports every ten seconds has made its
    /// faults in ten seconds, however often it is asked. When that clock goes back, rates start anew.
    pub(super) fn since(&mut self, at: Duration, counts: [Option<u64>; N]) -> [Option<f64>; N] {
        let (then, old) = *self.before.get_or_insert((at, counts));
        let span = at.saturating_sub(then);
        if at < then {
            *self = Self { before: Some((at, counts)), rates: [None; N] };
        } else if span >= SHORTEST {
            let rate =
                |new: Option<u64>, old: Option<u64>| Some(new?.checked_sub(old?)? as f64 / span.as_secs_f64());
            self.rates = std::array::from_fn(|which| rate(counts[which], old[which]));
            self.before = Some((at, counts));
        }
        self.rates
    }
}

impl CounterRates<3> {
    /// Sets the rates of a guest's figures.
    pub(super) fn fill(&mut self, at: Duration, counts: PagingCounters, inside: &mut ReportedFigures) {
        let PagingCounters { major_faults, swap_in_bytes, swap_out_bytes } = counts;
        [inside.major_faults_per_second, inside.swap_in_bytes_per_second, inside.swap_out_bytes_per_second] =
            self.since(at, [major_faults, swap_in_bytes, swap_out_bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_looks_and_a_counter_that_grows() {
        let counts =
            |faults| PagingCounters { major_faults: Some(faults), swap_in_bytes: None, swap_out_bytes: Some(4096) };
        let mut rates = CounterRates::<3>::default();
        let mut look = |seconds, faults| {
            let mut inside = ReportedFigures::default();
            rates.fill(Duration::from_secs(seconds), counts(faults), &mut inside);
            (inside.major_faults_per_second, inside.swap_in_bytes_per_second, inside.swap_out_bytes_per_second)
        };
        assert_eq!(look(0, 10), (None, None, None));
        assert_eq!(look(2, 16), (Some(3.0), None, Some(0.0)));
        assert_eq!(look(3, 1), (None, None, Some(0.0)));
        assert_eq!(look(3, 2), (None, None, Some(0.0)), "no time has passed: as before");
        assert_eq!(look(1, 2), (None, None, None), "the clock was set back");
        assert_eq!(look(11, 32), (Some(3.0), None, Some(0.0)));
    }
}
