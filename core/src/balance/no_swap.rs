//! `no-swap`: keep the pool above its low mark, and give back what guests need when there is plenty.
//!
//! * Below the low mark memory is taken until the pool is half way to the high mark: from the cheapest class first,
//!   and from a dearer one only when all cheaper ones are at their floors. Within a class those who suffer nothing
//!   give first, in proportion to what they can give.
//! * A guest that squeals gets, the dearest and loudest first, from what the pool has above its low mark; where that
//!   is not enough, guests of its own or a cheaper class that suffer nothing are asked for it.
//! * Above the high mark, and after a while of calm, everybody gets back what was taken, the dearest first. For that
//!   who has far more of its whole than those who wait for theirs, and no less to spare, is asked too: memory that a guest once used and has
//!   freed stays with it, as far as the host can tell.

use std::time::Duration;

use super::config::{BalanceConfig, Marks};
use super::forecast::{Forecast, Outlook};
use super::room::{Room, is_urgent};
use super::share_out::share_out;
use super::squeal::Squeal;
use super::{Action, BalancePolicy, GuestView, Plan, View};
use crate::decide::Reason;
use crate::units::Bytes;

/// How soon to look again: while something happens, while it may soon, and else.
const SOON: Duration = Duration::from_secs(1);
const WATCHFUL: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_secs(10);

/// How long a step that is under way is waited for before a dearer guest is asked, and when there is next to nothing left.
const PATIENCE: Duration = Duration::from_secs(2);
const URGENT_PATIENCE: Duration = Duration::from_millis(300);

/// Writing this much to swap in a second is swapping.
const SWAPPING: f64 = 64.0 * 1024.0;

/// Who has up to this much more of its whole than the poorest is repaid with it; who has more than that of its whole
/// beyond the poorest is asked to give for it. The gap between the two keeps memory from going to and fro.
const AS_POOR: f64 = 0.1;
const RICH: f64 = 0.2;

/// `no-swap`.
#[derive(Debug, Clone)]
pub struct NoSwap {
    config: BalanceConfig,
    forecast: Forecast,
    /// Whether memory is being taken: it began below the low mark and ends at the mark `enough`.
    is_taking: bool,
    /// When the pool was last short.
    last_short: Option<Duration>,
    /// Whether plenty is given back to those who do not ask.
    gives_back: bool,
}

/// One guest with what was found out about it.
struct Known<'a> {
    guest: &'a GuestView,
    room: Room,
    squeal: Squeal,
}

impl NoSwap {
    /// Goes by this configuration.
    pub fn new(config: BalanceConfig) -> Self {
        let forecast = Forecast::default();
        Self { config, forecast, is_taking: false, last_short: None, gives_back: true }
    }

    /// The same, but nobody gets anything back without asking.
    pub(super) fn keeping(config: BalanceConfig) -> Self {
        Self { gives_back: false, ..Self::new(config) }
    }

    /// How much is to be taken, and why. `None`: nothing.
    fn shortage(&mut self, view: &View, marks: &Marks, outlook: &Outlook) -> Option<(u64, String)> {
        let pool = &view.pool;
        let low = marks.low.max(outlook.needed_bytes);
        let swaps = pool.swap_out_bytes_per_second.is_some_and(|rate| rate > SWAPPING);
        // A kernel that swaps although there is plenty does so for reasons of its own.
        let is_short = pool.available_bytes < low || swaps && pool.available_bytes < marks.high;
        let target = marks.enough.max(low);
        self.is_taking = is_short || self.is_taking && pool.available_bytes < target;
        if !self.is_taking {
            return None;
        }
        self.last_short = Some(view.now);
        let missing = target.saturating_sub(pool.available_bytes).max(if swaps { marks.low } else { 0 });
        let why = match &outlook.why {
            Some(why) if outlook.needed_bytes > marks.low => why.clone(),
            _ if swaps => {
                format!("the pool swaps {}/s", Bytes(pool.swap_out_bytes_per_second.unwrap_or(0.0) as i128))
            }
            _ => format!(
                "{} of {} available, taking up to {}",
                Bytes::from(pool.available_bytes),
                Bytes::from(pool.size_bytes),
                Bytes::from(target)
            ),
        };
        Some((missing, why))
    }

    /// Takes about `amount` from the cheapest class that can give anything. From nobody while a cheaper guest is giving
    /// already, for no longer than `patience`, and returns whether that is so: nobody dearer pays for what is only late.
    fn take(known: &[Known<'_>], amount: u64, why: &str, patience: Duration, actions: &mut Vec<Action>) -> bool {
        let giving = |known: &&Known<'_>| known.room.giveable_bytes() > 0;
        let on_its_way = |known: &&Known<'_>| known.guest.giving_for.is_some_and(|so_far| so_far < patience);
        let weight = |known: &Known<'_>| known.guest.class.weight;
        let awaited = known.iter().filter(on_its_way).map(weight).min();
        let Some(weight) = known.iter().filter(giving).map(weight).min() else { return awaited.is_some() };
        if awaited.is_some_and(|awaited| awaited < weight) {
            return true;
        }
        let class: Vec<&Known<'_>> =
            known.iter().filter(giving).filter(|it| it.guest.class.weight == weight).collect();
        let (loud, quiet): (Vec<&Known<'_>>, Vec<&Known<'_>>) =
            class.into_iter().partition(|it| it.squeal.is_loud());
        let mut left = amount;
        for group in [quiet, loud] {
            let capacities: Vec<u64> = group.iter().map(|it| it.room.giveable_bytes()).collect();
            let parts = share_out(left, &capacities);
            left -= parts.iter().sum::<u64>();
            for (it, part) in group.iter().zip(parts).filter(|(_, part)| *part > 0) {
                // What it has and does not use costs it nothing, and brings the pool nothing: that goes first.
                let unused = it.guest.given_bytes.saturating_sub(it.guest.resident_bytes);
                let to_bytes = it.room.after_taking(part.saturating_add(unused));
                let spare = it.guest.inside.available_bytes.unwrap_or(0);
                let reason = format!(
                    "{why}; {} of class {} has {} to spare",
                    it.guest.name,
                    it.guest.class.name,
                    Bytes::from(spare)
                );
                push(actions, it.guest, to_bytes, reason);
            }
        }
        false
    }

    /// Gives to those who squeal, from what the pool has above `keep`; returns what was wanted beyond that, and by how
    /// dear a guest.
    fn relieve(
        known: &[Known<'_>],
        view: &View,
        keep: u64,
        actions: &mut Vec<Action>,
    ) -> Option<(u64, u32, String)> {
        let mut asking: Vec<&Known<'_>> =
            known.iter().filter(|it| it.squeal.is_loud() && it.room.wanting_bytes() > 0).collect();
        asking.sort_by(|a, b| {
            let by_class = b.guest.class.weight.cmp(&a.guest.class.weight);
            by_class.then(b.squeal.level.total_cmp(&a.squeal.level)).then(a.guest.key.cmp(&b.guest.key))
        });
        let mut spare = view.pool.available_bytes.saturating_sub(keep);
        let mut unmet: Option<(u64, u32, String)> = None;
        for it in asking {
            let wanted = it.room.after_giving(it.room.step_bytes) - it.guest.given_bytes;
            if wanted <= spare {
                spare -= wanted;
                push(actions, it.guest, it.guest.given_bytes + wanted, it.squeal.what.clone());
            } else {
                let missing = wanted - spare;
                let (sum, weight, who) = unmet.unwrap_or((0, it.guest.class.weight, it.guest.name.clone()));
                unmet = Some((sum + missing, weight, who));
                spare = 0;
            }
        }
        unmet
    }

    /// Asks those who suffer nothing, of the same class or a cheaper one, for what others need.
    fn ask_the_idle(
        known: &[Known<'_>],
        (amount, weight, who): (u64, u32, String),
        config: &BalanceConfig,
        actions: &mut Vec<Action>,
    ) {
        let is_idle = |it: &&Known<'_>| {
            let reserve = config.reserve_bytes(it.guest);
            // Twice its reserve, so that it does not squeal in turn.
            let has_plenty =
                it.guest.inside.available_bytes.is_some_and(|available| available > reserve.saturating_mul(2));
            it.guest.class.weight <= weight && it.squeal.level < 0.5 && has_plenty && it.room.giveable_bytes() > 0
        };
        let idle: Vec<&Known<'_>> = known.iter().filter(is_idle).collect();
        let Some(cheapest) = idle.iter().map(|it| it.guest.class.weight).min() else { return };
        let idle: Vec<&Known<'_>> = idle.into_iter().filter(|it| it.guest.class.weight == cheapest).collect();
        let capacities: Vec<u64> = idle.iter().map(|it| it.room.giveable_bytes()).collect();
        for (it, part) in idle.iter().zip(share_out(amount, &capacities)).filter(|(_, part)| *part > 0) {
            let unused = it.guest.given_bytes.saturating_sub(it.guest.resident_bytes);
            push(
                actions,
                it.guest,
                it.room.after_taking(part.saturating_add(unused)),
                format!("{who} needs it more"),
            );
        }
    }

    /// Asks those who have far more left, and no less to spare, than somebody of their class, or a dearer one, who waits for what was taken.
    fn even_out(known: &[Known<'_>], actions: &mut Vec<Action>) {
        let waits = |it: &&Known<'_>| it.room.wanting_bytes() > 0 && it.guest.taken_bytes() > 0;
        let poorest = known.iter().filter(waits).min_by(|a, b| left(a.guest).total_cmp(&left(b.guest)));
        let Some(poorest) = poorest.filter(|it| it.guest.trouble.is_none()) else { return };
        let is_rich = |it: &&Known<'_>| {
            left(it.guest) > left(poorest.guest) + RICH
                && ease(it.guest) >= ease(poorest.guest)
                && it.squeal.level < 0.5
                && it.guest.class.weight <= poorest.guest.class.weight
        };
        let mut open = poorest.room.wanting_bytes();
        for it in known.iter().filter(is_rich) {
            let unused = it.guest.given_bytes.saturating_sub(it.guest.resident_bytes);
            let to_bytes = it.room.after_taking(open.saturating_add(unused));
            open = open.saturating_sub(it.guest.given_bytes - to_bytes);
            push(actions, it.guest, to_bytes, format!("it has far more to spare than {}", poorest.guest.name));
            if open == 0 {
                return;
            }
        }
    }

    /// Gives back what was taken, from what is above the high mark: the dearest class first.
    fn give_back(known: &[Known<'_>], view: &View, marks: &Marks, actions: &mut Vec<Action>) {
        let is_open = |it: &&Known<'_>| it.room.wanting_bytes() > 0 && !actions_name(actions, &it.guest.key);
        let open: Vec<&Known<'_>> = known.iter().filter(is_open).collect();
        let Some(weight) = open.iter().map(|it| it.guest.class.weight).max() else { return };
        let open: Vec<&Known<'_>> = open.into_iter().filter(|it| it.guest.class.weight == weight).collect();
        let least = open.iter().map(|it| left(it.guest)).fold(f64::INFINITY, f64::min);
        let open: Vec<&Known<'_>> = open.into_iter().filter(|it| left(it.guest) <= least + AS_POOR).collect();
        let wants: Vec<u64> = open.iter().map(|it| it.room.wanting_bytes().min(it.room.step_bytes)).collect();
        let spare = view.pool.available_bytes.saturating_sub(marks.high);
        for (it, part) in open.iter().zip(share_out(spare, &wants)).filter(|(_, part)| *part > 0) {
            let reason =
                format!("{} available: it gets back what was taken", Bytes::from(view.pool.available_bytes));
            push(actions, it.guest, it.room.after_giving(part), reason);
        }
    }
}

/// The part of what it has that a guest could do without.
fn ease(guest: &GuestView) -> f64 {
    guest.inside.available_bytes.unwrap_or(0) as f64 / guest.given_bytes.max(1) as f64
}

/// The part of its whole that a guest has.
fn left(guest: &GuestView) -> f64 {
    guest.given_bytes as f64 / guest.whole_bytes.max(1) as f64
}

fn actions_name(actions: &[Action], wanted: &str) -> bool {
    actions.iter().any(|action| matches!(action, Action::Resize { key, .. } if key == wanted))
}

fn push(actions: &mut Vec<Action>, guest: &GuestView, to_bytes: u64, reason: String) {
    if to_bytes != guest.given_bytes {
        let (key, from_bytes) = (guest.key.clone(), guest.given_bytes);
        actions.push(Action::Resize { key, from_bytes, to_bytes, reason });
    }
}

impl BalancePolicy for NoSwap {
    fn name(&self) -> &'static str {
        "no-swap"
    }

    fn decide(&mut self, view: &View) -> Plan {
        let marks = self.config.marks(&view.pool);
        let mut outlook = self.forecast.look(view, &self.config, &marks);
        let mut actions = std::mem::take(&mut outlook.actions);
        let config = &self.config;
        let known: Vec<Known<'_>> = view
            .guests
            .iter()
            .map(|guest| Known {
                guest,
                room: Room::of(guest, &view.pool, config),
                squeal: Squeal::of(guest, config),
            })
            .collect();
        if let Some((missing, why)) = self.shortage(view, &marks, &outlook) {
            let is_urgent = is_urgent(&view.pool, &marks);
            let patience = if is_urgent { URGENT_PATIENCE } else { PATIENCE };
            let waits = Self::take(&known, missing, &why, patience, &mut actions);
            let takes = actions.iter().any(|action| matches!(action, Action::Resize { .. }));
            // Those who were squeezed too far get even now; it need not be asked for, since taking goes on anyway.
            Self::relieve(&known, view, marks.min, &mut actions);
            let state = if is_urgent { "urgent" } else { "short" };
            let text = match takes || waits {
                true => why,
                false => format!("{why}; no guest has anything to spare"),
            };
            return Plan { actions, reason: Reason::new(state, text), check_after: SOON };
        }
        let before = actions.len();
        if let Some(unmet) = Self::relieve(&known, view, marks.low, &mut actions) {
            Self::ask_the_idle(&known, unmet, &self.config, &mut actions);
        }
        let relieves = actions.len() > before;
        let is_calm = self
            .last_short
            .is_none_or(|last| view.now.saturating_sub(last).as_secs_f64() >= self.config.calm_seconds);
        let between = actions.len();
        if self.gives_back && is_calm && view.pool.available_bytes > marks.high {
            Self::give_back(&known, view, &marks, &mut actions);
        }
        let gives_back = actions.len() > between;
        let between = actions.len();
        if self.gives_back && is_calm && !relieves && !gives_back {
            Self::even_out(&known, &mut actions);
        }
        let evens_out = actions.len() > between;
        let available = Bytes::from(view.pool.available_bytes);
        let (state, text, check_after) = match (relieves, gives_back) {
            _ if evens_out => {
                ("evening-out", format!("{available} available, and guests wait for what was taken"), WATCHFUL)
            }
            (true, _) => ("relieving", format!("{available} available, and a guest needs more"), SOON),
            (_, true) => (
                "giving-back",
                format!("{available} available, above the high mark {}", Bytes::from(marks.high)),
                WATCHFUL,
            ),
            _ if view.pool.available_bytes < marks.high => (
                "watching",
                format!(
                    "{available} available, between the marks {} and {}",
                    Bytes::from(marks.low),
                    Bytes::from(marks.high)
                ),
                WATCHFUL,
            ),
            _ => ("plenty", format!("{available} available"), CALM),
        };
        Plan { actions, reason: Reason::new(state, text), check_after }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{MIB, guest, of_class, pool, view};
    use super::*;
    use crate::balance::{PoolView, WhenExposed};

    fn resizes(plan: &Plan) -> Vec<(&str, i64)> {
        let amounts = plan.actions.iter().filter_map(|action| match action {
            Action::Resize { key, from_bytes, to_bytes, .. } => {
                Some((key.as_str(), (*to_bytes as i64 - *from_bytes as i64) / MIB as i64))
            }
            Action::Ksm { .. } => None,
        });
        amounts.collect()
    }

    fn policy() -> NoSwap {
        NoSwap::new(BalanceConfig::default())
    }

    fn squeezed(key: &str, given: u64, available: u64) -> GuestView {
        GuestView { given_bytes: given * MIB, resident_bytes: given * MIB, ..guest(key, 1000, available) }
    }

    #[test]
    fn who_has_most_to_spare_gives_most() {
        let guests = vec![guest("busy", 1000, 150), guest("idle", 1000, 850)];
        let plan = policy().decide(&view(0, pool(10_000, 960), guests));
        assert_eq!(plan.reason.state, "short");
        // 540 MiB are missing: the step of 50 MiB is what bounds the idle one.
        assert_eq!(resizes(&plan), [("busy", -50), ("idle", -50)]);
        let guests = vec![guest("busy", 1000, 150), guest("idle", 1000, 850)];
        let plan = policy().decide(&view(0, pool(1000, 90), guests));
        assert_eq!(resizes(&plan), [("busy", -6), ("idle", -50)]);
    }

    #[test]
    fn a_dearer_class_gives_only_when_the_cheaper_are_at_their_floors() {
        let gold = || of_class(guest("gold", 1000, 900), "gold", 100);
        let bronze = |available| of_class(guest("bronze", 1000, available), "bronze", 1);
        let of = |available| {
            let plan = policy().decide(&view(
                0,
                pool(1000, 40),
                vec![gold(), guest("silver", 1000, 900), bronze(available)],
            ));
            resizes(&plan).into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(of(900), ["bronze"]);
        assert_eq!(of(50), ["silver"]);
        let mut silver = guest("silver", 1000, 50);
        silver.held = true;
        let plan = policy().decide(&view(0, pool(1000, 40), vec![gold(), silver, bronze(10)]));
        assert_eq!(resizes(&plan).first().map(|(key, _)| *key), Some("gold"));
    }

    #[test]
    fn nobody_dearer_pays_for_a_step_that_is_only_late() {
        let gives = |available, millis: Option<u64>| {
            let gold = of_class(guest("gold", 1000, 900), "gold", 100);
            let mut bronze = of_class(guest("bronze", 1000, 900), "bronze", 1);
            (bronze.can_take, bronze.giving_for) = (millis.is_none(), millis.map(Duration::from_millis));
            let plan = policy().decide(&view(0, pool(1000, available), vec![gold, bronze]));
            assert!(!plan.reason.text.contains("anything to spare"), "{}", plan.reason);
            resizes(&plan).into_iter().map(|(key, _)| key.to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(gives(90, None), ["bronze"]);
        assert_eq!(gives(90, Some(100)), [""; 0]);
        assert_eq!(gives(90, Some(1900)), [""; 0]);
        assert_eq!(gives(90, Some(2100)), ["gold"], "it may hang");
        assert_eq!(gives(40, Some(100)), [""; 0]);
        assert_eq!(gives(40, Some(400)), ["gold"], "there is no time to wait");
    }

    #[test]
    fn taking_goes_on_to_the_middle_and_then_waits() {
        let mut policy = policy();
        let mut state = |second, available| {
            policy.decide(&view(second, pool(1000, available), vec![guest("a", 1000, 900)])).reason.state
        };
        assert_eq!(state(0, 120), "watching");
        assert_eq!(state(1, 90), "short");
        assert_eq!(state(2, 140), "short");
        assert_eq!(state(3, 155), "watching");
        assert_eq!(state(4, 140), "watching");
    }

    #[test]
    fn what_was_taken_comes_back_after_a_while_of_calm_the_dearest_first() {
        let mut policy = policy();
        let mut at = |second, available| {
            let gold = of_class(squeezed("gold", 500, 200), "gold", 100);
            let plan =
                policy.decide(&view(second, pool(1000, available), vec![squeezed("silver", 500, 200), gold]));
            resizes(&plan).iter().map(|(key, by)| (key.to_string(), *by)).collect::<Vec<_>>()
        };
        at(0, 90);
        assert_eq!(at(30, 600), []);
        assert_eq!(at(60, 600), [("gold".to_owned(), 50)]);
        assert_eq!(at(62, 190), []);
    }

    #[test]
    fn who_squeals_gets_and_the_idle_pay_for_it() {
        let mut squealing = squeezed("squealing", 500, 200);
        squealing.inside.psi_some_percent = Some(5.0);
        let idle = guest("idle", 1000, 800);
        let gold = of_class(guest("gold", 1000, 900), "gold", 100);
        let plan = policy().decide(&view(0, pool(1000, 190), vec![squealing.clone(), idle.clone(), gold.clone()]));
        assert_eq!(resizes(&plan), [("squealing", 50)]);
        let plan = policy().decide(&view(0, pool(1000, 120), vec![squealing, idle, gold]));
        assert_eq!(resizes(&plan), [("idle", -30)]);
        let Action::Resize { reason, .. } = &plan.actions[0] else { panic!() };
        assert_eq!(reason, "squealing needs it more");
    }

    #[test]
    fn a_pool_that_swaps_is_short_unless_it_has_plenty() {
        let swapping = |available| PoolView { swap_out_bytes_per_second: Some(1e6), ..pool(1000, available) };
        let state =
            |available| policy().decide(&view(0, swapping(available), vec![guest("a", 1000, 900)])).reason.state;
        assert_eq!((state(150), state(500)), ("short", "plenty"));
    }

    #[test]
    fn exposure_is_covered_by_taking_where_that_is_wanted() {
        let config = BalanceConfig { exposure: WhenExposed::Cover, ..BalanceConfig::default() };
        let exposed = PoolView { exposure_bytes: 500 * MIB, ..pool(1000, 400) };
        let plan = NoSwap::new(config).decide(&view(0, exposed, vec![guest("a", 1000, 900)]));
        assert_eq!(resizes(&plan), [("a", -50)]);
        assert!(plan.reason.text.starts_with("if all merged pages diverged"), "{}", plan.reason);
    }

    #[test]
    fn without_guests_it_says_so_and_does_nothing() {
        let plan = policy().decide(&view(0, pool(1000, 10), vec![]));
        assert_eq!((resizes(&plan).len(), plan.reason.state), (0, "urgent"));
        assert!(plan.reason.text.ends_with("no guest has anything to spare"));
    }
}
