//! The rate at which a guest fills its memory, by its own statistics.

use super::STALE_SECONDS;

/// Recent memory use of a guest, by its statistics.
///
/// Statistics are seconds old, and a take by them would leave a guest that fills its memory less than its reserve.
#[derive(Debug, Default)]
pub(super) struct FillRate {
    /// The second of the statistics, and the bytes that the guest used.
    told: Vec<(u64, u64)>,
}

impl FillRate {
    /// Records the bytes used at the statistics of this second.
    pub(super) fn record_usage(&mut self, second: u64, used_bytes: u64) {
        match self.told.last() {
            Some((last, _)) if *last == second => return,
            // The clock was set back.
            Some((last, _)) if *last > second => self.told.clear(),
            _ => {}
        }
        self.told.retain(|(then, _)| second - then <= STALE_SECONDS);
        self.told.push((second, used_bytes));
    }

    /// Returns the fastest growth between two consecutive statistics: a program that fills memory may pause in between.
    pub(super) fn bytes_per_second(&self) -> u64 {
        let grown = self.told.windows(2).map(|pair| match pair {
            [(then, before), (now, after)] => after.saturating_sub(*before) / (now - then),
            _ => 0,
        });
        grown.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_of_the_recent_statistics_counts() {
        let mut filling = FillRate::default();
        assert_eq!(filling.bytes_per_second(), 0);
        for (second, used, rate) in [
            (10, 100, 0),
            (10, 900, 0),
            (12, 140, 20),
            (14, 100, 20),
            (16, 110, 20),
            (26, 110, 5),
            (28, 110, 5),
            (32, 0, 0),
        ] {
            filling.record_usage(second, used);
            assert_eq!(filling.bytes_per_second(), rate, "{second}");
        }
    }

    #[test]
    fn a_clock_that_is_set_begins_anew() {
        let mut filling = FillRate::default();
        for (second, used) in [(100, 0), (50, 1000), (9000, 1_000_000)] {
            filling.record_usage(second, used);
            assert_eq!(filling.bytes_per_second(), 0, "{second}");
        }
        filling.record_usage(9001, 1_000_004);
        assert_eq!(filling.bytes_per_second(), 4);
    }
}
