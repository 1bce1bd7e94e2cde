//! Samples KSM and the controller five times a second during a run. It reads nothing else, so as not to disturb
//! the run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use ksmith_core::kernel::{self, Vmstat};

use super::LabError;
use super::usage::{ControllerProcesses, ControllerUsage};
use crate::measure::SeriesPoint;
use ksmith_host::ksm_counts::KsmCounts;
use ksmith_host::ksmd;
use ksmith_host::root::Root;

/// Time between two samples.
const EVERY: Duration = Duration::from_millis(200);

/// The samples of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct RunSamples {
    pub(super) points: Vec<SeriesPoint>,
    pub(super) passes: u64,
    pub(super) controller_rss_bytes: u64,
}

/// A thread that samples until it is stopped.
#[derive(Debug)]
pub(super) struct RunSampler {
    saved: Arc<AtomicU64>,
    end: Sender<()>,
    thread: JoinHandle<Result<RunSamples, LabError>>,
}

impl RunSampler {
    /// Starts the thread. Time counts from `began`.
    pub(super) fn start(measured: ControllerProcesses, began: Instant) -> Result<Self, LabError> {
        let (end, is_ended) = bounded::<()>(0);
        let saved = Arc::new(AtomicU64::new(0));
        let latest = Arc::clone(&saved);
        let mut eye = SamplerState::new(Root::host(), measured)?;
        let watch = move || {
            let mut next = began;
            loop {
                let point = eye.read_point(began, false)?;
                latest.store(point.saved_bytes, Ordering::Relaxed);
                next = Instant::now().max(next + EVERY);
                if is_ended.recv_deadline(next) != Err(RecvTimeoutError::Timeout) {
                    eye.read_point(began, true)?;
                    return Ok(eye.seen);
                }
            }
        };
        let thread = std::thread::Builder::new().name("sampler".to_owned()).spawn(watch);
        Ok(Self { saved, end, thread: thread.map_err(LabError::System)? })
    }

    /// Bytes saved at the newest sample.
    pub(super) fn saved_bytes(&self) -> u64 {
        self.saved.load(Ordering::Relaxed)
    }

    /// Takes a last sample and returns all of them.
    pub(super) fn finish(self) -> Result<RunSamples, LabError> {
        drop(self.end);
        self.thread.join().map_err(|_| LabError::Unseen("the sampling thread panicked".to_owned()))?
    }
}

struct SamplerState {
    root: Root,
    counts: KsmCounts,
    measured: ControllerProcesses,
    ksmd: u32,
    controller: ControllerUsage,
    first: Option<FirstCounters>,
    progress: PassTracker,
    seen: RunSamples,
}

/// The counters at the first sample.
#[derive(Clone, Copy)]
struct FirstCounters {
    ksmd_ns: u64,
    controller: Duration,
    breaks: u64,
    passes: u64,
}

/// The start of the last complete pass. Each page that the kernel counts as merged was merged at some moment
/// since.
#[derive(Debug, Default)]
pub(crate) struct PassTracker {
    ended: u64,
    visited: u64,
    /// True if ksmd has visited no page since the last pass ended.
    stands: bool,
    /// Start of the pass under way; the field below holds that of the pass before.
    began: f64,
    began_before: f64,
}

impl PassTracker {
    pub(crate) fn record_counters(&mut self, at: f64, ended: u64, visited: u64) -> f64 {
        if ended != self.ended {
            self.began_before = if ended == self.ended + 1 { self.began } else { at };
            self.began = at;
            self.stands = true;
        } else if visited != self.visited {
            self.stands = false;
        } else if self.stands {
            self.began = at;
        }
        (self.ended, self.visited) = (ended, visited);
        self.began_before
    }
}

impl SamplerState {
    fn new(root: Root, measured: ControllerProcesses) -> Result<Self, LabError> {
        let ksmd = ksmd::pid(&root).ok_or_else(|| LabError::Unseen("there is no ksmd in /proc".to_owned()))?;
        Ok(Self {
            counts: KsmCounts::new(&root),
            root,
            measured,
            ksmd,
            controller: ControllerUsage::default(),
            first: None,
            progress: PassTracker::default(),
            seen: RunSamples::default(),
        })
    }

    fn read_point(&mut self, began: Instant, is_last: bool) -> Result<SeriesPoint, LabError> {
        let page = rustix::param::page_size() as u64;
        let ksmd_ns = self.read(&format!("proc/{}/schedstat", self.ksmd), |t| kernel::cpu_ns(t).ok())?;
        let merged = self.counts.read_merged();
        if merged.pages_sharing.get().is_none() {
            return Err(LabError::Unseen("/sys/kernel/mm/ksm/pages_sharing can't be read".to_owned()));
        }
        let passes = self.read("sys/kernel/mm/ksm/full_scans", |t| kernel::number(t).ok())?;
        let visited = self.read("sys/kernel/mm/ksm/pages_scanned", |t| kernel::number(t).ok()).unwrap_or(0);
        let breaks = self.read("proc/vmstat", |t| Vmstat::parse(t).ok())?.cow_ksm.unwrap_or(0);
        let at = began.elapsed().as_secs_f64();
        // A group is found by reading all of /proc, which would disturb the run at every sample. Once a second
        // suffices.
        let is_due = is_last
            || !matches!(self.measured, ControllerProcesses::Group(_))
            || self.seen.points.len().is_multiple_of(5);
        if is_due {
            self.controller = ControllerUsage::now(&self.root, self.measured);
        }
        let controller = self.controller;
        let first =
            *self.first.get_or_insert(FirstCounters { ksmd_ns, controller: controller.cpu, breaks, passes });
        let point = SeriesPoint {
            at,
            saved_bytes: merged.saved_pages() * page,
            known_since: self.progress.record_counters(at, passes, visited),
            ksmd_cpu_seconds: Duration::from_nanos(ksmd_ns.saturating_sub(first.ksmd_ns)).as_secs_f64(),
            controller_cpu_seconds: controller.cpu.saturating_sub(first.controller).as_secs_f64(),
            breaks: breaks.saturating_sub(first.breaks),
        };
        let seen = &mut self.seen;
        seen.points.push(point);
        seen.passes = passes.saturating_sub(first.passes);
        seen.controller_rss_bytes = seen.controller_rss_bytes.max(controller.rss_bytes);
        Ok(point)
    }

    fn read<T>(&self, file: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T, LabError> {
        let text = self.root.text(file);
        let unseen = || LabError::Unseen(format!("/{file} is {}", text.as_ref().map(|_| "not what it should be")));
        text.value().and_then(|text| parse(text)).ok_or_else(unseen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_counts_date_from_the_start_of_the_last_complete_pass() {
        let mut passes = PassTracker::default();
        assert_eq!(passes.record_counters(1.0, 0, 0), 0.0);
        assert_eq!(passes.record_counters(2.0, 0, 50), 0.0);
        assert_eq!(passes.record_counters(3.0, 1, 100), 0.0, "the first pass began at 0");
        // ksmd is parked where the pass ended, and begins the next at 9.
        assert_eq!(passes.record_counters(9.0, 1, 100), 0.0);
        assert_eq!(passes.record_counters(10.0, 1, 150), 0.0);
        assert_eq!(passes.record_counters(11.0, 2, 200), 9.0);
        // Parked in the middle of a pass: that began when the one before ended.
        assert_eq!(passes.record_counters(12.0, 2, 210), 9.0);
        assert_eq!(passes.record_counters(20.0, 2, 210), 9.0);
        assert_eq!(passes.record_counters(21.0, 3, 300), 11.0);
        assert_eq!(passes.record_counters(22.0, 9, 900), 22.0, "several short ones");
    }
}
