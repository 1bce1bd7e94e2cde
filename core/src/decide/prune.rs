//! Pruning: it decides which guests are not to be merged at all. Pure, like a policy, but about guests and not about
//! settings.
//!
//! A guest that cost more than it brought over several passes is switched off. So is one whose huge pages merging has split
//! for little, or would split by a forecast, and one with memory that can't merge, since every visit to it would be wasted.
//! The first two kinds are tried again, each time after twice as long, since what a guest holds changes. Where memory is
//! short every saving counts: guests on huge pages are switched on then.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::guest::GuestId;
use crate::sample::MergeForecast;
use crate::units::{Bytes, CountedNoun, TimeSpan};

/// The limits of pruning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PruneLimits {
    /// Full passes over which a guest must have cost more than it saved.
    pub after_passes: u64,
    /// The time that a guest stays switched off before it is tried again the first time.
    pub retry: Duration,
    /// Per cent of a guest's split huge pages that merging must save. 0: guests are not judged by it.
    pub split_saves_percent: f64,
}

/// A smaller loss is not worth touching a guest for.
const LEAST_LOSS_BYTES: i64 = 256 << 10;

/// Fewer split huge pages are not worth touching a guest for.
const LEAST_SPLIT_BYTES: u64 = 32 << 20;

/// The time for which splits must not have paid, and the shortest that a guest is off for them. A convention: figures of page
/// tables are some seconds old.
const SPLITS_SETTLED: Duration = Duration::from_secs(30);

/// Passes that may still merge pages of huge pages that were split, unless ksmd is parked: as many as those of a burst.
const SPLITS_SETTLED_PASSES: u64 = 3;

/// A guest that stays off for `retry` times this is not tried more rarely any more.
const RAREST: u32 = 64;

/// The state of the host that decides with that of the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneCircumstances {
    /// The kernel's count of passes.
    pub full_scans: u64,
    /// True if ksmd stands.
    pub is_parked: bool,
    /// True if the host is short of memory.
    pub is_short: bool,
}

/// A guest with a switch, as seen now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrunableGuest {
    /// The guest's first process.
    pub id: GuestId,
    /// Saved less metadata.
    pub profit_bytes: i64,
    /// Saved, zeros that splits have freed included.
    pub saved_bytes: u64,
    /// Memory in huge pages that merging has split; `None` if that is not known.
    pub split_bytes: Option<u64>,
    /// The forecast of merging it; `None` if there is none.
    pub forecast: Option<MergeForecast>,
    /// True if it is offered to KSM; `None` if that is not known, which counts as true unless it was switched off here.
    pub offered: Option<bool>,
    /// The reason why its memory can't merge, if so.
    pub obstacle: Option<String>,
}

/// The ground on which a guest is switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PruneGround {
    /// It costs more than it saves.
    Loss,
    /// Merging saves little of the huge pages that it splits.
    Splits,
    /// Its memory can't merge.
    Obstacle,
}

/// A guest to be switched, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PruneOrder {
    /// The guest to be switched.
    pub id: GuestId,
    /// On or off.
    pub on: bool,
    /// The ground on which it is switched off, or was.
    pub ground: PruneGround,
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
    /// The number of times that it was switched off for its losses or splits.
    times: u32,
    /// The time and the count of passes since which its splits have not paid.
    unpaid_since: Option<(Duration, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PruneState {
    /// It pays, or has not been watched for long.
    Fine,
    /// At a loss since this many passes had been made.
    Losing(u64),
    /// An order was given; whether it was carried out is not known yet.
    Ordered { on: bool, ground: PruneGround },
    /// Switched off at the time `since`, on that ground.
    Off { since: Duration, ground: PruneGround },
    /// The switch failed at that time.
    Failed(Duration),
}

/// A switch that is wanted: on or off, the ground, and the reason in a sentence.
type WantedSwitch = (bool, PruneGround, String);

/// The pruning of guests: decides over time which are switched.
#[derive(Debug, Clone)]
pub struct GuestPruner {
    limits: PruneLimits,
    guests: BTreeMap<GuestId, PruneRecord>,
    /// The last time at which memory was short.
    last_short: Option<Duration>,
}

impl GuestPruner {
    /// Creates the state before the first sample.
    pub fn new(limits: PruneLimits) -> Self {
        Self { limits, guests: BTreeMap::new(), last_short: None }
    }

    /// Returns the guests to switch. Guests that are missing from `guests` are forgotten.
    pub fn decide(&mut self, now: Duration, host: PruneCircumstances, guests: &[PrunableGuest]) -> Vec<PruneOrder> {
        if host.is_short {
            self.last_short = Some(now);
        }
        let mut before = std::mem::take(&mut self.guests);
        let mut orders = Vec::new();
        for guest in guests {
            let first = PruneRecord { state: PruneState::Fine, times: 0, unpaid_since: None };
            let mut seen = before.remove(&guest.id).unwrap_or(first);
            if let Some((on, ground, reason)) = self.next(&mut seen, now, host, guest) {
                seen.state = PruneState::Ordered { on, ground };
                orders.push(PruneOrder { id: guest.id, on, ground, reason });
            }
            self.guests.insert(guest.id, seen);
        }
        orders
    }

    /// Records the outcome of an order.
    pub fn record_outcome(&mut self, id: GuestId, now: Duration, succeeded: bool) {
        let Some(seen) = self.guests.get_mut(&id) else { return };
        let PruneState::Ordered { on, ground } = seen.state else { return };
        seen.state = match (succeeded, on) {
            (false, false) => PruneState::Failed(now),
            (true, true) => PruneState::Fine,
            // One that was not switched on is off for as long again.
            (true, false) | (false, true) => PruneState::Off { since: now, ground },
        };
    }

    fn next(
        &self,
        seen: &mut PruneRecord,
        now: Duration,
        host: PruneCircumstances,
        guest: &PrunableGuest,
    ) -> Option<WantedSwitch> {
        let is_offered = guest.offered != Some(false);
        match seen.state {
            PruneState::Ordered { .. } => return None,
            PruneState::Off { since, ground } if guest.offered != Some(true) => {
                return self.switch_on(seen.times, now.saturating_sub(since), ground, host);
            }
            PruneState::Failed(when) if now.saturating_sub(when) < self.limits.retry => return None,
            // It was switched on by hand: it gets another chance.
            PruneState::Off { .. } | PruneState::Failed(_) => seen.state = PruneState::Fine,
            PruneState::Fine | PruneState::Losing(_) => {}
        }
        if !is_offered {
            // Switched off, but not here.
            seen.state = PruneState::Fine;
            seen.unpaid_since = None;
            return None;
        }
        if let Some(obstacle) = &guest.obstacle {
            let reason = format!("its memory can't merge ({obstacle}), so visits to it are wasted");
            return Some((false, PruneGround::Obstacle, reason));
        }
        if let Some(reason) = self.judge_splits(seen, now, host, guest) {
            seen.times = seen.times.saturating_add(1);
            return Some((false, PruneGround::Splits, reason));
        }
        if guest.profit_bytes > -LEAST_LOSS_BYTES {
            seen.state = PruneState::Fine;
            return None;
        }
        match seen.state {
            // The kernel counts from 0 again after everything was unmerged.
            PruneState::Losing(since) if host.full_scans >= since => {
                let passes = host.full_scans - since;
                if passes < self.limits.after_passes {
                    return None;
                }
                seen.times = seen.times.saturating_add(1);
                let loss = Bytes(i128::from(guest.profit_bytes).abs());
                let reason = format!(
                    "it cost {loss} more than it saved over {}",
                    CountedNoun { count: passes, noun: "pass" }
                );
                Some((false, PruneGround::Loss, reason))
            }
            _ => {
                seen.state = PruneState::Losing(host.full_scans);
                None
            }
        }
    }

    /// Returns the switch of a guest that has been off for so long, once it is due.
    fn switch_on(
        &self,
        times: u32,
        off: Duration,
        ground: PruneGround,
        host: PruneCircumstances,
    ) -> Option<WantedSwitch> {
        let pause = self.pause(times);
        let reason = match ground {
            PruneGround::Obstacle => return None,
            PruneGround::Splits if host.is_short && off >= SPLITS_SETTLED => {
                "memory is short, so that every saving counts".to_owned()
            }
            _ if off < pause => return None,
            _ => format!("it was off for {}; perhaps it pays now", TimeSpan(pause)),
        };
        Some((true, ground, reason))
    }

    /// Returns the reason to switch a guest off whose huge pages were split for little. While nothing is split yet, the
    /// forecast decides. Where memory was short within `retry` it is not judged.
    fn judge_splits(
        &self,
        seen: &mut PruneRecord,
        now: Duration,
        host: PruneCircumstances,
        guest: &PrunableGuest,
    ) -> Option<String> {
        let was_short = self.last_short.is_some_and(|last| now.saturating_sub(last) < self.limits.retry);
        let split = guest.split_bytes.unwrap_or(0);
        let percent = saved_percent(guest.saved_bytes, split);
        if was_short || split < LEAST_SPLIT_BYTES || percent >= self.limits.split_saves_percent {
            seen.unpaid_since = None;
            let is_whole = !was_short && split < LEAST_SPLIT_BYTES;
            return guest.forecast.filter(|_| is_whole).and_then(|forecast| self.judge_forecast(&forecast));
        }
        let (since, scans) = *seen.unpaid_since.get_or_insert((now, host.full_scans));
        let is_merged = host.is_parked || host.full_scans.saturating_sub(scans) >= SPLITS_SETTLED_PASSES;
        if now.saturating_sub(since) < SPLITS_SETTLED || !is_merged {
            return None;
        }
        seen.unpaid_since = None;
        Some(format!(
            "merging saves {} of the {} in its huge pages that were split: {percent:.1} %, where {} % is required",
            Bytes::from(guest.saved_bytes),
            Bytes::from(split),
            self.limits.split_saves_percent
        ))
    }

    /// Returns the reason to switch a guest off whose huge pages merging would split for little: at once, for it is too late
    /// once ksmd has visited them twice.
    fn judge_forecast(&self, forecast: &MergeForecast) -> Option<String> {
        let percent = saved_percent(forecast.saved_bytes, forecast.split_bytes);
        let is_dear = forecast.split_bytes >= LEAST_SPLIT_BYTES && percent < self.limits.split_saves_percent;
        is_dear.then(|| {
            format!(
                "merging would save {} and split {} of its huge pages: {percent:.1} %, where {} % is required",
                Bytes::from(forecast.saved_bytes),
                Bytes::from(forecast.split_bytes),
                self.limits.split_saves_percent
            )
        })
    }

    fn pause(&self, times: u32) -> Duration {
        let doublings = times.saturating_sub(1).min(RAREST.ilog2());
        self.limits.retry.saturating_mul(1 << doublings)
    }
}

fn saved_percent(saved_bytes: u64, split_bytes: u64) -> f64 {
    saved_bytes as f64 / split_bytes.max(1) as f64 * 100.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RETRY: Duration = Duration::from_secs(100);

    fn prune() -> GuestPruner {
        GuestPruner::new(PruneLimits { after_passes: 3, retry: RETRY, split_saves_percent: 5.0 })
    }

    fn guest(pid: u32, profit_bytes: i64) -> PrunableGuest {
        let id = GuestId::new(crate::sample::ProcessId { pid, start_ticks: 1 });
        PrunableGuest {
            id,
            profit_bytes,
            saved_bytes: 0,
            split_bytes: None,
            forecast: None,
            offered: Some(true),
            obstacle: None,
        }
    }

    fn passes(full_scans: u64) -> PruneCircumstances {
        PruneCircumstances { full_scans, ..PruneCircumstances::default() }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn step(prune: &mut GuestPruner, seconds: u64, scans: u64, guest: &mut PrunableGuest) -> Option<bool> {
        step_on(prune, seconds, passes(scans), guest)
    }

    /// Decides, carries out at once, and returns what was ordered.
    fn step_on(
        prune: &mut GuestPruner,
        seconds: u64,
        host: PruneCircumstances,
        guest: &mut PrunableGuest,
    ) -> Option<bool> {
        let orders = prune.decide(at(seconds), host, std::slice::from_ref(guest));
        let order = orders.first()?;
        guest.offered = Some(order.on);
        prune.record_outcome(order.id, at(seconds), true);
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
        let orders = prune.decide(at(5), passes(17), &[one]);
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
        prune.decide(at(0), passes(0), std::slice::from_ref(&one));
        assert_eq!(prune.decide(at(1), passes(3), std::slice::from_ref(&one)).len(), 1);
        prune.record_outcome(one.id, at(1), true);
        for second in 2..100 {
            assert_eq!(prune.decide(at(second), passes(second * 10), std::slice::from_ref(&one)), []);
        }
        assert!(prune.decide(at(101), passes(0), std::slice::from_ref(&one))[0].on);
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
        prune.decide(at(0), passes(0), std::slice::from_ref(&one));
        assert_eq!(prune.decide(at(1), passes(5), std::slice::from_ref(&one)).len(), 1);
        assert_eq!(prune.decide(at(2), passes(9), std::slice::from_ref(&one)), [], "under way");
        prune.record_outcome(one.id, at(3), false);
        assert_eq!(prune.decide(at(50), passes(50), std::slice::from_ref(&one)), []);
        assert_eq!(prune.decide(at(200), passes(60), std::slice::from_ref(&one)), [], "counts anew");
        assert_eq!(prune.decide(at(201), passes(63), std::slice::from_ref(&one)).len(), 1);
    }

    #[test]
    fn a_guest_that_is_gone_is_forgotten() {
        let mut prune = prune();
        prune.decide(at(0), passes(0), &[guest(1, -(1 << 20))]);
        prune.decide(at(1), passes(0), &[]);
        assert!(prune.guests.is_empty());
    }

    const MIB: u64 = 1 << 20;

    /// A guest of whose huge pages so many MiB are split, and which saves so many.
    fn split(split_mib: u64, saved_mib: u64) -> PrunableGuest {
        PrunableGuest { saved_bytes: saved_mib * MIB, split_bytes: Some(split_mib * MIB), ..guest(1, 0) }
    }

    /// A guest in huge pages of which merging would split and save so many MiB.
    fn foretold(split_mib: u64, saved_mib: u64) -> PrunableGuest {
        let forecast = MergeForecast {
            bytes: 1024 * MIB,
            huge_bytes: 1024 * MIB,
            saved_bytes: saved_mib * MIB,
            saved_in_huge_bytes: saved_mib * MIB,
            split_bytes: split_mib * MIB,
        };
        PrunableGuest { forecast: Some(forecast), ..split(0, 0) }
    }

    #[test]
    fn splits_that_save_little_switch_off_once_ksmd_has_merged_what_it_can() {
        let mut prune = prune();
        let mut one = split(0, 0);
        assert_eq!(step(&mut prune, 0, 0, &mut one), None);
        one = split(900, 36);
        assert_eq!(step(&mut prune, 10, 2, &mut one), None);
        assert_eq!(step(&mut prune, 30, 3, &mut one), None, "figures are not settled");
        assert_eq!(step(&mut prune, 100, 4, &mut one), None, "two passes since");
        assert_eq!(prune.clone().decide(at(100), passes(5), &[one.clone()]).len(), 1);
        let parked = PruneCircumstances { is_parked: true, ..passes(4) };
        let order = prune.decide(at(100), parked, &[one]).remove(0);
        assert_eq!(order.ground, PruneGround::Splits);
        assert_eq!(
            order.to_string(),
            "merging off: merging saves 36.0 MiB of the 900 MiB in its huge pages that were split: 4.0 %, where 5 % is required"
        );
    }

    #[test]
    fn splits_that_pay_and_memory_that_was_freed_or_never_huge_switch_nothing() {
        let parked = PruneCircumstances { is_parked: true, ..passes(9) };
        let is_pruned = |after: PrunableGuest, percent: f64| {
            let limits = PruneLimits { after_passes: 3, retry: RETRY, split_saves_percent: percent };
            let mut prune = GuestPruner::new(limits);
            prune.decide(at(0), parked, &[split(0, 0)]);
            (1..1000).any(|second| !prune.decide(at(second), parked, std::slice::from_ref(&after)).is_empty())
        };
        assert!(is_pruned(split(1000, 49), 5.0));
        assert!(!is_pruned(split(1000, 51), 5.0), "it pays");
        assert!(!is_pruned(split(1000, 0), 0.0), "nobody asks");
        assert!(!is_pruned(split(24, 0), 5.0), "next to nothing is split");
        assert!(!is_pruned(PrunableGuest { split_bytes: None, ..split(0, 0) }, 5.0));
    }

    #[test]
    fn a_guest_that_merging_would_split_for_little_is_switched_off_before_it_is_split() {
        let order = |guest: PrunableGuest| prune().decide(at(0), passes(9), &[guest]).pop();
        let off = order(foretold(900, 36)).unwrap();
        let reason =
            "merging would save 36.0 MiB and split 900 MiB of its huge pages: 4.0 %, where 5 % is required";
        assert_eq!((off.on, off.ground, off.reason.as_str()), (false, PruneGround::Splits, reason));
        assert_eq!(order(foretold(900, 46)), None, "it would pay");
        assert_eq!(order(foretold(31, 0)), None, "next to nothing would be split");
        assert_eq!(
            order(PrunableGuest { split_bytes: Some(500 * MIB), ..foretold(900, 36) }),
            None,
            "it is split already"
        );
        let short = PruneCircumstances { is_short: true, ..passes(9) };
        assert_eq!(prune().decide(at(0), short, &[foretold(900, 36)]), [], "every saving counts");
        // It is tried again, and the forecast of then decides.
        let (mut prune, mut one) = (prune(), foretold(900, 36));
        assert_eq!(step(&mut prune, 0, 9, &mut one), Some(false));
        one.forecast = None;
        assert_eq!(step(&mut prune, 99, 9, &mut one), None);
        assert_eq!(step(&mut prune, 100, 9, &mut one), Some(true));
        assert_eq!(step(&mut prune, 110, 9, &mut one), None);
        one.forecast = foretold(900, 36).forecast;
        assert_eq!(step(&mut prune, 115, 9, &mut one), Some(false));
    }

    #[test]
    fn a_guest_on_huge_pages_is_switched_on_while_memory_is_short_and_left_on_for_long() {
        let mut prune = prune();
        let host = |is_short| PruneCircumstances { is_parked: true, is_short, full_scans: 9 };
        let mut one = split(0, 0);
        let mut switched = Vec::new();
        for second in 0..600 {
            // What is switched off is put together, and what is on is split.
            let is_on = one.offered == Some(true);
            one.split_bytes = Some(if is_on && second > 0 { 1024 * MIB } else { 0 });
            if let Some(on) = step_on(&mut prune, second, host((60..300).contains(&second)), &mut one) {
                switched.push((second, on));
            }
        }
        // Off after 30 s, on in the shortage, off when it has been over for the time of a retry, and then for twice as long.
        assert_eq!(switched, [(31, false), (61, true), (429, false)]);
    }

    #[test]
    fn a_guest_that_could_not_be_switched_on_is_tried_again() {
        let mut prune = prune();
        let mut one = guest(1, -(1 << 20));
        while step(&mut prune, 0, 3, &mut one) != Some(false) {
            step(&mut prune, 0, 0, &mut one);
        }
        for second in [100, 200] {
            assert_eq!(prune.decide(at(second - 1), passes(9), std::slice::from_ref(&one)), []);
            assert!(prune.decide(at(second), passes(9), std::slice::from_ref(&one))[0].on);
            prune.record_outcome(one.id, at(second), false);
        }
    }

    #[test]
    fn a_loss_is_not_made_good_by_a_shortage() {
        let mut prune = prune();
        let mut one = guest(1, -(1 << 20));
        while step(&mut prune, 0, 3, &mut one) != Some(false) {
            step(&mut prune, 0, 0, &mut one);
        }
        let short = PruneCircumstances { is_short: true, ..passes(9) };
        assert_eq!(step_on(&mut prune, 1, short, &mut one), None);
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
                prop_assert!(prune.decide(at(now), passes(now), &[guest(1, profit)]).is_empty());
            }
        }
    }
}
