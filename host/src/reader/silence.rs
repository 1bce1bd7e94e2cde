//! A limit on processes that are asked for the owner of their user namespace and do not answer.
//!
//! A user may have hundreds that execute without an end, and a turn asks for each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Missing answers of a second, by the account that pays for them.
#[derive(Debug)]
pub(super) struct SilenceLimit {
    since: Option<Instant>,
    silent: BTreeMap<u32, u32>,
}

impl SilenceLimit {
    /// The most of one account: then the others of its processes are not asked in that second.
    const OF_ONE: u32 = 2;

    /// The most of all, for which a turn waits 80 ms. Eight accounts together keep others from being asked.
    const OF_ALL: u32 = 16;

    const SPAN: Duration = Duration::from_secs(1);

    pub(super) const fn new() -> Self {
        Self { since: None, silent: BTreeMap::new() }
    }

    /// Returns true if no more processes of an account are to be asked in this second.
    pub(super) fn is_reached(&mut self, account: u32, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= Self::SPAN) {
            *self = Self { since: Some(now), ..Self::new() };
        }
        self.silent.get(&account).is_some_and(|count| *count >= Self::OF_ONE)
            || self.silent.values().sum::<u32>() >= Self::OF_ALL
    }

    /// Counts a missing answer.
    pub(super) fn count(&mut self, account: u32, now: Instant) {
        self.is_reached(account, now);
        *self.silent.entry(account).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_without_answers_keeps_no_other_from_being_asked() {
        let (mut limit, now) = (SilenceLimit::new(), Instant::now());
        for _ in 0..SilenceLimit::OF_ONE {
            assert!(!limit.is_reached(7, now));
            limit.count(7, now);
        }
        assert!(limit.is_reached(7, now) && limit.is_reached(7, now + SilenceLimit::SPAN / 2));
        assert!(!limit.is_reached(8, now), "another account");
        assert!(!limit.is_reached(7, now + SilenceLimit::SPAN));
    }

    #[test]
    fn all_accounts_together_have_so_many_missing_answers_in_a_second() {
        let (mut limit, now) = (SilenceLimit::new(), Instant::now());
        let counted = (0..1000).take_while(|account| {
            let may = !limit.is_reached(*account, now);
            limit.count(*account, now);
            may
        });
        assert_eq!(counted.count(), SilenceLimit::OF_ALL as usize);
    }
}
