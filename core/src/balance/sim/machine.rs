//! The pool with all its guests, and a policy that runs on them.

use std::time::Duration;

use super::guest::SimGuest;
use crate::balance::{
    BalanceAction, BalanceConfig, BalancePlan, BalancePolicy, BalanceView, GuestView, PlanBounds, PoolView,
    ReportedFigures, ResizeBackoff,
};

/// The memory that guests share.
#[derive(Debug, Clone, Copy)]
pub struct PoolConfig {
    /// The size of the pool.
    pub size_bytes: u64,
    /// The memory used by others than guests.
    pub others_bytes: u64,
    /// The size of its swap space.
    pub swap_bytes: u64,
}

/// The totals of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolTotals {
    /// Bytes that the pool wrote to swap.
    pub swapped_bytes: u64,
    /// The times that neither memory nor swap was left: a host would have killed a guest.
    pub host_kills: u64,
    /// Resizes that were carried out.
    pub resizes: u64,
    /// Bytes taken in all.
    pub taken_bytes: u64,
    /// Bytes given in all.
    pub given_bytes: u64,
}

/// A simulated pool.
#[derive(Debug, Clone)]
pub struct SimPool {
    config: PoolConfig,
    /// In the order of their keys.
    pub(super) guests: Vec<SimGuest>,
    now: Duration,
    swapped: u64,
    swap_rate: f64,
    cow_rate: f64,
    /// When writes to merged pages begin, and their rate in each guest.
    wave: Option<(Duration, u64)>,
    /// The key of a guest that is not honest, with its behaviour.
    odd: OddGuest,
    balance: BalanceConfig,
    bounds: PlanBounds,
    backoff: ResizeBackoff,
    last_known: Vec<Option<GuestView>>,
    record: PoolTotals,
}

/// The behaviour of a guest towards its hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestBehaviour {
    /// It reports full pressure and no available memory, whatever it has.
    ReportsShortage,
    /// It reports all its memory as available.
    ReportsPlenty,
    /// It does not resize.
    IgnoresBalloon,
    /// It does not answer from this moment on.
    HangsFrom(Duration),
}

impl SimGuest {
    /// Writes to its merged pages: each needs a frame of its own from now on. Returns how many did.
    fn diverge(&mut self, bytes: u64) -> u64 {
        let diverged = bytes.min(self.merged);
        self.merged -= diverged;
        diverged
    }

    /// The memory that the host spends on it beyond shared pages.
    fn resident(&self) -> u64 {
        self.touched.saturating_sub(self.merged)
    }
}

type OddGuest = Option<(&'static str, GuestBehaviour)>;

/// The behaviour of this guest, if it is the odd one.
fn behaviour(guest: &SimGuest, odd: OddGuest) -> Option<GuestBehaviour> {
    odd.filter(|(key, _)| *key == guest.key).map(|(_, behaviour)| behaviour)
}

/// The view that the guest's actuator reports; `None` if it does not answer, or has not started.
fn told(guest: &SimGuest, odd: OddGuest, now: Duration) -> Option<GuestView> {
    let mut view = guest.view(now)?;
    match behaviour(guest, odd) {
        Some(GuestBehaviour::HangsFrom(since)) if now >= since => return None,
        Some(GuestBehaviour::ReportsShortage) => {
            view.inside = ReportedFigures {
                available_bytes: Some(0),
                psi_some_percent: Some(100.0),
                ..ReportedFigures::default()
            };
        }
        Some(GuestBehaviour::ReportsPlenty) => view.inside.available_bytes = Some(guest.given),
        _ => {}
    }
    Some(view)
}

/// Resizes a guest, and returns what it has then.
fn resize(guest: &mut SimGuest, odd: OddGuest, to: u64) -> u64 {
    match behaviour(guest, odd) {
        Some(GuestBehaviour::IgnoresBalloon) => return guest.given,
        Some(GuestBehaviour::ReportsPlenty) => {
            // The balloon takes what the guest reported as available.
            let wanted = guest.given.saturating_sub(to);
            guest.drop_cache(wanted);
            let missing = wanted.saturating_sub(guest.free());
            guest.oom_kills += u64::from(missing > 0);
            guest.anonymous = guest.anonymous.saturating_sub(missing);
        }
        _ => {}
    }
    guest.resize(to)
}

/// The time step.
const TICK: Duration = Duration::from_millis(500);

impl SimPool {
    /// Creates a pool with guests at their start.
    pub fn new(config: PoolConfig, balance: BalanceConfig, guests: Vec<SimGuest>) -> Self {
        let last_known = vec![None; guests.len()];
        Self {
            config,
            guests,
            now: Duration::ZERO,
            swapped: 0,
            swap_rate: 0.0,
            cow_rate: 0.0,
            wave: None,
            odd: None,
            balance,
            bounds: PlanBounds::default(),
            backoff: ResizeBackoff::default(),
            last_known,
            record: PoolTotals::default(),
        }
    }

    /// Sets when writes to merged pages begin, and their rate in each guest.
    #[must_use]
    pub fn with_wave(mut self, second: u64, bytes_per_second: u64) -> Self {
        self.wave = Some((Duration::from_secs(second), bytes_per_second));
        self
    }

    /// Sets the behaviour of one guest. All others report their true figures, and resize as asked.
    #[must_use]
    pub fn with_odd(mut self, key: &'static str, behaviour: GuestBehaviour) -> Self {
        self.odd = Some((key, behaviour));
        self
    }

    /// The totals so far.
    pub fn record(&self) -> PoolTotals {
        self.record
    }

    /// The memory that a guest has.
    pub fn given_bytes(&self, key: &str) -> u64 {
        self.guests.iter().find(|guest| guest.key == key).map_or(0, |guest| guest.given)
    }

    fn used(&self) -> u64 {
        // One copy of merged memory stays: that of the guest with the most of it.
        let shared = self.guests.iter().map(|guest| guest.merged).max().unwrap_or(0);
        self.config.others_bytes + shared + self.guests.iter().map(SimGuest::resident).sum::<u64>()
    }

    fn exposure(&self) -> u64 {
        let shared = self.guests.iter().map(|guest| guest.merged).max().unwrap_or(0);
        self.guests.iter().map(|guest| guest.merged).sum::<u64>().saturating_sub(shared)
    }

    /// Lets time pass without a policy.
    pub fn advance(&mut self, span: Duration) {
        let end = self.now + span;
        while self.now < end {
            let tick = TICK.min(end - self.now);
            self.now += tick;
            for guest in &mut self.guests {
                guest.live(self.now, tick);
            }
            let seconds = tick.as_secs_f64();
            let per_guest = self
                .wave
                .filter(|(from, _)| *from <= self.now)
                .map_or(0, |(_, rate)| (rate as f64 * seconds) as u64);
            let diverged: u64 = self.guests.iter_mut().map(|guest| guest.diverge(per_guest)).sum();
            self.cow_rate = diverged as f64 / seconds;
            let excess = self.used().saturating_sub(self.config.size_bytes);
            let newly = excess.saturating_sub(self.swapped);
            self.record.swapped_bytes += newly;
            self.swap_rate = newly as f64 / seconds;
            self.swapped = excess;
            if excess > self.config.swap_bytes {
                self.record.host_kills += 1;
            }
        }
    }

    /// Returns the view for a policy.
    pub fn view(&mut self) -> BalanceView {
        let available = self.config.size_bytes.saturating_sub(self.used());
        let pool = PoolView {
            size_bytes: self.config.size_bytes,
            available_bytes: available,
            swap_out_bytes_per_second: Some(self.swap_rate),
            psi_some_percent: None,
            cow_bytes_per_second: Some(self.cow_rate),
            exposure_bytes: self.exposure(),
            headroom_bytes: available + self.config.swap_bytes.saturating_sub(self.swapped),
        };
        let mut guests = Vec::new();
        for (guest, known) in self.guests.iter().zip(&mut self.last_known) {
            match (told(guest, self.odd, self.now), known) {
                (Some(view), known) => {
                    let view = GuestView { trouble: self.backoff.trouble(&view.key, self.now), ..view };
                    *known = Some(view.clone());
                    guests.push(view);
                }
                // A guest that does not answer is in trouble, and its last figures are old.
                (None, Some(known)) => {
                    let trouble = Some("it does not answer".to_owned());
                    guests.push(GuestView { trouble, inside: Default::default(), ..known.clone() });
                }
                (None, None) => {}
            }
        }
        BalanceView { now: self.now, pool, guests }
    }

    /// Runs one turn of a policy, and returns the view and the plan.
    pub fn turn(&mut self, policy: &mut dyn BalancePolicy) -> (BalanceView, BalancePlan) {
        let view = self.view();
        let plan = self.bounds.bound_plan(policy.decide(&view), &view, &self.balance);
        for action in &plan.actions {
            let BalanceAction::Resize { key, from_bytes, to_bytes, .. } = action else { continue };
            let Some(guest) = self.guests.iter_mut().find(|guest| guest.key == *key) else { continue };
            let before = guest.given;
            let got = match told(guest, self.odd, self.now) {
                Some(_) => resize(guest, self.odd, *to_bytes),
                None => before,
            };
            self.backoff.record_resize(key, [*from_bytes, *to_bytes, got], self.now);
            self.record.resizes += 1;
            self.record.taken_bytes += before.saturating_sub(got);
            self.record.given_bytes += got.saturating_sub(before);
        }
        (view, plan)
    }

    /// Runs a policy until this second; `check` sees each turn.
    pub fn run(
        &mut self,
        policy: &mut dyn BalancePolicy,
        until: u64,
        mut check: impl FnMut(&BalanceView, &BalancePlan),
    ) {
        let end = Duration::from_secs(until);
        while self.now < end {
            let (view, plan) = self.turn(policy);
            check(&view, &plan);
            self.advance(plan.check_after.clamp(TICK, Duration::from_secs(60)).min(end - self.now));
        }
    }
}
