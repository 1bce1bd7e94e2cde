//! The outcome of a fleet's story. The bench `hour`, its test and the tests of trials include this file.

#![allow(dead_code, reason = "each of them uses a part")]

use std::time::Duration;

use super::{Policy, PolicyLimits, PolicyTrial, SimFleet, TrialMoment};

/// The outcome of a fleet's story under one policy.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetOutcome {
    /// The figures over time, at equal distances, from the start to the end.
    pub moments: Vec<TrialMoment>,
    /// Turns that the policy took.
    pub turns: u64,
}

impl FleetOutcome {
    /// Plays a fleet's story under `policy`, with memory in runs of `run_pages` pages. `watch` sees each moment and
    /// says whether to go on.
    pub fn from_fleet(
        fleet: &SimFleet,
        run_pages: u32,
        policy: Box<dyn Policy>,
        limits: PolicyLimits,
        watch: impl FnMut(&TrialMoment) -> bool,
    ) -> Self {
        Self::of_trial(fleet, PolicyTrial::new(fleet.machine(run_pages), policy, limits), watch)
    }

    /// Plays a fleet's story on in a trial of it.
    pub fn of_trial(fleet: &SimFleet, mut trial: PolicyTrial, mut watch: impl FnMut(&TrialMoment) -> bool) -> Self {
        let mut moments = vec![trial.moment()];
        while trial.machine().now() < fleet.duration {
            let end = (trial.machine().now() + STEP).min(fleet.duration);
            trial.run_until(end);
            let moment = trial.moment();
            moments.push(moment);
            if !watch(&moment) {
                break;
            }
        }
        Self { moments, turns: trial.turns() }
    }

    fn integral(&self, bytes: impl Fn(&TrialMoment) -> u64) -> f64 {
        let pieces = self.moments.windows(2);
        let areas = pieces.map(|pair| bytes(&pair[0]) as f64 * (pair[1].at - pair[0].at).as_secs_f64());
        areas.sum::<f64>() / (1 << 30) as f64
    }

    /// Saved memory over time, in GiB-s.
    pub fn gib_seconds(&self) -> f64 {
        self.integral(|moment| moment.saved_bytes)
    }

    /// Memory that could be saved over time, in GiB-s.
    pub fn attainable_gib_seconds(&self) -> f64 {
        self.integral(|moment| moment.attainable_bytes)
    }

    /// The part of what could be saved over time that KSM's gauges count as saved.
    pub fn counted_share(&self) -> f64 {
        self.integral(|moment| moment.counted_bytes) / self.attainable_gib_seconds().max(f64::MIN_POSITIVE)
    }

    /// The part of what could be saved over time that was saved.
    pub fn share(&self) -> f64 {
        self.gib_seconds() / self.attainable_gib_seconds().max(f64::MIN_POSITIVE)
    }

    /// The part of a CPU that ksmd used from `from` to the end.
    pub fn ksmd_share(&self, from: Duration) -> f64 {
        let start = self.moments.iter().find(|moment| moment.at >= from);
        let (Some(start), Some(end)) = (start, self.moments.last()) else { return 0.0 };
        let seconds = (end.at - start.at).as_secs_f64();
        (end.ksmd_cpu - start.ksmd_cpu).as_secs_f64() / seconds.max(f64::MIN_POSITIVE)
    }

    /// Complete passes of ksmd.
    pub fn passes(&self) -> u64 {
        self.passes_since(Duration::ZERO)
    }

    /// Complete passes of ksmd from `from` to the end.
    pub fn passes_since(&self, from: Duration) -> u64 {
        let start = self.moments.iter().find(|moment| moment.at >= from);
        start.zip(self.moments.last()).map_or(0, |(start, end)| end.passes - start.passes)
    }
}

/// Time between two moments.
const STEP: Duration = Duration::from_secs(1);
