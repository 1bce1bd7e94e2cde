//! One turn of the flow: observe, decide within the limits, act.

mod keeper;

use std::time::Duration;

pub use self::keeper::{KEEPS_MERGES, KeepTerms};

use self::keeper::MergeKeeper;
use crate::decide::{self, OnDemandPolicy, PassHistory, Policy, PolicyDecision, PolicyLimits, PolicyView};
use crate::knobs::{Knob, KnobChange, KnobSettings};
use crate::sample::{ProcessId, Sample};
use crate::scan::ScanJob;

/// The longest wait after settings that could not be written, such as a stop while ksmd is in a batch.
const RETRY: Duration = Duration::from_secs(1);

/// A source of samples and a sink of settings: the live kernel or the simulated one.
pub trait KsmHost {
    /// Takes a sample.
    fn sample(&mut self) -> Sample;

    /// Writes settings to the host.
    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome;

    /// Enables page sampling ([`crate::page_sample`]); a no-op by default.
    fn enable_page_sampling(&mut self, _wanted: bool) {}

    /// Requests a forecast of merging all memory ([`crate::merge_forecast`]) for the samples to come; a no-op by default.
    fn request_forecast(&mut self) {}

    /// Holds the lease until the next tick is due: the host has ksmd scan until then and not much longer
    /// ([`crate::lease`]), and has it rest once it has completed `rest_after` passes. A no-op by default. Returns the
    /// errors, one sentence each.
    fn hold(&mut self, _until_next: Duration, _rest_after: Option<u64>) -> Vec<String> {
        Vec::new()
    }
}

/// The outcome of writing settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyOutcome {
    /// Changes that were made.
    pub changes: Vec<KnobChange>,
    /// Changes that failed and why, in sentences.
    pub errors: Vec<String>,
    /// Changes that wait for ksmd, in sentences. They are no errors, and a controller's next turn tries its own again.
    pub waiting: Vec<String>,
}

impl ApplyOutcome {
    /// Returns true if no change failed and none is waiting for ksmd.
    pub fn is_complete(&self) -> bool {
        self.errors.is_empty() && self.waiting.is_empty()
    }
}

/// A policy in control of a host, with the history of the samples.
#[derive(Debug)]
pub struct PolicyController<H> {
    host: H,
    policy: Box<dyn Policy>,
    limits: PolicyLimits,
    history: PassHistory,
    /// The settings expected to be in force since the last write.
    in_force: KnobSettings,
    keeper: MergeKeeper,
    /// Processes that have offered memory again since the last turn.
    newly_offered: Vec<ProcessId>,
}

/// A policy that waits for the end of a scan on demand, to find the settings as it left them.
#[derive(Debug)]
pub struct WaitingPolicy {
    policy: Box<dyn Policy>,
    /// The settings that the scan changes, as they were.
    settings: KnobSettings,
}

/// The result of one turn.
#[derive(Debug, Clone)]
pub struct TickOutcome {
    /// The sample before anything was done.
    pub sample: Sample,
    /// The decision, within the limits, with the settings that keep what is merged.
    pub decision: PolicyDecision,
    /// The outcome of writing the settings.
    pub applied: ApplyOutcome,
    /// Errors from writing the settings that keep what is merged. They hold up nothing else, and each turn tries again.
    pub unkept: Vec<String>,
    /// Settings that another program changed since the last turn, from ours to its own.
    pub foreign: Vec<KnobChange>,
}

impl<H: KsmHost> PolicyController<H> {
    /// Puts `policy` in charge of `host`.
    pub fn new(host: H, policy: Box<dyn Policy>, limits: PolicyLimits) -> Self {
        Self {
            host,
            policy,
            limits,
            history: PassHistory::default(),
            in_force: KnobSettings::none(),
            keeper: MergeKeeper::default(),
            newly_offered: Vec::new(),
        }
    }

    /// Sets the terms on which settings of khugepaged are held. Without any, they are left alone.
    pub fn set_keep_terms(&mut self, terms: KeepTerms) {
        self.keeper.set_terms(terms);
    }

    /// Observes, decides and acts once.
    pub fn tick(&mut self) -> TickOutcome {
        self.tick_guarded(|_, decision| decision)
    }

    /// Takes one turn with a guard that may change the policy's decision before the limits are applied.
    pub fn tick_guarded(&mut self, guard: impl FnOnce(&Sample, PolicyDecision) -> PolicyDecision) -> TickOutcome {
        self.host.enable_page_sampling(self.policy.wants_page_samples());
        if self.policy.wants_forecast() {
            self.host.request_forecast();
        }
        let mut sample = self.host.sample();
        sample.newly_offered = std::mem::take(&mut self.newly_offered);
        let foreign = self.foreign_changes(&sample);
        self.history.push(&sample);
        let view = PolicyView { now: &sample, history: &self.history, limits: &self.limits };
        let decision = guard(&sample, decide::decide(self.policy.as_mut(), &view));
        let mut decision = self.limits.bound(decision, &self.history, &KnobSettings::current(&sample.ksm));
        let kept = match sample.is_ksm_read_only {
            true => KnobSettings::none(),
            false => self.keeper.settings(&sample.ksm, &decision.knobs),
        };
        let keeping = match kept.differing_from(&sample.ksm) {
            due if due.is_empty() => ApplyOutcome::default(),
            due => self.host.apply(&due),
        };
        let mut wanted = decision.knobs.differing_from(&sample.ksm);
        // Switching the advisor rewrites pages_to_scan, whatever it was: then everything is looked at again.
        if wanted.get(Knob::AdvisorMode).is_some() {
            wanted = decision.knobs.clone();
        }
        let mut applied = if wanted.is_empty() { ApplyOutcome::default() } else { self.host.apply(&wanted) };
        // A decision to park holds nothing, even where ksmd can't be stopped yet.
        if decision.knobs.get(Knob::Run).is_none_or(|run| run == 1) {
            applied.errors.extend(self.host.hold(decision.check_after, decision.rest_after));
        }
        if !applied.is_complete() {
            decision.check_after = decision.check_after.min(RETRY);
        }
        // After a refused write the settings are not known, so no difference is reported as foreign.
        self.in_force = if applied.is_complete() { decision.knobs.clone() } else { KnobSettings::none() };
        // What was refused is not in force; what the sample showed is.
        let is_so = |knob: Knob, value| keeping.is_complete() || knob.current(&sample.ksm) == Some(value);
        kept.iter()
            .filter(|&(knob, value)| is_so(knob, value))
            .for_each(|(knob, value)| self.in_force.set(knob, value));
        kept.iter().for_each(|(knob, value)| decision.knobs.set(knob, value));
        applied.changes.splice(..0, keeping.changes);
        TickOutcome { sample, decision, applied, unkept: keeping.errors, foreign }
    }

    fn foreign_changes(&self, sample: &Sample) -> Vec<KnobChange> {
        let found = KnobSettings::current(&sample.ksm);
        let differing = self.in_force.differing_from(&sample.ksm);
        let change =
            |(knob, ours): (Knob, u64)| KnobChange { knob, old: ours, new: found.get(knob).unwrap_or(ours) };
        differing.iter().map(change).collect()
    }

    /// Records that a process has offered memory to KSM again, for the next turn.
    pub fn note_offer(&mut self, id: ProcessId) {
        self.newly_offered.push(id);
    }

    /// Puts another policy in charge, and returns the one before. What was seen so far is kept: it does not
    /// depend on the policy.
    pub fn replace(&mut self, policy: Box<dyn Policy>, limits: PolicyLimits) -> Box<dyn Policy> {
        self.limits = limits;
        std::mem::replace(&mut self.policy, policy)
    }

    /// Starts a scan on demand; the policy waits for its end. `settings` are those in force.
    pub fn begin_scan(&mut self, job: ScanJob, limits: PolicyLimits, settings: &KnobSettings) -> WaitingPolicy {
        let policy = self.replace(Box::new(OnDemandPolicy::new(job)), limits);
        WaitingPolicy { policy, settings: changed_by_scan(settings) }
    }

    /// Restores the settings that a scan has changed, and the policy that has waited for its end. Returns these
    /// settings, and the outcome of writing them.
    pub fn end_scan(&mut self, waiting: WaitingPolicy, limits: PolicyLimits) -> (KnobSettings, ApplyOutcome) {
        let applied = self.put_back(&waiting.settings);
        self.replace(waiting.policy, limits);
        (waiting.settings, applied)
    }

    /// Writes settings apart from any decision. The last decision no longer holds.
    fn put_back(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        self.in_force = KnobSettings::none();
        self.host.apply(knobs)
    }

    /// Puts other limits in force; the policy goes on.
    pub fn set_limits(&mut self, limits: PolicyLimits) {
        self.limits = limits;
    }

    /// The history of the samples so far.
    pub fn history(&self) -> &PassHistory {
        &self.history
    }

    /// The policy's name.
    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    /// The host, to be asked only.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The host under control.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// Returns the host when the work is done.
    pub fn into_host(self) -> H {
        self.host
    }
}

impl WaitingPolicy {
    /// Puts another policy in the place of the one that waits.
    pub fn replace(&mut self, policy: Box<dyn Policy>) {
        self.policy = policy;
    }

    /// Adds a setting to restore that an earlier scan has changed.
    pub fn set_original(&mut self, knob: Knob, value: u64) {
        self.settings.set(knob, value);
    }
}

/// The settings that a scan changes, to be put back after it: the waiting policy may leave some of them to the
/// operator.
fn changed_by_scan(found: &KnobSettings) -> KnobSettings {
    use crate::knobs::Knob::{AdvisorMode, PagesToScan, Run, SleepMillisecs, SmartScan, UseZeroPages};
    let is_on = found.get(AdvisorMode) == Some(1);
    let restorable = |(knob, value): &(Knob, u64)| match knob {
        // The kernel refuses it while its advisor is on.
        PagesToScan => !is_on,
        Run => *value <= 1,
        AdvisorMode | SleepMillisecs | SmartScan | UseZeroPages => true,
        _ => false,
    };
    found.iter().filter(restorable).collect()
}

impl<H: KsmHost> KsmHost for &mut H {
    fn sample(&mut self) -> Sample {
        (**self).sample()
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        (**self).apply(knobs)
    }

    fn enable_page_sampling(&mut self, wanted: bool) {
        (**self).enable_page_sampling(wanted);
    }

    fn request_forecast(&mut self) {
        (**self).request_forecast();
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        (**self).hold(until_next, rest_after)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use crate::decide::DecisionReason;
    use crate::kernel::{AdvisorMode, RunState};
    use crate::reading::Reading;

    use super::*;

    /// A host in memory that takes every setting, unless told to refuse.
    #[derive(Debug)]
    struct InMemoryHost {
        sample: Sample,
        refuses: Option<&'static str>,
        is_busy: bool,
        asked_for: Vec<String>,
        held: Vec<(Duration, Option<u64>)>,
    }

    impl InMemoryHost {
        fn new() -> Self {
            let mut sample = Sample { page_size: 4096, ..Sample::default() };
            sample.ksm.run = Reading::Value(0);
            sample.ksm.pages_to_scan = Reading::Value(100);
            sample.ksm.sleep_millisecs = Reading::Value(20);
            Self { sample, refuses: None, is_busy: false, asked_for: Vec::new(), held: Vec::new() }
        }
    }

    impl KsmHost for InMemoryHost {
        fn sample(&mut self) -> Sample {
            self.sample.at += Duration::from_secs(1);
            self.sample.clone()
        }

        fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
            self.asked_for.push(knobs.to_string());
            if let Some(why) = self.refuses {
                return ApplyOutcome { errors: vec![why.to_owned()], ..ApplyOutcome::default() };
            }
            if self.is_busy {
                return ApplyOutcome { waiting: vec![knobs.to_string()], ..ApplyOutcome::default() };
            }
            let ksm = &mut self.sample.ksm;
            let mut changes = Vec::new();
            for (knob, new) in knobs.iter() {
                changes.push(KnobChange { knob, old: knob.current(ksm).unwrap(), new });
                match knob {
                    Knob::Run => ksm.run = Reading::Value(new),
                    Knob::PagesToScan => ksm.pages_to_scan = Reading::Value(new),
                    Knob::SleepMillisecs => ksm.sleep_millisecs = Reading::Value(new),
                    Knob::AdvisorMode => {
                        // As the kernel does: pages_to_scan is rewritten.
                        ksm.pages_to_scan = Reading::Value(100);
                        ksm.advisor_mode = Reading::Value(AdvisorMode::None);
                    }
                    other => panic!("{other} is not part of this host"),
                }
            }
            ApplyOutcome { changes, ..ApplyOutcome::default() }
        }

        fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
            self.held.push((until_next, rest_after));
            Vec::new()
        }
    }

    /// A policy with decisions prepared beforehand; the last decision stays.
    #[derive(Debug)]
    struct ScriptedPolicy(VecDeque<KnobSettings>);

    impl Policy for ScriptedPolicy {
        fn name(&self) -> &'static str {
            "told"
        }

        fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision {
            let knobs = if self.0.len() > 1 { self.0.pop_front() } else { self.0.front().cloned() };
            let reason = DecisionReason::new("told", format!("at {} s", view.now.at.as_secs()));
            PolicyDecision::new(knobs.unwrap_or_else(KnobSettings::none), reason, Duration::from_secs(1))
        }
    }

    /// Returns the settings that a turn has written: `pages_to_scan=500 run=1`.
    fn written(tick: &TickOutcome) -> String {
        tick.applied.changes.iter().map(|change| (change.knob, change.new)).collect::<KnobSettings>().to_string()
    }

    fn scanning(pages: u64) -> KnobSettings {
        KnobSettings::none().with(Knob::PagesToScan, pages).with(Knob::Run, 1)
    }

    fn controller(decisions: impl IntoIterator<Item = KnobSettings>) -> PolicyController<InMemoryHost> {
        let policy = Box::new(ScriptedPolicy(decisions.into_iter().collect()));
        PolicyController::new(InMemoryHost::new(), policy, PolicyLimits::default())
    }

    #[test]
    fn only_what_differs_is_written() {
        let mut controller = controller([scanning(500)]);
        assert_eq!(written(&controller.tick()), "pages_to_scan=500 run=1");
        assert_eq!(controller.tick().applied, ApplyOutcome::default());
        controller.replace(Box::new(ScriptedPolicy([scanning(600)].into())), PolicyLimits::default());
        assert_eq!(written(&controller.tick()), "pages_to_scan=600");
        assert_eq!(controller.host_mut().asked_for.len(), 2, "a tick without a change asks for nothing");
    }

    #[test]
    fn where_ksm_is_read_only_khugepaged_is_left_alone_too() {
        let mut controller = controller([scanning(500)]);
        controller.set_keep_terms(KeepTerms { keep: true, splits_free_zeros: true });
        let sample = &mut controller.host_mut().sample;
        sample.is_ksm_read_only = true;
        sample.ksm.run = Reading::Value(1);
        sample.ksm.max_ptes_shared = Reading::Value(256);
        sample.ksm.max_ptes_none = Reading::Value(511);
        let tick = controller.tick();
        assert_eq!(tick.decision.reason.state, "watching");
        assert!(controller.host_mut().asked_for.is_empty(), "{:?}", controller.host_mut().asked_for);
    }

    #[test]
    fn what_another_program_changed_is_said_and_set_back() {
        let mut controller = controller([scanning(500)]);
        assert_eq!(controller.tick().foreign, [], "earlier settings are not foreign changes");
        controller.host_mut().sample.ksm.pages_to_scan = Reading::Value(7);
        controller.host_mut().sample.ksm.sleep_millisecs = Reading::Value(0);
        let tick = controller.tick();
        assert_eq!(
            tick.foreign,
            [KnobChange { knob: Knob::PagesToScan, old: 500, new: 7 }],
            "a setting that we never made is not ours"
        );
        assert_eq!(written(&tick), "pages_to_scan=500");
        assert_eq!(controller.tick().foreign, []);
    }

    #[test]
    fn our_own_change_of_mind_is_not_foreign() {
        let mut controller = controller([scanning(500), scanning(600), KnobSettings::none()]);
        controller.tick();
        assert_eq!(controller.tick().foreign, []);
        controller.tick();
        controller.host_mut().sample.ksm.pages_to_scan = Reading::Value(7);
        assert_eq!(controller.tick().foreign, [], "a decision that names nothing claims nothing");
    }

    #[test]
    fn a_refused_write_is_an_error_and_no_foreign_change() {
        let mut controller = controller([scanning(500)]);
        controller.host_mut().refuses = Some("pages_to_scan: Device or resource busy");
        for _ in 0..2 {
            let tick = controller.tick();
            assert_eq!(tick.applied.errors, ["pages_to_scan: Device or resource busy"]);
            assert_eq!(tick.foreign, []);
        }
        controller.host_mut().refuses = None;
        assert_eq!(written(&controller.tick()), "pages_to_scan=500 run=1", "it is tried again");
    }

    #[test]
    fn what_waits_for_ksmd_is_no_error_and_is_tried_again_soon() {
        let mut controller = controller([scanning(500)]);
        controller.host_mut().is_busy = true;
        let tick = controller.tick();
        assert_eq!(
            (&tick.applied.errors[..], &tick.applied.waiting[..]),
            (&[][..], &["pages_to_scan=500 run=1".to_owned()][..])
        );
        assert!(tick.decision.check_after <= RETRY);
        controller.host_mut().is_busy = false;
        let tick = controller.tick();
        assert_eq!(tick.foreign, []);
        assert_eq!(written(&tick), "pages_to_scan=500 run=1");
    }

    #[test]
    fn each_look_holds_the_host_until_the_next_unless_it_parks() {
        let mut controller = controller([scanning(500), scanning(500), KnobSettings::none().with(Knob::Run, 0)]);
        (0..4).for_each(|_| _ = controller.tick());
        assert_eq!(controller.host().held, [(Duration::from_secs(1), None); 2]);
    }

    #[test]
    fn what_could_not_be_written_is_tried_again_soon() {
        let mut controller = controller([scanning(500)]);
        controller.host_mut().refuses = Some("busy");
        controller.replace(Box::new(RestAfterPolicy), PolicyLimits::default());
        assert_eq!(controller.tick().decision.check_after, RETRY);
        controller.host_mut().refuses = None;
        assert_eq!(controller.tick().decision.check_after, Duration::from_secs(60));
        assert_eq!(controller.host().held.last(), Some(&(Duration::from_secs(60), Some(7))), "what was decided");
    }

    /// A policy that wants ksmd to run to the end of its seventh pass, and decides once a minute.
    #[derive(Debug)]
    struct RestAfterPolicy;

    impl Policy for RestAfterPolicy {
        fn name(&self) -> &'static str {
            "patient"
        }

        fn decide(&mut self, _view: &PolicyView<'_>) -> PolicyDecision {
            let reason = DecisionReason::new("patient", "why".to_owned());
            PolicyDecision {
                knobs: scanning(500),
                reason,
                check_after: Duration::from_secs(60),
                rest_after: Some(7),
            }
        }
    }

    #[test]
    fn the_limits_bind_what_is_written() {
        let limits = PolicyLimits { max_pages_to_scan: 300, ..PolicyLimits::default() };
        let policy = Box::new(ScriptedPolicy([scanning(500).with(Knob::MaxPageSharing, 9)].into()));
        let mut controller = PolicyController::new(InMemoryHost::new(), policy, limits);
        let tick = controller.tick();
        assert_eq!(written(&tick), "pages_to_scan=300 run=1");
        assert_eq!(tick.decision.reason.detail.as_deref(), Some("limits: pages_to_scan=300"));
        assert_eq!(controller.tick().foreign, [], "what the limits hold back is not foreign");
        controller.replace(Box::new(ScriptedPolicy([scanning(500)].into())), PolicyLimits::default());
        assert_eq!(written(&controller.tick()), "pages_to_scan=500", "new limits hold at once");
    }

    #[test]
    fn everything_is_written_again_when_the_advisor_goes_off() {
        let mut controller = controller([scanning(500).with(Knob::AdvisorMode, 0)]);
        let ksm = &mut controller.host_mut().sample.ksm;
        ksm.advisor_mode = Reading::Value(AdvisorMode::ScanTime);
        ksm.pages_to_scan = Reading::Value(500);
        controller.tick();
        let ksm = &controller.host_mut().sample.ksm;
        assert_eq!((ksm.pages_to_scan.get(), ksm.run_state()), (Some(500), Some(RunState::Running)));
        assert_eq!(controller.host_mut().asked_for, ["advisor_mode=none pages_to_scan=500 run=1"]);
    }

    #[test]
    fn settings_that_are_put_back_are_no_foreign_change() {
        let mut controller = controller([scanning(500)]);
        controller.tick();
        controller.replace(Box::new(ScriptedPolicy([KnobSettings::none()].into())), PolicyLimits::default());
        controller.put_back(&KnobSettings::none().with(Knob::PagesToScan, 100).with(Knob::Run, 0));
        let tick = controller.tick();
        assert_eq!((tick.foreign.len(), tick.sample.ksm.run_state()), (0, Some(RunState::Stopped)));
        controller.set_limits(PolicyLimits { max_pages_to_scan: 9, ..PolicyLimits::default() });
        controller.replace(Box::new(ScriptedPolicy([scanning(500)].into())), controller.limits.clone());
        assert_eq!(written(&controller.tick()), "pages_to_scan=9 run=1");
    }

    #[test]
    fn another_policy_inherits_the_history() {
        let mut controller = controller([scanning(500)]);
        controller.host_mut().sample.ksm.full_scans = Reading::Value(3);
        controller.tick();
        controller.host_mut().sample.ksm.full_scans = Reading::Value(4);
        controller.tick();
        let passes = controller.history().last_pass().map(|pass| pass.count);
        assert_eq!(passes, Some(1));
        let before =
            controller.replace(Box::new(ScriptedPolicy([KnobSettings::none()].into())), PolicyLimits::default());
        assert_eq!((before.name(), controller.policy_name()), ("told", "told"));
        assert_eq!(controller.history().last_pass().map(|pass| pass.count), passes);
    }
}
