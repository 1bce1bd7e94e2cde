//! New memory beside much old memory: the schedule of its passes.
//!
//! Most pages of a new guest that merge are equal to pages that are merged already, or to those of other new guests.
//! Two smart passes merge both, and skip most old pages. Contents that one old page alone holds wait for a probe: on
//! simulated fleets a clean pass for them saves less than it costs.
//!
//! Guests that arrive close together share their two passes. Waiting costs what the guests that are there could save:
//! `new bytes * wait`. Let `K = cost of two passes * price * HORIZON_SECONDS`, and let new memory appear at `rate`
//! bytes a second. Then passes every `sqrt(2 * K / rate)` seconds cost least in all. By then `sqrt(2 * K * rate)` bytes
//! have gathered, which is the threshold. If arrivals stay away, passes start once waiting has cost as much as they do.

use std::time::Duration;

use super::constants::{DEAR_SECONDS, HORIZON_SECONDS, RATE_SECONDS};
use super::guests::GuestChanges;
use super::situation::HostSituation;

/// The estimate of the rate at which new memory appears.
#[derive(Debug, Clone, Default)]
pub struct ArrivalModel {
    /// New bytes in each second, an exponential average.
    rate: f64,
    /// New bytes at the last sample, and when that was taken.
    last: (u64, Duration),
    /// Bytes times seconds that waiting has cost.
    waited: f64,
}

impl ArrivalModel {
    /// Records the changes at the next sample.
    pub fn follow(&mut self, changes: GuestChanges, now: &HostSituation) {
        let (before, at) = std::mem::replace(&mut self.last, (changes.grown_bytes, now.ksmd.at));
        let seconds = now.ksmd.at.saturating_sub(at).as_secs_f64();
        let kept = (-seconds / RATE_SECONDS).exp();
        self.rate = self.rate * kept + changes.grown_bytes.saturating_sub(before) as f64 / RATE_SECONDS;
        if changes.grown_bytes == 0 {
            self.waited = 0.0;
        } else {
            self.waited += changes.grown_bytes as f64 * seconds.min(RATE_SECONDS);
        }
    }

    /// Returns true if a clean pass costs so much more than a smart one that new memory is given smart passes, and that
    /// guests which arrive close together share them.
    pub fn is_dear(now: &HostSituation) -> bool {
        now.ksmd.clean_pass_seconds - now.smart_pass_seconds() >= DEAR_SECONDS
    }

    /// Records that passes for all new memory begin: it waits no more.
    pub fn note_start(&mut self) {
        self.waited = 0.0;
    }

    /// Returns the gain of the passes for new memory divided by their cost, waiting for others included.
    pub fn worth(&self, changes: GuestChanges, now: &HostSituation) -> f64 {
        let price = now.smart_passes_seconds(2) * now.price * HORIZON_SECONDS;
        (changes.grown_bytes as f64 / (2.0 * price * self.rate).sqrt()).max(self.waited / price)
    }
}

#[cfg(test)]
mod tests {
    use super::super::situation::ProcessHolding;
    use super::*;
    use crate::sample::ProcessId;

    const GIB: u64 = 1 << 30;

    /// A host with guests that hold and have merged so many GiB, with a clean pass of 100 seconds and a price of a GiB.
    fn host(at: u64, guests: &[(u32, u64, u64)]) -> HostSituation {
        let processes: Vec<_> = guests
            .iter()
            .map(|(pid, bytes, merged)| ProcessHolding {
                id: ProcessId { pid: *pid, start_ticks: 1 },
                bytes: bytes * GIB,
                cpu_ticks: 0,
                minor_faults: 0,
                merged_pages: merged * GIB / 4096,
            })
            .collect();
        HostSituation::for_test(Duration::from_secs(at), 100.0, GIB as f64 / 1000.0, processes)
    }

    fn grown(gib: u64) -> GuestChanges {
        GuestChanges { new_guests: 1, grown_bytes: gib * GIB, ..GuestChanges::default() }
    }

    #[test]
    fn arrivals_that_are_frequent_are_waited_for_and_a_rare_one_is_not() {
        let wait = |every: u64| {
            let mut arrivals = ArrivalModel::default();
            let mut new = 0;
            for second in 0..7200 {
                let now = host(second, &[(1, 100, 40)]);
                new += u64::from(second % every == 0);
                arrivals.follow(grown(new), &now);
                if new > 0 && arrivals.worth(grown(new), &now) >= 1.0 {
                    if second > 3600 {
                        return new;
                    }
                    new = 0;
                    arrivals.follow(GuestChanges::default(), &now);
                }
            }
            panic!("passes are never due");
        };
        assert_eq!(wait(3000), 1);
        assert!(wait(3) > 1, "{}", wait(3));
        assert!(wait(1) > wait(3), "{}", wait(1));
    }

    #[test]
    fn however_little_is_new_its_passes_are_due_in_the_end() {
        let mut arrivals = ArrivalModel::default();
        let little = GuestChanges { grown_bytes: GIB / 64, ..GuestChanges::default() };
        let busy = grown(64);
        arrivals.follow(busy, &host(0, &[(1, 100, 40)]));
        let is_due = (1..100_000).any(|second| {
            let now = host(second, &[(1, 100, 40)]);
            arrivals.follow(little, &now);
            arrivals.worth(little, &now) >= 1.0
        });
        assert!(is_due);
    }

    #[test]
    fn what_is_new_after_passes_have_begun_has_not_waited_while_they_ran() {
        let mut arrivals = ArrivalModel::default();
        let little = GuestChanges { grown_bytes: GIB / 64, ..GuestChanges::default() };
        arrivals.follow(grown(1000), &host(0, &[(1, 100, 40)]));
        for second in 1..100 {
            arrivals.follow(grown(64), &host(second, &[(1, 100, 40)]));
        }
        let now = host(100, &[(1, 100, 40)]);
        assert!(arrivals.worth(little, &now) >= 1.0);
        arrivals.note_start();
        assert!(arrivals.worth(little, &now) < 1.0);
    }

    #[test]
    fn smart_passes_that_visit_all_young_pages_have_to_be_worth_more() {
        let mut arrivals = ArrivalModel::default();
        let mut now = host(0, &[(1, 100, 40)]);
        arrivals.follow(grown(10), &now);
        let of_old = arrivals.worth(grown(1), &now);
        now.young_passes = 2;
        assert!(now.smart_passes_seconds(1) == 100.0 && now.smart_passes_seconds(2) == 200.0);
        assert!(now.smart_passes_seconds(3) > 200.0 && now.smart_passes_seconds(3) < 250.0);
        assert!(arrivals.worth(grown(1), &now) < of_old / 2.0);
    }
}
