//! The simulated machine as a [`KsmHost`]: what the daemon has on a live kernel, in simulated time.

use std::time::Duration;

use crate::controller::{ApplyOutcome, KsmHost};
use crate::knobs::{Knob, KnobChange, KnobSettings};
use crate::lease::{KsmdWaker, LeaseTerms, ScanRate, SleepingKsmd, ends_lease};
use crate::merge_forecast::ForecastPlanner;
use crate::page_sample::{PageSampleRequest, PageSampler};
use crate::reading::Reading;
use crate::sample::{BoundaryPause, Sample};
use crate::sim::{KnobRefusal, PagePlace, SimMachine};

/// Pages in a page sample.
const SAMPLED: usize = 512;

/// A machine with what a daemon has besides it: page samples, and the lease that ksmd scans under.
#[derive(Debug)]
pub struct SimHost {
    /// The simulated machine. Guests may be started, changed and ended between two turns.
    pub machine: SimMachine,
    /// Draws pages to read, once the policy wants page samples.
    sampler: Option<PageSampler>,
    places: Vec<PagePlace>,
    planner: ForecastPlanner,
    has_page_samples: bool,
    /// The lease in force, where ksmd scans under one.
    lease: Option<LeaseTerms>,
    is_leased: bool,
    can_rest: bool,
    pool_shortness: f64,
}

impl SimHost {
    /// Makes a host of a machine. ksmd needs no lease to scan.
    pub fn new(machine: SimMachine) -> Self {
        Self {
            machine,
            sampler: None,
            places: Vec::new(),
            planner: ForecastPlanner::default(),
            has_page_samples: true,
            lease: None,
            is_leased: false,
            can_rest: true,
            pool_shortness: 0.0,
        }
    }

    /// Puts ksmd under a lease, as on a live host: it is woken for each batch, or part of one, when it is seen
    /// asleep. That takes several times the time of a simulation without it.
    #[must_use]
    pub fn under_lease(self) -> Self {
        Self { is_leased: true, ..self }
    }

    /// Disables the rest of ksmd at the end of a pass, as where no waker makes it rest ([`BoundaryPause`]).
    #[must_use]
    pub fn without_rest(self) -> Self {
        Self { can_rest: false, ..self }
    }

    /// Keeps guests' memory from being read, as where the daemon may not read it.
    #[must_use]
    pub fn without_page_samples(self) -> Self {
        Self { has_page_samples: false, ..self }
    }

    /// Sets how short memory is for the balance policy, which samples say from now on.
    pub fn set_pool_shortness(&mut self, shortness: f64) {
        self.pool_shortness = shortness;
    }

    /// Takes a sample without reading guests' memory. Settings are as decided on: what a lease does with them is its
    /// own business.
    pub fn sample_kernel(&mut self) -> Sample {
        let mut sample = self.machine.sample();
        self.show_decided(&mut sample.ksm);
        sample.rest = match () {
            () if !self.can_rest => BoundaryPause::Unavailable,
            () if self.is_leased => self.rest(),
            () => sample.rest,
        };
        sample.pool_shortness = self.pool_shortness;
        sample
    }

    /// Advances time until `end`, or until ksmd comes to rest. Returns true if it has.
    pub fn advance_to(&mut self, end: Duration) -> bool {
        while self.machine.now() < end {
            if self.look_at_ksmd() {
                return true;
            }
            let now = self.machine.now();
            let look = self.lease.as_ref().and_then(|lease| lease.next_look(now));
            let was_resting = self.machine.rest() == BoundaryPause::Resting;
            self.machine.advance_to_rest(look.map_or(end, |look| look.min(end)).saturating_sub(now));
            if self.machine.rest() == BoundaryPause::Resting && !was_resting {
                return true;
            }
        }
        false
    }

    /// Looks at ksmd as often as that is due, and wakes it if that is. Returns true if it has come to rest.
    fn look_at_ksmd(&mut self) -> bool {
        let Self { machine, lease: Some(lease), .. } = self else { return false };
        let now = machine.now();
        let mut has_come_to_rest = false;
        while lease.next_look(now).is_some_and(|due| due <= now) {
            lease.begin_look();
            let figures = machine.figures();
            let cpu_ns = u64::try_from(figures.ksmd_cpu.as_nanos()).unwrap_or(u64::MAX);
            let ksmd = machine.is_asleep().then_some(SleepingKsmd { cpu_ns, full_scans: figures.passes });
            has_come_to_rest |= lease.end_look(now, now, ksmd, |from, to| {
                machine.knob(Knob::SleepMillisecs) == Some(from) && machine.write(Knob::SleepMillisecs, to).is_ok()
            });
        }
        has_come_to_rest
    }

    /// Fills page samples and the forecast into `sample`, where the policy wants them.
    pub fn read_memory(&mut self, sample: &mut Sample) {
        let Some(sampler) = &mut self.sampler else { return };
        let request = sampler.next_request(sample);
        if request == PageSampleRequest::Draw {
            self.places = self.machine.draw_places(SAMPLED);
        }
        let fingerprints = self.places.iter().map(|place| self.machine.print(*place));
        match request {
            PageSampleRequest::Nothing => {}
            PageSampleRequest::ReadPart(part) => {
                if sampler.read_part(part, part.select(fingerprints.clone()), sample.at) {
                    sampler.record_read(fingerprints, sample.at);
                }
            }
            PageSampleRequest::Read => sampler.record_read(fingerprints, sample.at),
            PageSampleRequest::Draw => sampler.record_drawn(fingerprints, sample.at),
        }
        sample.page_samples = sampler.page_samples().map_or(Reading::Absent, Reading::Value);
        if let Some(request) = self.planner.next_request(sample) {
            self.planner.record(Some(self.machine.forecast_merge(request.rate)));
        }
        self.planner.fill(sample);
    }
}

impl KsmHost for SimHost {
    fn sample(&mut self) -> Sample {
        let mut sample = self.sample_kernel();
        self.read_memory(&mut sample);
        sample
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        let (changes, errors) = self.apply_leased(knobs);
        let errors = errors.iter().map(KnobRefusal::to_string).collect();
        ApplyOutcome { changes, errors, waiting: Vec::new() }
    }

    fn enable_page_sampling(&mut self, wanted: bool) {
        if !wanted || !self.has_page_samples {
            self.sampler = None;
        } else {
            self.sampler.get_or_insert_default();
        }
    }

    fn request_forecast(&mut self) {
        self.planner.request();
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        let rest_after = rest_after.filter(|_| self.can_rest);
        if self.can_rest && !self.is_leased {
            self.machine.rest_after(rest_after);
        }
        KsmdWaker::hold(self, until_next, rest_after).err().iter().map(KnobRefusal::to_string).collect()
    }
}

impl KsmdWaker for SimHost {
    type Error = KnobRefusal;

    fn may_lease(&self) -> bool {
        self.is_leased
    }

    fn get(&self, knob: Knob) -> Result<Option<u64>, KnobRefusal> {
        Ok(self.machine.knob(knob))
    }

    fn set(&mut self, knob: Knob, value: u64) -> Result<Option<KnobChange>, KnobRefusal> {
        if ends_lease(knob, value) {
            self.lease = None;
        }
        let Some(old) = self.machine.knob(knob).filter(|old| *old != value) else { return Ok(None) };
        self.machine.write(knob, value)?;
        Ok(Some(KnobChange { knob, old, new: value }))
    }

    /// One that fails does not keep the others from being set, but ksmd is not started after a failure.
    fn apply(&mut self, knobs: &KnobSettings) -> (Vec<KnobChange>, Vec<KnobRefusal>) {
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        for (knob, value) in knobs.writes() {
            if (knob, value) == (Knob::Run, 1) && !errors.is_empty() {
                continue;
            }
            match self.set(knob, value) {
                Ok(change) => changes.extend(change),
                Err(error) => errors.push(error),
            }
        }
        (changes, errors)
    }

    fn can_wake(&mut self) -> bool {
        true
    }

    fn begin_lease(&mut self, rate: ScanRate, value: u64) -> Result<(), KnobRefusal> {
        let completed = Some(self.machine.figures().passes);
        self.lease = Some(LeaseTerms::new(rate, value, completed, self.machine.now()));
        Ok(())
    }

    fn with_lease<T>(&mut self, act: impl FnOnce(&mut LeaseTerms, Duration) -> T) -> Option<T> {
        let now = self.machine.now();
        self.lease.as_mut().map(|lease| act(lease, now))
    }

    /// The simulated write to `run` lets the time of the batch pass.
    fn await_sleep(&mut self, _run: u64) -> Result<(), KnobRefusal> {
        Ok(())
    }
}
