//! The demo without KSM or without root: the same guests on a simulated ksmd, in simulated time.

use std::time::Duration;

use ksmith_core::knobs::KnobSettings;
use ksmith_core::sample::Sample;
use ksmith_core::sim::{GuestPlan, PAGE_SIZE, SimConfig, SimMachine};
use ksmith_core::trial::SimHost;

use super::DemoError;
use super::stage::{DemoMode, DemoStage};
use crate::{GuestContents, GuestPages, MemoryPart};
use ksmith_core::controller::{ApplyOutcome, KeepTerms, KsmHost};

/// A simulated host for the demo.
#[derive(Debug)]
pub struct SimulatedStage {
    host: SimHost,
    before: KnobSettings,
    pages: GuestPages,
}

impl SimulatedStage {
    /// Makes a host as after boot, with guests on such `pages`.
    pub fn new(pages: GuestPages) -> Self {
        let machine = SimMachine::new(SimConfig::default());
        let before = KnobSettings::current(&machine.sample().ksm);
        Self { host: SimHost::new(machine), before, pages }
    }
}

impl KsmHost for SimulatedStage {
    fn sample(&mut self) -> Sample {
        self.host.sample()
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        KsmHost::apply(&mut self.host, knobs)
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        KsmHost::hold(&mut self.host, until_next, rest_after)
    }
}

impl DemoStage for SimulatedStage {
    fn mode(&self) -> DemoMode {
        DemoMode::Simulated
    }

    fn pages(&self) -> GuestPages {
        self.pages
    }

    fn keep_terms(&self) -> KeepTerms {
        KeepTerms { keep: true, splits_free_zeros: self.host.machine.splits_free_zeros() }
    }

    fn truly_saved_bytes(&mut self) -> Option<u64> {
        (self.pages == GuestPages::Huge).then(|| self.host.machine.truly_saved_pages() * PAGE_SIZE)
    }

    fn start(&mut self, name: &str, contents: &GuestContents) -> Result<(), DemoError> {
        let count = |pages: usize| u32::try_from(pages).unwrap_or(u32::MAX);
        let plan = contents.0.iter().fold(GuestPlan::new(name), |plan, part| match *part {
            MemoryPart::Equal { seed, pages } => plan.equal(seed as u16, count(pages)),
            MemoryPart::Zero { pages } => plan.zero(count(pages)),
            MemoryPart::Churn { pages, every } => plan.rewritten(count(pages), every),
            other => plan.unique(count(other.pages())),
        });
        self.host.machine.start(if self.pages == GuestPages::Huge { plan.huge() } else { plan });
        Ok(())
    }

    fn wait(&mut self, time: Duration) -> Result<(), DemoError> {
        self.host.machine.advance(time);
        Ok(())
    }

    fn elapsed(&self) -> Duration {
        self.host.machine.now()
    }

    fn wrong_pages(&mut self) -> Result<usize, DemoError> {
        Ok(0)
    }

    fn strike(mut self) -> Result<bool, DemoError> {
        let before = self.before.clone();
        let errors = self.apply(&before).errors;
        Ok(errors.is_empty() && KnobSettings::current(&self.host.machine.sample().ksm) == self.before)
    }
}
