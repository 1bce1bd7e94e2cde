//! One turn of the flow: observe, decide within the limits, act.

use ksmith_core::decide::{Decision, History, Limits, Policy, View};
use ksmith_core::knobs::{Knob, Knobs};
use ksmith_core::sample::Sample;

/// Where samples come from and settings go: the live kernel or the simulated one.
pub trait Host {
    /// Looks at everything once.
    fn sample(&mut self) -> Sample;

    /// Brings settings about.
    fn apply(&mut self, knobs: &Knobs) -> Applied;
}

/// What came of bringing settings about, in sentences: `pages_to_scan 100 -> 1000`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// What changed.
    pub changes: Vec<String>,
    /// What could not be changed, and why.
    pub errors: Vec<String>,
}

/// A host, a policy for it, and what they have seen together.
#[derive(Debug)]
pub struct Controller<H> {
    host: H,
    policy: Box<dyn Policy>,
    limits: Limits,
    history: History,
    /// What should be in force, after what was written last.
    in_force: Knobs,
}

/// What one turn saw and did.
#[derive(Debug, Clone)]
pub struct Tick {
    /// What was seen before anything was done.
    pub sample: Sample,
    /// What was decided, within the limits.
    pub decision: Decision,
    /// What was done.
    pub applied: Applied,
    /// Settings that another program changed since the last turn: `pages_to_scan 500 -> 100`.
    pub foreign: Vec<String>,
}

impl<H: Host> Controller<H> {
    /// Puts `policy` in charge of `host`.
    pub fn new(host: H, policy: Box<dyn Policy>, limits: Limits) -> Self {
        Self { host, policy, limits, history: History::default(), in_force: Knobs::none() }
    }

    /// Observes, decides and acts once.
    pub fn tick(&mut self) -> Tick {
        let sample = self.host.sample();
        let foreign = self.foreign_changes(&sample);
        self.history.push(&sample);
        let view = View { now: &sample, history: &self.history, limits: &self.limits };
        let decision = self.policy.decide(&view);
        let decision = self.limits.bound(decision, &self.history, &Knobs::current(&sample.ksm));
        let mut wanted = decision.knobs.differing_from(&sample.ksm);
        // Switching the advisor rewrites pages_to_scan, whatever it was: then everything is looked at again.
        if wanted.get(Knob::AdvisorMode).is_some() {
            wanted = decision.knobs.clone();
        }
        let applied = if wanted.is_empty() { Applied::default() } else { self.host.apply(&wanted) };
        // After a refused write nobody knows what holds, so nobody else is blamed for it.
        self.in_force = if applied.errors.is_empty() { decision.knobs.clone() } else { Knobs::none() };
        Tick { sample, decision, applied, foreign }
    }

    fn foreign_changes(&self, sample: &Sample) -> Vec<String> {
        let found = Knobs::current(&sample.ksm);
        let differing = self.in_force.differing_from(&sample.ksm);
        let sentence = |(knob, ours): (Knob, u64)| {
            let theirs = found.get(knob).unwrap_or(ours);
            format!("{knob} {} -> {}", knob.text(ours), knob.text(theirs))
        };
        differing.iter().map(sentence).collect()
    }

    /// Puts another policy in charge, and returns the one before. What was seen so far is kept: it does not
    /// depend on the policy.
    pub fn replace(&mut self, policy: Box<dyn Policy>, limits: Limits) -> Box<dyn Policy> {
        self.limits = limits;
        std::mem::replace(&mut self.policy, policy)
    }

    /// What the samples so far amount to.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// The policy's name.
    pub fn policy_name(&self) -> &'static str {
        self.policy.name()
    }

    /// The host.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// The host back, when the work is done.
    pub fn into_host(self) -> H {
        self.host
    }
}

impl<H: Host> Host for &mut H {
    fn sample(&mut self) -> Sample {
        (**self).sample()
    }

    fn apply(&mut self, knobs: &Knobs) -> Applied {
        (**self).apply(knobs)
    }
}
