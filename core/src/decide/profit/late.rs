//! A host on which everything is late. Up to a second passes between a look and the action upon it, and from one look
//! to the next, while ksmd works on and guests fill their memory. In whatever order these fall, equal pages are merged
//! in the end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use proptest::prelude::*;

use super::{ProfitConfig, ProfitPolicy};
use crate::controller::{ApplyOutcome, KsmHost, PolicyController, TickOutcome};
use crate::decide::{CpuShare, Policy, PolicyDecision, PolicyLimits, PolicyView};
use crate::knobs::{Knob, KnobSettings};
use crate::sample::Sample;
use crate::scan::KsmdState;
use crate::sim::{SimConfig, SimCosts, SimGuestId, SimMachine, UNIQUE};
use crate::trial::SimHost;

/// A guest: when it starts, the pages that it gets one after the other, and how long after each other.
#[derive(Debug, Clone)]
struct GuestArrival {
    at_ms: u64,
    parts: Vec<(u32, u64)>,
}

/// The delays of one turn, in milliseconds.
#[derive(Debug, Clone, Copy, Default)]
struct TurnDelays {
    /// Between looking at processes and at ksmd.
    seeing: u64,
    /// From looking to doing.
    acting: u64,
    /// To looking again.
    looking: u64,
}

#[derive(Debug, Clone)]
struct LateStory {
    guests: Vec<GuestArrival>,
    /// Used in turn.
    delays: Vec<TurnDelays>,
    /// Milliseconds that ksmd ran before the first decision.
    before_ms: u64,
    share: f64,
    has_page_samples: bool,
    /// True if ksmd can rest at the end of a pass.
    can_rest: bool,
}

/// The time within which all has to be merged after the last page.
const AFTER: Duration = Duration::from_secs(400);

/// The time for it if visits cost [`DEAR`] times as much, and savings are worth as much more. Old memory that was skipped
/// waits for a probe then.
const AFTER_DEAR: Duration = Duration::from_secs(3 * 3600);
const DEAR: u64 = 200;

fn delay() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0_u64..5, 3 => 0_u64..60, 1 => 0_u64..1000]
}

fn delays() -> impl Strategy<Value = TurnDelays> {
    (delay(), delay(), delay()).prop_map(|(seeing, acting, looking)| TurnDelays { seeing, acting, looking })
}

fn arrival() -> impl Strategy<Value = GuestArrival> {
    let part = (1_u32..3000, prop_oneof![3 => 0_u64..20, 2 => 0_u64..400]);
    (0_u64..4000, prop::collection::vec(part, 1..5)).prop_map(|(at_ms, parts)| GuestArrival { at_ms, parts })
}

fn story() -> impl Strategy<Value = LateStory> {
    (
        prop::collection::vec(arrival(), 2..5),
        prop::collection::vec(delays(), 1..40),
        prop_oneof![Just(0), 0_u64..60],
        prop_oneof![2 => Just(1.0), 1 => 0.05..1.0],
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(guests, delays, before_ms, share, has_page_samples, can_rest)| LateStory {
            guests,
            delays,
            before_ms,
            share,
            has_page_samples,
            can_rest,
        })
}

/// The pages that guests get and the times at which they do, in order. Two pages of three are the same in all guests.
#[derive(Debug)]
struct GuestFilling {
    steps: VecDeque<(Duration, usize, u32, u32)>,
    ids: Vec<Option<SimGuestId>>,
}

impl GuestFilling {
    fn from_arrivals(guests: &[GuestArrival]) -> Self {
        let mut steps = Vec::new();
        for (guest, arrival) in guests.iter().enumerate() {
            let (mut at, mut first) = (arrival.at_ms, 0);
            for (pages, pause) in &arrival.parts {
                steps.push((Duration::from_millis(at), guest, first, *pages));
                at += pause;
                first += pages;
            }
        }
        steps.sort();
        Self { steps: steps.into(), ids: vec![None; guests.len()] }
    }

    /// Advances time while guests fill their memory.
    fn advance(&mut self, machine: &mut SimMachine, by: Duration) {
        let end = machine.now() + by;
        while let Some((at, guest, first, pages)) = self.steps.front().copied().filter(|step| step.0 <= end) {
            machine.advance(at.saturating_sub(machine.now()));
            let contents = (first..first + pages).map(|page| if page % 3 == 0 { UNIQUE } else { u64::from(page) });
            match self.ids[guest] {
                None => self.ids[guest] = Some(machine.add_guest("late", contents)),
                Some(id) => assert!(machine.grow_guest(id, contents)),
            }
            self.steps.pop_front();
        }
        machine.advance(end.saturating_sub(machine.now()));
    }
}

/// A host on which looking and doing are late.
#[derive(Debug)]
struct LateHost {
    host: SimHost,
    filling: GuestFilling,
    /// The delay of this turn.
    delays: TurnDelays,
    /// True if this turn has begun to act.
    acts: bool,
    /// True if ksmd stood between two passes when the sample was taken.
    is_between_passes: Arc<AtomicBool>,
}

impl LateHost {
    fn advance(&mut self, by: Duration) {
        self.filling.advance(&mut self.host.machine, by);
    }

    fn begin_to_act(&mut self) {
        if !std::mem::replace(&mut self.acts, true) {
            self.advance(Duration::from_millis(self.delays.acting));
        }
    }
}

impl KsmHost for LateHost {
    fn sample(&mut self) -> Sample {
        let (first, took) = (self.host.sample_kernel(), Duration::from_millis(self.delays.seeing));
        self.advance(took);
        let mut sample = match first.ksm.run.get() {
            Some(1) => {
                let Sample { rest, at, processes, .. } = first;
                Sample { at, took, rest, processes, ..self.host.sample_kernel() }
            }
            _ => first,
        };
        self.host.read_memory(&mut sample);
        self.is_between_passes.store(self.host.machine.is_between_passes(), Relaxed);
        self.acts = false;
        sample
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        self.begin_to_act();
        KsmHost::apply(&mut self.host, knobs)
    }

    fn enable_page_sampling(&mut self, wanted: bool) {
        self.host.enable_page_sampling(wanted);
    }

    fn request_forecast(&mut self) {
        self.host.request_forecast();
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        self.begin_to_act();
        KsmHost::hold(&mut self.host, until_next, rest_after)
    }
}

/// `profit`, which never takes a ksmd that stands in the middle of a pass for one that stands at its end.
#[derive(Debug)]
struct CheckedProfit {
    profit: ProfitPolicy,
    is_between_passes: Arc<AtomicBool>,
}

impl Policy for CheckedProfit {
    fn name(&self) -> &'static str {
        self.profit.name()
    }

    fn wants_page_samples(&self) -> bool {
        self.profit.wants_page_samples()
    }

    fn wants_forecast(&self) -> bool {
        self.profit.wants_forecast()
    }

    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
        let decision = self.profit.decide(view);
        let ksmd = KsmdState::from_sample(view.now, view.history, view.limits);
        let stands = !ksmd.runs && self.profit.scanner.is_between_passes(&ksmd);
        assert!(!stands || self.is_between_passes.load(Relaxed), "ksmd stands in the middle of a pass");
        decision
    }
}

/// One look, decision and change, each as late as it may be.
fn turn(controller: &mut PolicyController<LateHost>, delays: TurnDelays) -> String {
    controller.host_mut().delays = delays;
    let TickOutcome { sample, decision, applied, .. } = controller.tick();
    assert!(applied.is_complete(), "{applied:?}");
    controller.host_mut().advance(decision.check_after + Duration::from_millis(delays.looking));
    format!(
        "{:?} {} [{}] full_scans {} scanned {}",
        sample.at,
        decision.reason,
        decision.knobs,
        sample.ksm.full_scans.get().unwrap(),
        sample.ksm.pages_scanned.get().unwrap()
    )
}

/// Plays a story. Returns the pages that are not merged in the end, and the turns that led to it.
fn play_late(story: &LateStory, config: SimConfig, policy: ProfitConfig, after: Duration) -> (u64, Vec<String>) {
    let limits = PolicyLimits { max_cpu: CpuShare::new(story.share).unwrap(), ..PolicyLimits::default() };
    let host = SimHost::new(SimMachine::new(config));
    let host = if story.has_page_samples { host } else { host.without_page_samples() };
    let host = if story.can_rest { host } else { host.without_rest() };
    let is_between_passes = Arc::new(AtomicBool::new(false));
    let mut host = LateHost {
        host,
        filling: GuestFilling::from_arrivals(&story.guests),
        delays: TurnDelays::default(),
        acts: false,
        is_between_passes: Arc::clone(&is_between_passes),
    };
    host.host.machine.write(Knob::Run, 1).unwrap();
    host.advance(Duration::from_millis(story.before_ms));
    let policy = CheckedProfit { profit: ProfitPolicy::new(policy), is_between_passes };
    let mut controller = PolicyController::new(host, Box::new(policy), limits);
    let mut delays = story.delays.iter().copied().cycle();
    let mut told = Vec::new();
    while !controller.host().filling.steps.is_empty() {
        told.push(turn(&mut controller, delays.next().unwrap_or_default()));
    }
    let end = controller.host().host.machine.now() + after;
    while controller.host().host.machine.now() < end {
        told.push(turn(&mut controller, delays.next().unwrap_or_default()));
    }
    let machine = &controller.host().host.machine;
    (machine.attainable_pages().abs_diff(machine.figures().saved_pages), told)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_equal_ends_up_merged_however_late_everything_is(story in story()) {
        let (left, told) = play_late(&story, SimConfig::default(), ProfitConfig::default(), AFTER);
        prop_assert_eq!(left, 0, "{}", told.join("\n"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn what_is_equal_ends_up_merged_where_clean_passes_are_dear(story in story()) {
        let costs = SimCosts::default();
        let costs = SimCosts {
            checksum: costs.checksum * DEAR,
            unshared: costs.unshared * DEAR,
            merge: costs.merge * DEAR,
            skip: costs.skip * DEAR,
            ..costs
        };
        let usual = ProfitConfig::default();
        let policy = ProfitConfig {
            price_mib_per_cpu_second: usual.price_mib_per_cpu_second / DEAR as f64,
            pressed_price_mib_per_cpu_second: usual.pressed_price_mib_per_cpu_second / DEAR as f64,
            ..usual
        };
        let config = SimConfig { costs, ..SimConfig::default() };
        let (left, told) = play_late(&LateStory { share: 1.0, ..story }, config, policy, AFTER_DEAR);
        let last = told.len().saturating_sub(400);
        prop_assert_eq!(left, 0, "{}", told[last..].join("\n"));
    }
}
