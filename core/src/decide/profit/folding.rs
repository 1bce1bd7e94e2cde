//! Memory that is being folded: huge pages that others split while ksmd is parked.
//!
//! `ksmith run --fold` and the daemon's folder split huge pages with many zeros, which the kernel then frees at no cost of ksmd's.
//! A burst that begins meanwhile has ksmd visit the zeros first.

use std::time::Duration;

use crate::scan::KsmdState;

/// Huge pages that are split between two samples for memory to be folded.
const MANY: u64 = 8;

/// The time without splits after which folding has ended. A convention: a folder looks for its processes four times a second.
const ENDED: Duration = Duration::from_secs(1);

/// The longest that ksmd waits for it: memory that is short is split too.
const LONGEST: Duration = Duration::from_secs(10);

/// The splits of others, as samples show them.
#[derive(Debug, Clone, Copy, Default)]
pub struct FoldWatch {
    splits: Option<u64>,
    began: Option<Duration>,
    last: Duration,
}

impl FoldWatch {
    /// Records a sample. Returns true while memory is being folded. `is_parked`: ksmd has split nothing itself.
    pub fn follow(&mut self, is_parked: bool, now: &KsmdState) -> bool {
        let split = now.splits.saturating_sub(self.splits.replace(now.splits).unwrap_or(now.splits));
        if split >= MANY && is_parked {
            self.began.get_or_insert(now.at);
            self.last = now.at;
        }
        self.began = self.began.filter(|_| is_parked && now.at.saturating_sub(self.last) < ENDED);
        self.began.is_some_and(|began| now.at.saturating_sub(began) < LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::PassHistory;
    use crate::limits::PolicyLimits;
    use crate::sample::Sample;

    /// The tenths of a second at which ksmd waits, for splits by tenth of a second.
    fn waits(is_parked: bool, splits: impl Fn(u64) -> u64) -> Vec<u64> {
        let mut watch = FoldWatch::default();
        let ksmd = KsmdState::from_sample(&Sample::default(), &PassHistory::default(), &PolicyLimits::default());
        let waits = |tenth: &u64| {
            let at = Duration::from_millis(100 * tenth);
            watch.follow(is_parked, &KsmdState { at, splits: splits(*tenth), ..ksmd })
        };
        (0..200).filter(waits).collect()
    }

    #[test]
    fn ksmd_waits_until_nothing_is_split_any_more() {
        let folded = |tenth: u64| 1000 + 20 * tenth.clamp(10, 30);
        assert_eq!(waits(true, folded), (11..40).collect::<Vec<_>>());
        assert!(waits(false, folded).is_empty(), "ksmd splits them");
        assert!(waits(true, |tenth| tenth).is_empty(), "some are always split");
    }

    #[test]
    fn ksmd_waits_ten_seconds_at_most() {
        assert_eq!(waits(true, |tenth| 20 * tenth), (1..101).collect::<Vec<_>>());
    }
}
