//! One turn of the flow: observe, decide within the limits, act.

use ksmith_core::decide::{Decision, History, Limits, Policy, View};
use ksmith_core::knobs::Knobs;
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
}

impl<H: Host> Controller<H> {
    /// Puts `policy` in charge of `host`.
    pub fn new(host: H, policy: Box<dyn Policy>, limits: Limits) -> Self {
        Self { host, policy, limits, history: History::default() }
    }

    /// Observes, decides and acts once.
    pub fn tick(&mut self) -> Tick {
        let sample = self.host.sample();
        self.history.push(&sample);
        let view = View { now: &sample, history: &self.history, limits: &self.limits };
        let decision = self.policy.decide(&view);
        let decision = self.limits.bound(decision, &self.history, &Knobs::current(&sample.ksm));
        let wanted = decision.knobs.differing_from(&sample.ksm);
        let applied = if wanted.is_empty() { Applied::default() } else { self.host.apply(&wanted) };
        Tick { sample, decision, applied }
    }

    /// Puts another policy in charge. What was seen so far is kept: it does not depend on the policy.
    pub fn replace_policy(&mut self, policy: Box<dyn Policy>, limits: Limits) {
        self.policy = policy;
        self.limits = limits;
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
