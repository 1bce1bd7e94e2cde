//! The lease in simulated time: what the daemon's thread does with the same rhythm ([`crate::lease`]).

use std::time::Duration;

use crate::kernel::Ksm;
use crate::knobs::{Knob, Knobs};
use crate::lease::{self, Asleep, Pacer, Rate, Step};
use crate::reading::Reading;
use crate::sample::Rest;
use crate::sim::Machine;

/// The lease of a trial, in force or not.
#[derive(Debug, Default)]
pub(super) struct Leased(Option<Force>);

/// A lease in force.
#[derive(Debug)]
struct Force {
    pacer: Pacer,
    /// What was decided on.
    rate: Rate,
    /// The value of `sleep_millisecs` that was written last.
    value: u64,
    /// When ksmd is looked at next.
    next: Duration,
}

impl Leased {
    /// Looks at ksmd if that is due, and wakes it if that is. Returns the time of the next look.
    pub fn look(&mut self, machine: &mut Machine) -> Option<Duration> {
        let force = self.0.as_mut()?;
        while force.next <= machine.now() {
            let figures = machine.figures();
            let cpu_ns = u64::try_from(figures.ksmd_cpu.as_nanos()).unwrap_or(u64::MAX);
            let ksmd = machine.is_asleep().then_some(Asleep { cpu_ns, full_scans: figures.passes });
            let after = match force.pacer.look(machine.now(), ksmd) {
                Step::Look(after) => after,
                Step::Wake(after) => {
                    force.value = lease::next(force.value);
                    // The value is within the file's range.
                    let _ = machine.write(Knob::SleepMillisecs, force.value);
                    after
                }
            };
            force.next = machine.now() + after.max(SHORTEST);
        }
        Some(force.next)
    }

    /// Has ksmd rest once it has completed so many passes.
    pub fn rest_after(&mut self, full_scans: Option<u64>, now: Duration) {
        let Some(force) = &mut self.0 else { return };
        if force.pacer.is_resting() {
            force.next = now;
        }
        force.pacer.rest_after(full_scans);
    }

    /// Whether ksmd rests at the end of a pass.
    pub fn rest(&self) -> Rest {
        match &self.0 {
            None => Rest::Unavailable,
            Some(force) if force.pacer.is_resting() => Rest::Resting,
            Some(_) => Rest::Possible,
        }
    }

    /// Puts the batch and the sleep that were decided on in the place of those that the lease has written.
    pub fn show_decided(&self, ksm: &mut Ksm) {
        let Some(Force { rate, .. }) = &self.0 else { return };
        ksm.sleep_millisecs = Reading::Value(rate.sleep_ms);
        if !rate.is_advised {
            ksm.pages_to_scan = Reading::Value(rate.pages_to_scan);
        }
    }

    /// What is to be written to bring `due` about. `shown` has the settings that were decided on so far.
    pub fn apply(&mut self, mut due: Knobs, shown: &Ksm, now: Duration) -> Knobs {
        let completed = shown.full_scans.get();
        let decided = Knobs::current(shown);
        let of = |knob: Knob| due.get(knob).or_else(|| decided.get(knob)).unwrap_or(0);
        let rate = Rate {
            runs: of(Knob::Run) == 1,
            is_advised: of(Knob::AdvisorMode) == 1,
            pages_to_scan: of(Knob::PagesToScan),
            sleep_ms: of(Knob::SleepMillisecs),
        };
        let sleep = Duration::from_millis(rate.sleep_ms);
        if rate.needs_lease() {
            due.remove(Knob::SleepMillisecs);
            let parts = rate.parts();
            if !rate.is_advised {
                due.set(Knob::PagesToScan, parts.pages);
            }
            match &mut self.0 {
                Some(force) if force.rate == rate => {}
                Some(force) => {
                    force.pacer.set(sleep, parts.count);
                    (force.rate, force.next) = (rate, now);
                }
                None => {
                    let value = lease::next(0);
                    due.set(Knob::SleepMillisecs, value);
                    self.0 = Some(Force {
                        pacer: Pacer::new(sleep, parts.count).since(completed),
                        rate,
                        value,
                        next: now,
                    });
                }
            }
        } else if self.0.take().is_some() {
            due.set(Knob::SleepMillisecs, rate.sleep_ms);
            if !rate.is_advised {
                due.set(Knob::PagesToScan, rate.pages_to_scan);
            }
        }
        due
    }
}

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_micros(1);
