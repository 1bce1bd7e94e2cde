//! A trial: a policy in charge of the simulated machine, as the daemon would have it, and its outcome.

mod balanced;
mod sim_host;

use std::time::Duration;

pub use balanced::{BalancedGuests, BalancingRecord};
pub use sim_host::SimHost;

use crate::controller::{KeepTerms, PolicyController, TickOutcome, WaitingPolicy};
use crate::decide::{OnDemandPolicy, Policy, PolicyLimits};
use crate::knobs::KnobSettings;
use crate::scan::ScanJob;
#[cfg(test)]
use crate::sim::SimFleet;
use crate::sim::{PAGE_SIZE, SimMachine};

/// A policy in charge of a simulated host, over simulated time.
#[derive(Debug)]
pub struct PolicyTrial {
    controller: PolicyController<SimHost>,
    limits: PolicyLimits,
    next_turn: Duration,
    turns: u64,
    /// The state that the policy named last.
    state: &'static str,
    /// The policy that waits for the end of a scan that the balance policy has asked for.
    waiting: Option<WaitingPolicy>,
}

/// The figures of one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrialMoment {
    /// Time since the machine's boot.
    pub at: Duration,
    /// Memory that KSM's gauges count as saved, at most what is attainable, in bytes. They count pages that were
    /// written to, and ended guests, until ksmd's next visit.
    pub counted_bytes: u64,
    /// Memory that KSM saves, in bytes.
    pub saved_bytes: u64,
    /// Memory that KSM could save of what guests hold now, in bytes.
    pub attainable_bytes: u64,
    /// The CPU time of ksmd so far.
    pub ksmd_cpu: Duration,
    /// Complete passes of ksmd so far.
    pub passes: u64,
    /// Merged pages that were written to so far.
    pub breaks: u64,
    /// The state of the policy, in one word.
    pub state: &'static str,
}

impl PolicyTrial {
    /// Puts `policy` in charge of `machine`.
    pub fn new(machine: SimMachine, policy: Box<dyn Policy>, limits: PolicyLimits) -> Self {
        Self::with_host(SimHost::new(machine), policy, limits)
    }

    /// Puts `policy` in charge of `host`.
    pub fn with_host(host: SimHost, policy: Box<dyn Policy>, limits: PolicyLimits) -> Self {
        let next_turn = host.machine.now();
        let splits_free_zeros = host.machine.splits_free_zeros();
        let mut controller = PolicyController::new(host, policy, limits.clone());
        // As `[huge_pages] keep` has it by default.
        controller.set_keep_terms(KeepTerms { keep: true, splits_free_zeros });
        Self { controller, limits, next_turn, turns: 0, state: "", waiting: None }
    }

    /// The simulated host.
    pub fn host(&self) -> &SimHost {
        self.controller.host()
    }

    /// The simulated host, to be changed between two turns.
    pub fn host_mut(&mut self) -> &mut SimHost {
        self.controller.host_mut()
    }

    /// The simulated machine.
    pub fn machine(&self) -> &SimMachine {
        &self.host().machine
    }

    /// The simulated machine. Its guests may be started, changed and ended between two turns.
    pub fn machine_mut(&mut self) -> &mut SimMachine {
        &mut self.host_mut().machine
    }

    /// Starts two clean passes at once, as the daemon does when a balance policy wants that. The policy goes on
    /// after them.
    pub fn merge_at_once(&mut self) {
        if self.waiting.is_none() {
            let settings = KnobSettings::current(&self.host_mut().sample_kernel().ksm);
            let job = ScanJob::all_pages(BALANCE_PASSES);
            self.waiting = Some(self.controller.begin_scan(job, self.limits.clone(), &settings));
            self.next_turn = self.machine().now();
        }
    }

    /// Turns that the policy has taken.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Runs the policy until `end`. It takes a turn when its last decision says so, and when ksmd comes to rest.
    pub fn run_until(&mut self, end: Duration) {
        while self.machine().now() < end {
            if self.next_turn <= self.machine().now() {
                self.turn();
            }
            let until = end.min(self.next_turn);
            if self.host_mut().advance_to(until) {
                self.next_turn = self.machine().now();
            }
        }
    }

    /// Takes a turn now.
    pub fn turn(&mut self) -> TickOutcome {
        let tick = self.controller.tick();
        self.next_turn = self.machine().now() + tick.decision.check_after.max(SHORTEST);
        self.turns += 1;
        self.state = tick.decision.reason.state;
        if [OnDemandPolicy::DONE, OnDemandPolicy::STALLED].contains(&self.state)
            && let Some(waiting) = self.waiting.take()
        {
            self.controller.end_scan(waiting, self.limits.clone());
        }
        tick
    }

    /// The figures of this moment.
    pub fn moment(&self) -> TrialMoment {
        let machine = self.machine();
        let (figures, attainable) = (machine.figures(), machine.attainable_pages());
        TrialMoment {
            at: machine.now(),
            counted_bytes: figures.saved_pages.min(attainable) * PAGE_SIZE,
            saved_bytes: machine.truly_saved_pages() * PAGE_SIZE,
            attainable_bytes: attainable * PAGE_SIZE,
            ksmd_cpu: figures.ksmd_cpu,
            passes: figures.passes,
            breaks: figures.breaks,
            state: self.state,
        }
    }
}

/// Passes that a balance policy's wish to merge is: a page merges on its second visit.
const BALANCE_PASSES: u64 = 2;

/// The shortest time between two turns.
const SHORTEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod drift_tests;
#[cfg(test)]
#[path = "../../benches/hour/outcome.rs"]
mod outcome;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use outcome::FleetOutcome;
