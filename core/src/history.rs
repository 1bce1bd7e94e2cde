//! The history: ksmd's cost, its passes, and their savings, from all samples so far.

use std::collections::VecDeque;
use std::time::Duration;

use crate::kernel::{CpuTimes, Ksm, RunState};
use crate::sample::Sample;

/// One pass of ksmd, or several that ended between two samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScanPass {
    /// The time of the sample that saw its end.
    pub ended: Duration,
    /// The number of passes that ended between that sample and the one before. Over 1 when they are short.
    pub count: u64,
    /// Wall time since the end of the pass before.
    pub took: Duration,
    /// CPU time of ksmd since then.
    pub ksmd_cpu: Duration,
    /// Bytes newly saved since then; negative when more diverged than merged.
    pub saved_bytes: i64,
    /// Pages visited since then. `None` before Linux 6.6.
    pub visited: Option<u64>,
    /// True if `smart_scan` was off (or not there) at every sample since the pass before: every page was visited.
    pub clean: bool,
}

impl ScanPass {
    /// Returns the bytes newly saved per second of ksmd's CPU. 0 where it used none.
    pub fn yield_per_cpu_second(&self) -> f64 {
        let seconds = self.ksmd_cpu.as_secs_f64();
        if seconds > 0.0 { self.saved_bytes as f64 / seconds } else { 0.0 }
    }
}

/// Figures at the end of a pass, from which the next one is derived.
#[derive(Debug, Clone, Copy, Default)]
struct PassMark {
    at: Duration,
    full_scans: u64,
    ksmd_cpu_ns: u64,
    saved_bytes: u64,
    visited: Option<u64>,
    clean: bool,
}

/// Figures of one sample that rates are derived from.
#[derive(Debug, Clone, Copy, Default)]
struct RatePoint {
    at: Duration,
    ksmd_cpu_ns: Option<u64>,
    visited: Option<u64>,
    runs: bool,
}

/// ksmd's batches since its sleep was last measured, with the configured and the measured sleep.
#[derive(Debug, Clone, Copy, Default)]
struct SleepSums {
    batches: f64,
    told_ns: f64,
    slept_ns: f64,
}

/// Everything derived from the samples so far that more than one policy needs.
#[derive(Debug, Clone)]
pub struct PassHistory {
    passes: VecDeque<ScanPass>,
    /// The last passes that visited every page.
    clean_passes: VecDeque<ScanPass>,
    mark: Option<PassMark>,
    smart_passes: u64,
    last: Option<RatePoint>,
    ns_per_page: f64,
    ksmd_share: Option<f64>,
    sleeps: SleepSums,
    overslept_ns: f64,
    spare_cpus: Option<f64>,
    nice_cpus: f64,
    /// All CPUs' times and ksmd's, at the beginning of the interval that is being measured.
    last_cpu: Option<(CpuTimes, Option<u64>)>,
    recent_stall_percent: f32,
    /// The time and the CPU stall in microseconds at the beginning of the interval that is being measured.
    last_stall: Option<(Duration, u64)>,
}

/// The cost per page before anything was measured: a visit to an unshared page on a 2-core AMD EPYC VM.
const ASSUMED_NS_PER_PAGE: f64 = 4000.0;

/// A clock tick of /proc: `USER_HZ` is 100 everywhere.
const TICK_NS: f64 = 1e7;

/// Clock ticks per CPU, of 10 ms, over which the CPUs' use is measured: one or two would be a matter of chance.
const FEWEST_TICKS: u64 = 20;

/// The interval over which CPU stalls are measured: the kernel adds them up every two seconds (`PSI_FREQ` in
/// `kernel/sched/psi.c`).
const STALL_WINDOW: Duration = Duration::from_millis(2_100);

/// The least number of batches over which ksmd's sleep is measured.
const FEWEST_BATCHES: f64 = 4.0;
/// The number of batches that replaces half of the average.
const HALF_BATCHES: f64 = 20.0;

/// The most by which ksmd is taken to oversleep: what keeps it longer is a busy CPU, which may be idle the next
/// moment.
const MOST_OVERSLEPT_NS: f64 = 4e7;

/// Passes that are remembered.
const PASSES_KEPT: usize = 32;

/// Passes that visited every page, remembered apart: there may be many others since.
const CLEAN_PASSES_KEPT: usize = 4;

impl Default for PassHistory {
    fn default() -> Self {
        Self {
            passes: VecDeque::with_capacity(PASSES_KEPT),
            clean_passes: VecDeque::with_capacity(CLEAN_PASSES_KEPT),
            mark: None,
            smart_passes: 0,
            last: None,
            ns_per_page: ASSUMED_NS_PER_PAGE,
            ksmd_share: None,
            sleeps: SleepSums::default(),
            overslept_ns: 0.0,
            spare_cpus: None,
            nice_cpus: 0.0,
            last_cpu: None,
            recent_stall_percent: 100.0,
            last_stall: None,
        }
    }
}

impl PassHistory {
    /// Takes in the next sample.
    pub fn push(&mut self, sample: &Sample) {
        self.push_rates(sample);
        self.push_pass(sample);
        if let Some(cpu) = sample.host.cpu.get() {
            self.push_cpu(cpu, sample.ksmd_cpu_ns.get());
        }
        if let Some(total_us) = sample.host.cpu_pressure.value().and_then(|psi| psi.some.total_us) {
            self.push_stall(sample.at, total_us);
        }
    }

    fn push_stall(&mut self, at: Duration, total_us: u64) {
        let (began, before_us) = *self.last_stall.get_or_insert((at, total_us));
        let elapsed = at.saturating_sub(began);
        if elapsed >= STALL_WINDOW {
            let waited_us = total_us.saturating_sub(before_us) as f64;
            self.recent_stall_percent = (waited_us / elapsed.as_micros() as f64 * 100.0) as f32;
            self.last_stall = Some((at, total_us));
        }
    }

    fn push_cpu(&mut self, cpu: CpuTimes, ksmd_ns: Option<u64>) {
        let Some((before, ksmd_before)) = self.last_cpu else {
            self.last_cpu = Some((cpu, ksmd_ns));
            return;
        };
        let ticks = |times: CpuTimes| times.idle_ticks.saturating_add(times.busy_ticks);
        let passed = ticks(cpu).saturating_sub(ticks(before)) / u64::from(cpu.cpus.max(1));
        if passed < FEWEST_TICKS {
            return;
        }
        let (idle, nice) = (cpu.idle_cpus_since(&before), cpu.nice_cpus_since(&before).unwrap_or(0.0));
        let ksmd = ksmd_ns
            .zip(ksmd_before)
            .map_or(0.0, |(now, before)| now.saturating_sub(before) as f64 / (passed as f64 * TICK_NS));
        self.spare_cpus = idle.map(|idle| idle + nice + ksmd);
        self.nice_cpus = nice;
        self.last_cpu = Some((cpu, ksmd_ns));
    }

    fn push_rates(&mut self, sample: &Sample) {
        let point = RatePoint {
            at: sample.at,
            ksmd_cpu_ns: sample.ksmd_cpu_ns.get(),
            visited: sample.ksm.pages_scanned.get(),
            runs: sample.ksm.run_state() == Some(RunState::Running),
        };
        if let Some(last) = self.last {
            let cpu = point.ksmd_cpu_ns.zip(last.ksmd_cpu_ns).map(|(now, before)| now.saturating_sub(before));
            let elapsed = point.at.saturating_sub(last.at);
            if let Some(cpu) = cpu
                && !elapsed.is_zero()
            {
                self.ksmd_share = Some(cpu as f64 / elapsed.as_nanos() as f64);
            }
            let visited = point.visited.zip(last.visited).map(|(now, before)| now.saturating_sub(before));
            if let (Some(cpu), Some(visited)) = (cpu, visited) {
                self.learn_cost(cpu, visited);
                if last.runs && point.runs {
                    self.learn_sleep(elapsed, cpu, visited, &sample.ksm);
                } else {
                    self.sleeps = SleepSums::default();
                }
            }
        }
        self.last = Some(point);
    }

    /// Updates the exponential average of the cost per page, weighted by pages: a thousand pages replace a third of the
    /// old figure.
    fn learn_cost(&mut self, cpu_ns: u64, visited: u64) {
        if visited < 16 || cpu_ns == 0 {
            return;
        }
        let weight = visited as f64 / (visited as f64 + 2000.0);
        let seen = cpu_ns as f64 / visited as f64;
        self.ns_per_page += weight * (seen - self.ns_per_page);
    }

    /// Updates the average by which ksmd oversleeps. Settings are made right after a sample, so those that the next one
    /// finds were in force all the time.
    fn learn_sleep(&mut self, elapsed: Duration, cpu_ns: u64, visited: u64, ksm: &Ksm) {
        let (Some(pages), Some(sleep_ms)) = (ksm.pages_to_scan.get(), ksm.sleep_millisecs.get()) else { return };
        if sleep_ms == 0 {
            return;
        }
        let batches = visited as f64 / pages.max(1) as f64;
        self.sleeps.batches += batches;
        self.sleeps.told_ns += batches * sleep_ms as f64 * 1e6;
        self.sleeps.slept_ns += elapsed.as_nanos() as f64 - cpu_ns as f64;
        if self.sleeps.batches >= FEWEST_BATCHES {
            let SleepSums { batches, told_ns, slept_ns } = std::mem::take(&mut self.sleeps);
            let over_ns = ((slept_ns - told_ns) / batches).clamp(-MOST_OVERSLEPT_NS, MOST_OVERSLEPT_NS);
            self.overslept_ns += batches / (batches + HALF_BATCHES) * (over_ns - self.overslept_ns);
        }
    }

    fn push_pass(&mut self, sample: &Sample) {
        let ksm = &sample.ksm;
        let Some(full_scans) = ksm.full_scans.get() else { return };
        let clean_now = ksm.smart_scan.get().unwrap_or(0) == 0;
        let here = PassMark {
            at: sample.at,
            full_scans,
            ksmd_cpu_ns: sample.ksmd_cpu_ns.get().unwrap_or(0),
            saved_bytes: ksm.saved_pages().saturating_mul(sample.page_size),
            visited: ksm.pages_scanned.get(),
            clean: clean_now,
        };
        let Some(mark) = &mut self.mark else {
            self.mark = Some(here);
            return;
        };
        mark.clean &= clean_now;
        if full_scans == mark.full_scans {
            return;
        }
        // `run` = 2 resets the counter: earlier figures do not compare.
        if full_scans < mark.full_scans {
            self.smart_passes = 0;
            self.mark = Some(here);
            return;
        }
        let pass = ScanPass {
            ended: sample.at,
            count: full_scans - mark.full_scans,
            took: sample.at.saturating_sub(mark.at),
            ksmd_cpu: Duration::from_nanos(here.ksmd_cpu_ns.saturating_sub(mark.ksmd_cpu_ns)),
            saved_bytes: signed_difference(here.saved_bytes, mark.saved_bytes),
            visited: here.visited.zip(mark.visited).map(|(now, before)| now.saturating_sub(before)),
            clean: mark.clean,
        };
        if !pass.clean {
            self.smart_passes = self.smart_passes.saturating_add(pass.count);
        }
        if self.passes.len() == PASSES_KEPT {
            self.passes.pop_front();
        }
        self.passes.push_back(pass);
        if pass.clean {
            if self.clean_passes.len() == CLEAN_PASSES_KEPT {
                self.clean_passes.pop_front();
            }
            self.clean_passes.push_back(pass);
        }
        self.mark = Some(here);
    }

    /// Returns the passes that ended, oldest first.
    pub fn passes(&self) -> impl DoubleEndedIterator<Item = &ScanPass> {
        self.passes.iter()
    }

    /// The last passes that visited every page, oldest first.
    pub fn clean_passes(&self) -> impl Iterator<Item = &ScanPass> {
        self.clean_passes.iter()
    }

    /// Returns the number of passes that ended with `smart_scan` on at any time, as far as samples show. Writing 2 to
    /// `run` makes the kernel forget them.
    pub fn smart_passes(&self) -> u64 {
        self.smart_passes
    }

    /// Returns the pass that ended last.
    pub fn last_pass(&self) -> Option<&ScanPass> {
        self.passes.back()
    }

    /// Returns the exponential average of ksmd's cost per visited page, in nanoseconds.
    pub fn ns_per_page(&self) -> f64 {
        self.ns_per_page
    }

    /// Returns the part of one CPU that ksmd used between the last two samples.
    pub fn ksmd_share(&self) -> Option<f64> {
        self.ksmd_share
    }

    /// Returns the average time by which ksmd oversleeps between two batches: the kernel rounds up to its clock's
    /// ticks, and other tasks may be on the CPU when it wakes up.
    pub fn oversleeps(&self) -> Duration {
        Duration::from_nanos(self.overslept_ns.max(0.0) as u64)
    }

    /// Returns the CPUs that ksmd can use without delaying programs of normal priority: those that were idle, ran ksmd,
    /// or ran low-priority programs. Measured over at least the last fifth of a second.
    pub fn spare_cpus(&self) -> Option<f64> {
        self.spare_cpus
    }

    /// Returns the per cent of the time in which work waited for a CPU, measured over at least the last two seconds:
    /// over 100 where the kernel adds up more at once, and 100 before it is known.
    pub fn recent_cpu_stall_percent(&self) -> f32 {
        self.recent_stall_percent
    }

    /// Returns the CPUs that ran low-priority programs in the interval of [`Self::spare_cpus`].
    pub fn nice_cpus(&self) -> f64 {
        self.nice_cpus
    }
}

fn signed_difference(now: u64, before: u64) -> i64 {
    let difference = i128::from(now) - i128::from(before);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Psi, StallTimes};
    use crate::reading::Reading;

    fn sample(at_ms: u64, full_scans: u64, sharing: u64, scanned: u64, cpu_ns: u64, smart: u64) -> Sample {
        let mut sample = Sample { at: Duration::from_millis(at_ms), page_size: 4096, ..Sample::default() };
        sample.ksm.full_scans = Reading::Value(full_scans);
        sample.ksm.pages_sharing = Reading::Value(sharing);
        sample.ksm.pages_scanned = Reading::Value(scanned);
        sample.ksm.smart_scan = Reading::Value(smart);
        sample.ksmd_cpu_ns = Reading::Value(cpu_ns);
        sample
    }

    #[test]
    fn a_pass_is_counted_from_the_end_of_the_one_before() {
        let mut history = PassHistory::default();
        history.push(&sample(0, 4, 0, 0, 0, 0));
        history.push(&sample(500, 4, 100, 500, 1_000_000, 0));
        assert_eq!(history.last_pass(), None);
        history.push(&sample(1000, 5, 200, 1000, 2_000_000, 0));
        let pass = history.last_pass().unwrap();
        assert_eq!(pass.took, Duration::from_secs(1));
        assert_eq!(pass.saved_bytes, 200 * 4096);
        assert_eq!(pass.visited, Some(1000));
        assert!(pass.clean);
        assert_eq!(pass.yield_per_cpu_second(), 200.0 * 4096.0 / 0.002);
    }

    #[test]
    fn a_pass_that_was_partly_smart_is_not_clean() {
        let mut history = PassHistory::default();
        history.push(&sample(0, 4, 0, 0, 0, 0));
        history.push(&sample(500, 4, 0, 500, 0, 1));
        history.push(&sample(1000, 5, 0, 1000, 0, 0));
        assert!(!history.last_pass().unwrap().clean);
        assert_eq!(history.smart_passes(), 1);
        history.push(&sample(2000, 6, 0, 1000, 0, 0));
        assert!(history.last_pass().unwrap().clean);
        assert_eq!(history.smart_passes(), 1);
        history.push(&sample(3000, 0, 0, 1000, 0, 0));
        assert_eq!(history.smart_passes(), 0, "the kernel has forgotten all pages");
    }

    #[test]
    fn an_unmerge_resets_the_counter_and_makes_no_pass() {
        let mut history = PassHistory::default();
        history.push(&sample(0, 40, 100, 0, 0, 0));
        history.push(&sample(500, 0, 0, 0, 0, 0));
        assert_eq!(history.last_pass(), None);
    }

    #[test]
    fn it_is_learned_how_long_ksmd_really_sleeps() {
        let mut history = PassHistory::default();
        // 40 batches of 1 ms CPU time in a second: it slept for 24 ms each time.
        let second = |n: u64, run, sleep_ms| {
            let mut sample = sample(1000 * n, 0, 0, 4000 * n, 40_000_000 * n, 0);
            sample.ksm.run = Reading::Value(run);
            sample.ksm.pages_to_scan = Reading::Value(100);
            sample.ksm.sleep_millisecs = Reading::Value(sleep_ms);
            sample
        };
        history.push(&second(0, 0, 20));
        history.push(&second(1, 1, 20));
        assert_eq!(history.oversleeps(), Duration::ZERO, "it may have been started in between");
        for n in 2..10 {
            history.push(&second(n, 1, 20));
        }
        let over = history.oversleeps().as_secs_f64() * 1e3;
        assert!((over - 4.0).abs() < 0.1, "{over} ms");
        for n in 10..20 {
            history.push(&second(n, 1, 30));
        }
        assert_eq!(history.oversleeps(), Duration::ZERO, "not less than it was told");
        for n in 20..30 {
            history.push(&second(n, 1, 1));
        }
        assert!(history.oversleeps() <= Duration::from_nanos(MOST_OVERSLEPT_NS as u64));
    }

    #[test]
    fn how_long_work_waits_for_a_cpu_is_that_of_the_last_seconds() {
        let mut history = PassHistory::default();
        let mut stall = |at_ms, total_us| {
            let mut now = sample(at_ms, 0, 0, 0, 0, 0);
            let some = StallTimes { total_us: Some(total_us), ..StallTimes::default() };
            now.host.cpu_pressure = Reading::Value(Psi { some });
            history.push(&now);
            history.recent_cpu_stall_percent()
        };
        assert_eq!(stall(0, 1_000_000), 100.0, "it is not known");
        assert_eq!(stall(2_500, 2_250_000), 50.0);
        assert_eq!(stall(3_000, 2_250_000), 50.0, "too soon to tell");
        assert_eq!(stall(5_000, 2_250_000), 0.0, "it waits no more");
    }

    #[test]
    fn cost_is_learned_from_what_ksmd_used() {
        let mut history = PassHistory::default();
        history.push(&sample(0, 0, 0, 0, 0, 0));
        history.push(&sample(1000, 0, 0, 1_000_000, 1_300_000_000, 0));
        assert!((history.ns_per_page() - 1300.0).abs() < 10.0);
        assert!((history.ksmd_share().unwrap() - 1.3).abs() < 1e-9);
    }
}
