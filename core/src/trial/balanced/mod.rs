//! A balance policy in charge of the guests of a simulated host, beside the policy in charge of its ksmd.
//!
//! Each guest has a kernel of its own ([`SimGuest`]): it fills its page cache, drops it when memory is taken, and reads
//! back what it needs. The machine has the pages that come of it, so that what merges needs no taking, and taking what
//! is merged frees nothing. What the host has no memory for is swapped out.

mod guests;
mod mirror;

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use self::guests::FleetGuests;
use crate::balance::{
    self, BalanceAction, BalanceConfig, BalancePolicy, BalanceView, KsmStep, PlanBounds, PoolView, ResizeBackoff,
};
use crate::sim::{GuestDemand, GuestPlan, PAGE_SIZE, SimMachine};

/// The time step: guests live, and the balance policy is asked, at whole multiples of it.
const TICK: Duration = Duration::from_secs(1);

/// The outcome of balancing a host's guests.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct BalancingRecord {
    /// Seconds in which the host had less memory than was in use.
    pub overflow_seconds: f64,
    /// Integral of the memory that was in use and did not fit, in GiB-s.
    pub overflow_gib_seconds: f64,
    /// The most that did not fit, in bytes.
    pub most_overflow_bytes: u64,
    /// Bytes taken from guests in all.
    pub taken_bytes: u64,
    /// Bytes given back to guests in all.
    pub given_bytes: u64,
    /// Integral of the memory that guests lacked of what they were started with, in GiB-s.
    pub away_gib_seconds: f64,
    /// Pages that guests read back from disk.
    pub refaults: u64,
    /// Seconds that guests' tasks waited for those pages, in all.
    pub waited_seconds: f64,
    /// Programs that guests' own kernels killed for lack of memory.
    pub guest_kills: u64,
    /// Resizes that were carried out.
    pub resizes: u64,
    /// Turns of the balance policy.
    #[serde(rename = "balance_turns")]
    pub turns: u64,
    /// Times that the balance policy had ksmd merge at once.
    pub merges_asked: u64,
}

/// The policy in charge.
#[derive(Debug)]
struct BalanceControl {
    policy: Box<dyn BalancePolicy>,
    config: BalanceConfig,
    bounds: PlanBounds,
    backoff: ResizeBackoff,
    next_turn: Duration,
}

/// The guests of a host and their balance.
#[derive(Debug)]
pub struct BalancedGuests {
    guests: FleetGuests,
    /// `None`: guests keep what they were started with.
    control: Option<BalanceControl>,
    record: BalancingRecord,
    last: Option<Duration>,
    overflow: u64,
    breaks: u64,
    cow_bytes_per_second: f64,
    swap_bytes_per_second: f64,
    shortness: f64,
    wants_merging: bool,
}

impl BalancedGuests {
    /// Prepares these guests for a story of this length, with memory in runs of `run_pages` pages, under the balance
    /// policy of `config`, or under none.
    pub fn new(
        guests: Vec<(GuestPlan, GuestDemand)>,
        run_pages: u32,
        config: Option<BalanceConfig>,
        duration: Duration,
    ) -> Self {
        let control = config.map(|config| BalanceControl {
            policy: balance::policy(&config),
            config,
            bounds: PlanBounds::default(),
            backoff: ResizeBackoff::default(),
            next_turn: Duration::ZERO,
        });
        Self {
            guests: FleetGuests::new(guests, u64::from(run_pages.max(1)) * PAGE_SIZE, duration),
            control,
            record: BalancingRecord::default(),
            last: None,
            overflow: 0,
            breaks: 0,
            cow_bytes_per_second: 0.0,
            swap_bytes_per_second: 0.0,
            shortness: 0.0,
            wants_merging: false,
        }
    }

    /// The time of the next step.
    pub fn next(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |last| last + TICK)
    }

    /// Returns the outcome of balancing so far.
    pub fn record(&self) -> BalancingRecord {
        BalancingRecord {
            refaults: self.guests.refaults(),
            waited_seconds: self.guests.waited().as_secs_f64(),
            guest_kills: self.guests.kills(),
            ..self.record
        }
    }

    /// Returns the shortness of memory for the policy in charge of ksmd: see [`balance::shortness`]. 0 without a
    /// balance policy.
    pub fn shortness(&self) -> f64 {
        self.shortness
    }

    /// Returns true if the balance policy has asked for merging since the last call: two clean passes at once.
    pub fn take_wish_to_merge(&mut self) -> bool {
        std::mem::take(&mut self.wants_merging)
    }

    /// Starts, runs and ends guests until the machine's time, and has the balance policy take its turn if that is due.
    pub fn step(&mut self, machine: &mut SimMachine) {
        let now = machine.now();
        let span = self.last.map_or(Duration::ZERO, |last| now.saturating_sub(last));
        self.last = Some(now);
        self.guests.live(machine, now, span);
        let pool = self.pool(machine, span);
        let Some(control) = &mut self.control else { return };
        self.shortness = balance::shortness(&control.config, &pool);
        if control.next_turn > now {
            return;
        }
        let view =
            BalanceView { now, pool, guests: self.guests.views(machine, now, &control.config, &control.backoff) };
        let plan = control.bounds.bound_plan(control.policy.decide(&view), &view, &control.config);
        control.next_turn = now + plan.check_after.max(TICK);
        self.record.turns += 1;
        for action in &plan.actions {
            match action {
                BalanceAction::Ksm { step: KsmStep::BurstMerge, .. } => {
                    self.wants_merging = true;
                    self.record.merges_asked += 1;
                }
                BalanceAction::Ksm { .. } => {}
                BalanceAction::Resize { key, from_bytes, to_bytes, .. } => {
                    let Some(got) = self.guests.resize(machine, key, *to_bytes) else { continue };
                    control.backoff.record_resize(key, [*from_bytes, *to_bytes, got], now);
                    self.record.resizes += 1;
                    self.record.taken_bytes += from_bytes.saturating_sub(got);
                    self.record.given_bytes += got.saturating_sub(*from_bytes);
                }
            }
        }
    }

    /// The host's memory now, `span` after the last look.
    fn pool(&mut self, machine: &SimMachine, span: Duration) -> PoolView {
        let (size, used, figures) = (machine.total_bytes(), machine.used_bytes(), machine.figures());
        let overflow = used.saturating_sub(size);
        let seconds = span.as_secs_f64();
        let gib_seconds = |bytes: u64| bytes as f64 / (1_u64 << 30) as f64 * seconds;
        self.record.overflow_seconds += if self.overflow > 0 { seconds } else { 0.0 };
        self.record.overflow_gib_seconds += gib_seconds(self.overflow);
        self.record.away_gib_seconds += gib_seconds(self.guests.away_bytes());
        self.record.most_overflow_bytes = self.record.most_overflow_bytes.max(overflow);
        if seconds > 0.0 {
            self.swap_bytes_per_second = overflow.saturating_sub(self.overflow) as f64 / seconds;
            let broken = figures.breaks.saturating_sub(self.breaks) * PAGE_SIZE;
            self.cow_bytes_per_second = broken as f64 / seconds;
        }
        (self.overflow, self.breaks) = (overflow, figures.breaks);
        let available = size.saturating_sub(used);
        PoolView {
            size_bytes: size,
            available_bytes: available,
            swap_out_bytes_per_second: Some(self.swap_bytes_per_second),
            psi_some_percent: None,
            cow_bytes_per_second: Some(self.cow_bytes_per_second),
            exposure_bytes: figures.saved_pages * PAGE_SIZE,
            headroom_bytes: available,
        }
    }
}

#[cfg(test)]
mod tests;
