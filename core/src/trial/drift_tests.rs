//! One turn for the daemon and the simulator: over the same samples a controller of any host writes the same.

use proptest::prelude::*;

use super::*;
use crate::controller::{ApplyOutcome, KeepTerms, KsmHost};
use crate::decide::testing;
use crate::decide::{DecisionReason, POLICIES, PolicyConfig, PolicyDecision, PolicyView};
use crate::knobs::{Knob, KnobChange};
use crate::sample::Sample;

/// Pages that are kept as one.
const RUN_PAGES: u32 = 16;

/// A host that shows the samples of another one and says what is written to it.
#[derive(Debug)]
struct RecordingHost {
    sample: Sample,
    held: Option<(Duration, Option<u64>)>,
}

impl RecordingHost {
    /// Shows a sample to `controller`, and returns its turn.
    fn show(controller: &mut PolicyController<Self>, sample: Sample) -> TickOutcome {
        let host = controller.host_mut();
        *host = Self { sample, held: None };
        controller.tick()
    }
}

impl KsmHost for RecordingHost {
    fn sample(&mut self) -> Sample {
        self.sample.clone()
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        let mut kernel = testing::PolicyTestHost::linux_6_18();
        kernel.sample.ksm = self.sample.ksm.clone();
        let mut changes = Vec::new();
        for (knob, value) in knobs.writes() {
            let Some(old) = knob.current(&kernel.sample.ksm).filter(|old| *old != value) else { continue };
            kernel.apply(&KnobSettings::none().with(knob, value));
            changes.push(KnobChange { knob, old, new: value });
        }
        ApplyOutcome { changes, ..ApplyOutcome::default() }
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        self.held = Some((until_next, rest_after));
        Vec::new()
    }
}

fn recording(policy: Box<dyn Policy>) -> PolicyController<RecordingHost> {
    let host = RecordingHost { sample: Sample::default(), held: None };
    let mut controller = PolicyController::new(host, policy, PolicyLimits::default());
    // The simulated host holds what a daemon holds on its kernel.
    controller.set_keep_terms(KeepTerms { keep: true, splits_free_zeros: true });
    controller
}

/// 500 pages a batch, with the kernel's advisor on at first and then off.
#[derive(Debug, Default)]
struct SwitchingPolicy {
    turns: u32,
}

impl Policy for SwitchingPolicy {
    fn name(&self) -> &'static str {
        "switching"
    }

    fn decide(&mut self, _view: &PolicyView<'_>) -> PolicyDecision {
        self.turns += 1;
        let knobs = match self.turns {
            1 => KnobSettings::none().with(Knob::PagesToScan, 500).with(Knob::Run, 1),
            2 => KnobSettings::none().with(Knob::AdvisorMode, 1),
            _ => KnobSettings::none().with(Knob::AdvisorMode, 0).with(Knob::PagesToScan, 500),
        };
        PolicyDecision::new(knobs, DecisionReason::new("switching", "by turns"), Duration::from_secs(1))
    }
}

/// The batch after each of three turns.
fn batches(mut trial: PolicyTrial) -> [Option<u64>; 3] {
    [1, 2, 3].map(|second| {
        trial.run_until(Duration::from_secs(second));
        trial.machine().knob(Knob::PagesToScan)
    })
}

#[test]
fn a_batch_stays_as_decided_when_the_advisor_is_switched_off() {
    let host = || SimHost::new(SimMachine::new(crate::sim::SimConfig::default()));
    let trial = |host| PolicyTrial::with_host(host, Box::new(SwitchingPolicy::default()), PolicyLimits::default());
    assert_eq!(batches(trial(host())), [Some(500); 3]);
    let leased = batches(trial(host().under_lease()));
    assert_eq!(leased, [Some(512), Some(500), Some(512)], "a leased batch is rounded up");
}

fn fleet() -> impl Strategy<Value = SimFleet> {
    (128_u64..640, 0.0..0.3, 0.0..0.3, 0.0..0.2, 20_u64..300, any::<u64>()).prop_map(
        |(host, common, image, rewritten, exchange, seed)| SimFleet {
            host_bytes: host << 20,
            images: 3,
            size_step: 16 << 20,
            sizes: 1..=6,
            common,
            image,
            rewritten,
            rewritten_every: Duration::from_secs(5),
            start_every: Duration::from_secs(2),
            exchange_from: Duration::from_secs(60),
            exchange_every: Duration::from_secs(exchange),
            duration: Duration::from_secs(180),
            seed,
            ..SimFleet::default()
        },
    )
}

/// Every policy of the registry with the settings of each of its competitors.
fn policies() -> impl Iterator<Item = impl Fn() -> Box<dyn Policy>> {
    let texts = POLICIES.iter().flat_map(|entry| {
        let settings = entry.competitors.iter().map(|(_, settings)| *settings).chain([""]);
        settings.map(|settings| format!("kind = \"{0}\"\n[{0}]\n{settings}", entry.name))
    });
    texts.map(|text| {
        move || {
            let config: PolicyConfig = toml::from_str(&text).unwrap();
            config.policy(&|_| Err(std::io::ErrorKind::NotFound.into())).unwrap()
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_host_and_the_simulated_one_are_written_the_same_under_every_policy(fleet in fleet()) {
        for policy in policies() {
            let mut trial = PolicyTrial::new(fleet.machine(RUN_PAGES), policy(), PolicyLimits::default());
            let mut live = recording(policy());
            while trial.machine().now() < fleet.duration {
                let tick = trial.turn();
                let other = RecordingHost::show(&mut live, tick.sample.clone());
                prop_assert_eq!(&other.decision, &tick.decision);
                prop_assert_eq!(&other.applied, &tick.applied);
                prop_assert_eq!(&other.foreign, &tick.foreign);
                let next = trial.machine().now() + tick.decision.check_after.max(SHORTEST);
                trial.host_mut().advance_to(next);
            }
        }
    }

    /// Under a lease the batch and the sleep are written otherwise, and samples show those that were decided on.
    #[test]
    fn a_lease_hides_behind_what_was_decided_under_every_policy(fleet in fleet()) {
        let fleet = SimFleet { duration: Duration::from_secs(20), host_bytes: 128 << 20, ..fleet };
        for policy in policies() {
            let host = SimHost::new(fleet.machine(RUN_PAGES)).under_lease();
            let mut trial = PolicyTrial::with_host(host, policy(), PolicyLimits::default());
            let mut live = recording(policy());
            while trial.machine().now() < fleet.duration {
                let tick = trial.turn();
                let other = RecordingHost::show(&mut live, tick.sample.clone());
                prop_assert_eq!(&other.decision, &tick.decision);
                prop_assert_eq!(&tick.foreign, &[]);
                let shown = trial.host_mut().sample_kernel().ksm;
                let left = tick.decision.knobs.differing_from(&shown);
                prop_assert!(left.is_empty(), "{left} is still to be written: {:?}", tick.applied);
                let next = trial.machine().now() + tick.decision.check_after.max(SHORTEST);
                trial.host_mut().advance_to(next);
            }
        }
    }
}
