//! Pruning: it decides which guests are not to be merged at all. Pure, like a policy, but about guests and not about
//! settings.
//!
//! A guest that cost more than it brought over several passes is switched off. So is one with memory that can't merge,
//! since every visit to it would be wasted. The first kind is tried again, each time after twice as long, since what a
//! guest holds changes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::guest::GuestId;
use crate::units::{Bytes, TimeSpan};

/// The limits of pruning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneLimits {
    /// Full passes over which a guest must have cost more than it saved.
    pub after_passes: u64,
    /// The time that a guest stays switched off before it is tried again the first time.
    pub retry: Duration,
}

/// A smaller loss is not worth touching a guest for.
const LEAST_LOSS_BYTES: i64 = 256 << 10;

/// A guest that stays off for `retry` times this is not tried more rarely any more.
const RAREST: u32 = 64;

/// A guest with a switch, as seen now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunableGuest {
    /// The guest's first process.
    pub id: GuestId,
    /// Saved less metadata.
    pub profit_bytes: i64,
    /// True if it is offered to KSM; `None` if that is not known, which counts as true unless it was switched off here.
    pub offered: Option<bool>,
    /// The reason why its memory can't merge, if so.
    pub obstacle: Option<String>,
}

/// A guest to be switched, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneOrder {
    /// The guest to be switched.
    pub id: GuestId,
    /// On or off.
    pub on: bool,
    /// The reason in a sentence.
    pub reason: String,
}

impl fmt::Display for PruneOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "merging {}: {}", if self.on { "on" } else { "off" }, self.reason)
    }
}

/// The state of one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PruneRecord {
    state: PruneState,
    /// The number of times that it was switched off for its losses.
    times: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PruneState {
    /// It pays, or has not been watched for long.
    Fine,
    /// At a loss since this many passes had been made.
    Losing(u64),
    /// An order was given; whether it was carried out is not known yet.
    Ordered { on: bool },
    /// Off since then. `for_good`: its memory can't merge.
    Off { since: Duration, for_good: bool },
    /// The switch failed at that time.
    Failed(Duration),
}

/// The pruning of guests: decides over time which are switched.
#[derive(Debug, Clone)]
pub struct GuestPruner {
    limits: PruneLimits,
    guests: BTreeMap<GuestId, PruneRecord>,
}

impl GuestPruner {
    /// Creates the state before the first sample.
    pub fn new(limits: PruneLimits) -> Self {
        Self { limits, guests: BTreeMap::new() }
    }

    /// Returns the guests to switch. `full_scans` is the kernel's count of passes. Guests that are missing from
    /// `guests` are forgotten.
    pub fn decide(&mut self, now: Duration, full_scans: u64, guests: &[PrunableGuest]) -> Vec<PruneOrder> {
        let mut before = std::mem::take(&mut self.guests);
        let mut orders = Vec::new();
        for guest in guests {
            let mut seen = before.remove(&guest.id).unwrap_or(PruneRecord { state: PruneState::Fine, times: 0 });
            if let Some((on, reason)) = self.next(&mut seen, now, full_scans, guest) {
                seen.state = PruneState::Ordered { on };
                orders.push(PruneOrder { id: guest.id, on, reason });
            }
            self.guests.insert(guest.id, seen);
        }
        orders
    }

    /// Records the outcome of an order.
    pub fn record_outcome(&mut self, id: GuestId, now: Duration, succeeded: bool, obstacle: bool) {
        let Some(seen) = self.guests.get_mut(&id) else { return };
        let PruneState::Ordered { on } = seen.state else { return };
        seen.state = match (succeeded, on) {
            (false, _) => PruneState::Failed(now),
            (true, true) => PruneState::Fine,
            (true, false) => PruneState::Off { since: now, for_good: obstacle },
        };
    }

    fn next(
        &self,
        seen: &mut PruneRecord,
        now: Duration,
        full_scans: u64,
        guest: &PrunableGuest,
    ) -> Option<(bool, String)> {
        let is_offered = guest.offered != Some(false);
        match seen.state {
            PruneState::Ordered { .. } => return None,
            PruneState::Off { since, for_good } if guest.offered != Some(true) => {
                let pause = self.pause(seen.times);
                if for_good || now.saturating_sub(since) < pause {
                    return None;
                }
                return Some((true, format!("it was off for {}; perhaps it pays now", TimeSpan(pause))));
            }
            PruneState::Failed(when) if now.saturating_sub(when) < self.limits.retry => return None,
            // It was switched on by hand: it gets another chance.
            PruneState::Off { .. } | PruneState::Failed(_) => seen.state = PruneState::Fine,
            PruneState::Fine | PruneState::Losing(_) => {}
        }
        if !is_offered {
            // Switched off, but not here.
            seen.state = PruneState::Fine;
            return None;
        }
        if let Some(obstacle) = &guest.obstacle {
            return Some((false, format!("its memory can't merge ({obstacle}), so visits to it are wasted")));
        }
        if guest.profit_bytes > -LEAST_LOSS_BYTES {
            seen.state = PruneState::Fine;
            return None;
        }
        match seen.state {
            // The kernel counts from 0 again after everything was unmerged.
            PruneState::Losing(since) if full_scans >= since => {
                let passes = full_scans - since;
                if passes < self.limits.after_passes {
                    return None;
                }
                seen.times = seen.times.saturating_add(1);
                let loss = Bytes(i128::from(guest.profit_bytes).abs());
                Some((false, format!("it cost {loss} more than it saved over {passes} passes")))
            }
            _ => {
                seen.state = PruneState::Losing(full_scans);
                None
            }
        }
    }

    fn pause(&self, times: u32) -> Duration {
        let doublings = times.saturating_sub(1).min(RAREST.ilog2());
        self.limits.retry.saturating_mul(1 << doublings)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RETRY: Duration = Duration::from_secs(100);

    fn prune() -> GuestPruner {
        GuestPruner::new(PruneLimits { after_passes: 3, retry: RETRY })
    }

    fn guest(pid: u32, profit_bytes: i64) -> PrunableGuest {
        let id = GuestId::new(crate::sample::ProcessId { pid, start_ticks: 1 });
        PrunableGuest { id, profit_bytes, offered: Some(true), obstacle: None }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Decides, carries out at once, and returns what was ordered.
    fn step(prune: &mut GuestPruner, seconds: u64, scans: u64, guest: &mut PrunableGuest) -> Option<bool> {
        let orders = prune.decide(at(seconds), scans, std::slice::from_ref(guest));
        let order = orders.first()?;
        guest.offered = Some(order.on);
        prune.record_outcome(order.id, at(seconds), true, guest.obstacle.is_some());
        Some(order.on)
    }

    #[test]
    fn a_loss_over_enough_passes_switches_off_and_a_passing_one_does_not() {
        let mut prune = prune();
        let mut one = guest(1, -(1 << 20));
        assert_eq!(step(&mut prune, 0, 10, &mut one), None);
        assert_eq!(step(&mut prune, 1, 12, &mut one), None);
        one.profit_bytes = 0;
        assert_eq!(step(&mut prune, 2, 14, &mut one), None);
        one.profit_bytes = -(1 << 20);
        assert_eq!(step(&mut prune, 3, 14, &mut one), None);
        assert_eq!(step(&mut prune, 4, 16, &mut one), None);
        let orders = prune.decide(at(5), 17, &[one]);
        assert_eq!(orders[0].to_string(), "merging off: it cost 1.00 MiB more than it saved over 3 passes");
    }

    #[test]
    fn time_without_passes_and_small_losses_do_not_count() {
        let mut prune = prune();
        let mut one = guest(1, -(1 << 20));
        for second in 0..1000 {
            assert_eq!(step(&mut prune, second, 10, &mut one), None);
        }
        let mut small = guest(2, -1000);
        for scans in 0..1000 {
            assert_eq!(step(&mut prune, scans, scans, &mut small), None);
        }
    }

    #[test]
    fn it_is_tried_again_ever_more_rarely() {
        let mut prune = prune();
        let mut one = guest(1, -(1 << 20));
        let mut switched = Vec::new();
        for second in 0..2000 {
            if let Some(on) = step(&mut prune, second, second, &mut one) {
                switched.push((second, on));
            }
        }
        let gaps: Vec<u64> =
            switched.windows(2).filter(|pair| pair[1].1).map(|pair| pair[1].0 - pair[0].0).collect();
        assert_eq!(gaps, [100, 200, 400, 800]);
    }

    #[test]
    fn memory_that_can_not_merge_is_switched_off_at_once_and_for_good() {
        let mut prune = prune();
        let mut one = PrunableGuest { obstacle: Some("vfio".to_owned()), ..guest(1, 0) };
        assert_eq!(step(&mut prune, 0, 0, &mut one), Some(false));
        assert_eq!(step(&mut prune, 1_000_000, 0, &mut one), None);
    }

    #[test]
    fn a_guest_without_a_monitor_stays_off_as_it_was_switched() {
        let mut prune = prune();
        let one = PrunableGuest { offered: None, ..guest(1, -(1 << 20)) };
        prune.decide(at(0), 0, std::slice::from_ref(&one));
        assert_eq!(prune.decide(at(1), 3, std::slice::from_ref(&one)).len(), 1);
        prune.record_outcome(one.id, at(1), true, false);
        for second in 2..100 {
            assert_eq!(prune.decide(at(second), second * 10, std::slice::from_ref(&one)), []);
        }
        assert!(prune.decide(at(101), 0, std::slice::from_ref(&one))[0].on);
    }

    #[test]
    fn a_guest_that_was_switched_by_hand_is_left_as_it_is() {
        let mut prune = prune();
        let mut off = PrunableGuest { offered: Some(false), ..guest(1, -(1 << 20)) };
        for scans in 0..100 {
            assert_eq!(step(&mut prune, scans * 1000, scans, &mut off), None);
        }
        let mut one = guest(2, -(1 << 20));
        while step(&mut prune, 0, 3, &mut one) != Some(false) {
            step(&mut prune, 0, 0, &mut one);
        }
        one.offered = Some(true);
        assert_eq!(step(&mut prune, 1, 10, &mut one), None, "another chance");
    }

    #[test]
    fn a_switch_that_failed_is_not_tried_again_at_every_look() {
        let mut prune = prune();
        let one = guest(1, -(1 << 20));
        prune.decide(at(0), 0, std::slice::from_ref(&one));
        assert_eq!(prune.decide(at(1), 5, std::slice::from_ref(&one)).len(), 1);
        assert_eq!(prune.decide(at(2), 9, std::slice::from_ref(&one)), [], "under way");
        prune.record_outcome(one.id, at(3), false, false);
        assert_eq!(prune.decide(at(50), 50, std::slice::from_ref(&one)), []);
        assert_eq!(prune.decide(at(200), 60, std::slice::from_ref(&one)), [], "counts anew");
        assert_eq!(prune.decide(at(201), 63, std::slice::from_ref(&one)).len(), 1);
    }

    #[test]
    fn a_guest_that_is_gone_is_forgotten() {
        let mut prune = prune();
        prune.decide(at(0), 0, &[guest(1, -(1 << 20))]);
        prune.decide(at(1), 0, &[]);
        assert!(prune.guests.is_empty());
    }

    proptest! {
        #[test]
        fn a_guest_that_never_loses_is_never_touched(
            looks in prop::collection::vec((0_u64..1000, 0_i64..1 << 40), 0..100),
        ) {
            let mut prune = prune();
            let mut now = 0;
            for (step, profit) in looks {
                now += step;
                prop_assert!(prune.decide(at(now), now, &[guest(1, profit)]).is_empty());
            }
        }
    }
}
