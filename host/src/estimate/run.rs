//! The run of one estimate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ksmith_core::kernel::IneligibleReason;
use ksmith_core::merge_forecast::ForecastRequest;
use ksmith_core::sample::HostForecast;
use ksmith_core::sketch::{MergeRules, SavingsOutcome};

use super::job::EstimateJob;
use super::report::{EstimateReport, GuestReport, HugePagesReport, MatrixReport, SkippedReport};
use super::running::RunningProcesses;
use super::sums::GuestScanSums;
use super::{exact, sample, sketch};
use crate::memory::error::{EstimateError, UnreadableProcess};
use crate::memory::frames::FrameTable;
use crate::memory::nodes::has_several_nodes;
use crate::memory::pace::ReadPace;
use crate::memory::pinned::PinningCheck;
use crate::memory::progress::ProgressMeter;
use crate::memory::salt::FingerprintSalt;
use crate::memory::scan::{ScanContext, ScanTally, cpu_seconds, page_size, unexpected};
use crate::memory::target::{TargetSelection, TargetSet};
use crate::merge_forecast::{ForecastReader, ForecastSpace};
use crate::root::Root;

/// The reading mode: how much to read and to remember.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EstimateMode {
    /// Reads and remembers everything.
    Exact,
    /// Reads everything and remembers a bounded part.
    Sketch,
    /// Reads each page with this probability.
    Sample(f64),
}

impl EstimateMode {
    /// Returns the name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Sketch => "sketch",
            Self::Sample(_) => "sample",
        }
    }
}

/// Options of an estimate.
#[derive(Debug, Clone)]
pub struct EstimateOptions {
    /// The processes to read.
    pub selection: TargetSelection,
    /// The mode of reading.
    pub mode: EstimateMode,
    /// The pause before a second pass, which finds changing pages; `None` for a single pass.
    pub again: Option<Duration>,
    /// Number of reading threads.
    pub threads: usize,
    /// Bytes per second, all threads together.
    pub max_rate: Option<u64>,
    /// True to estimate also what merging within NUMA nodes saves, in sketch mode. Each page's node is asked for.
    pub tells_nodes: bool,
    /// True to compare guests in pairs.
    pub wants_pairs: bool,
    /// The progress meter.
    pub meter: Option<Arc<dyn ProgressMeter>>,
    /// KSM's settings that decide the savings.
    pub rules: MergeRules,
    /// The salt of the fingerprints and of the drawn pages; `None` for a random one.
    pub salt: Option<FingerprintSalt>,
}

impl EstimateOptions {
    /// Creates the default options for these processes.
    pub fn new(selection: TargetSelection) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            selection,
            mode: EstimateMode::Sketch,
            again: None,
            // Half of the cores, and no more than saturate the memory of most machines.
            threads: (cores / 2).clamp(1, 8),
            max_rate: None,
            tells_nodes: has_several_nodes(),
            wants_pairs: false,
            meter: None,
            rules: MergeRules::default(),
            salt: None,
        }
    }
}

/// The result of any mode.
struct ModeResult {
    outcome: SavingsOutcome,
    tallies: Vec<ScanTally>,
    changing: Vec<u64>,
    read: u64,
    sketch_bytes: Option<u64>,
    /// The part of the savings that merging within NUMA nodes has, 0 to 1; `None` if it was not estimated.
    within_nodes: Option<f64>,
}

/// Runs an estimate.
///
/// # Errors
/// Nothing can be read, or the options contradict each other.
pub fn estimate(options: &EstimateOptions) -> Result<EstimateReport, EstimateError> {
    if let EstimateMode::Sample(rate) = options.mode {
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(EstimateError::Usage("a sample takes more than 0 and at most 100 % of the pages"));
        }
        if options.wants_pairs {
            return Err(EstimateError::Usage(
                "a sample can't tell which guests are alike: use --sketch or --exact",
            ));
        }
    }
    let started = Instant::now();
    let cpu_before = cpu_seconds();
    let found = TargetSet::select(&options.selection)?;
    let salt = match &options.salt {
        Some(salt) => salt.clone(),
        None => FingerprintSalt::new().map_err(unexpected("get random numbers"))?,
    };
    // Before anything is read, which takes CPUs from them.
    let running = RunningProcesses::observe(&Root::host(), found.targets.iter().map(|target| target.pid));
    let job = EstimateJob {
        context: ScanContext {
            salt,
            pace: ReadPace::new(options.max_rate),
            frames: FrameTable::open(),
            quiet: PinningCheck::new(),
            page_size: page_size(),
        },
        targets: &found.targets,
        guests: found.guests.len(),
        rules: options.rules,
        threads: options.threads.max(1),
        again: options.again,
        wants_pairs: options.wants_pairs,
        tells_nodes: options.tells_nodes,
        meter: options.meter.as_deref(),
    };
    let mut result = match options.mode {
        EstimateMode::Exact => {
            let exact::ExactResult { outcome, tallies, changing, read } = exact::run(&job);
            ModeResult { outcome, tallies, changing, read, sketch_bytes: None, within_nodes: None }
        }
        EstimateMode::Sketch => {
            let sketch::SketchResult { outcome, tallies, changing, read, sketch_bytes, within_nodes } =
                sketch::run(&job);
            ModeResult { outcome, tallies, changing, read, sketch_bytes: Some(sketch_bytes), within_nodes }
        }
        EstimateMode::Sample(rate) => {
            let sample::SampleResult { outcome, tallies, changing, read } = sample::run(&job, rate);
            ModeResult { outcome, tallies, changing, read, sketch_bytes: None, within_nodes: None }
        }
    };
    let sums = guest_sums(&job, options, &mut result);
    let size = job.context.page_size;
    let guests: Vec<GuestReport> = found
        .guests
        .iter()
        .zip(&result.outcome.guests)
        .zip(&sums)
        .map(|((guest, outcome), sums)| {
            let pid = match guest.pids[..] {
                [pid] => Some(pid),
                _ => None,
            };
            GuestReport::new(guest.name.to_string(), pid, guest.pids.clone(), outcome, sums, size)
        })
        .collect();
    let mut all = GuestScanSums { looked_twice: options.again.is_some(), ..GuestScanSums::default() };
    for sums in &sums {
        all.add(sums);
    }
    let mut guests = guests;
    for (report, (outcome, sums)) in guests.iter_mut().zip(result.outcome.guests.iter().zip(&sums)) {
        report.weigh(&sums.weigh(outcome, size));
    }
    let whole = all.weigh(&result.outcome.total, size);
    let mut total = GuestReport::new("total".to_owned(), None, Vec::new(), &result.outcome.total, &all, size);
    total.weigh(&whole);
    let advice_to_fold = total.advice_to_fold();
    // Its pages are read at once, at no rate.
    let forecast = if options.max_rate.is_none() { forecast(&job, all.huge_bytes) } else { None };
    if let Some(forecast) = &forecast {
        total.huge_pages = Some(HugePagesReport::new(&forecast.total));
        for guest in &mut guests {
            let parts = guest.pids.iter().filter_map(|pid| forecast.of_process(*pid).copied());
            guest.huge_pages = parts.reduce(|sum, part| sum.plus(&part)).as_ref().map(HugePagesReport::new);
        }
    }
    let exited = found.targets.iter().filter(|target| target.has_exited());
    let exited =
        exited.map(|target| SkippedReport { pid: target.pid, reason: UnreadableProcess::Exited.to_string() });
    let skipped = found.skipped.iter().map(|it| SkippedReport { pid: it.pid, reason: it.why.to_string() });
    let names = guests.iter().map(|guest| match guest.pid {
        Some(pid) if guests.iter().filter(|other| other.name == guest.name).count() > 1 => {
            format!("{} {pid}", guest.name)
        }
        _ => guest.name.clone(),
    });
    let names: Vec<String> = names.collect();
    Ok(EstimateReport {
        mode: options.mode.name(),
        rate: match options.mode {
            EstimateMode::Sample(rate) => Some(rate),
            _ => None,
        },
        huge_pages: total.huge_pages,
        running: running.map(|running| running.judge(&total)),
        within_nodes_saved_bytes: result.within_nodes.map(|part| scale_savings(total.expected_saved_bytes, part)),
        matrix: result.outcome.pairs.as_ref().map(|pairs| MatrixReport::new(names, pairs, size)),
        guests,
        total,
        read_bytes: result.read * size,
        seconds: started.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu_before,
        sketch_bytes: result.sketch_bytes,
        advice: whole.advice,
        ksmd_cpu_seconds_per_day: whole.keep_cpu_seconds_per_day,
        verdict: match advice_to_fold {
            Some(advice) => format!("{whole} {advice}"),
            None => whole.to_string(),
        },
        skipped: skipped.chain(exited).collect(),
    })
}

/// Returns a part of the savings, given from 0 to 1, in bytes.
fn scale_savings(saved_bytes: u64, part: f64) -> u64 {
    (saved_bytes as f64 * part).round() as u64
}

/// Forecasts the splits of huge pages.
fn forecast(job: &EstimateJob<'_>, huge_bytes: u64) -> Option<HostForecast> {
    if huge_bytes == 0 {
        return None;
    }
    let living = || job.targets.iter().filter(|target| !target.has_exited());
    let spaces: Vec<ForecastSpace> = living()
        .map(|target| ForecastSpace { pid: target.pid, stretches: target.memory.stretches.clone() })
        .collect();
    let bytes = living().map(|target| target.memory.anonymous_bytes).sum();
    let request = ForecastRequest::of_memory(bytes, job.context.page_size);
    let mut reader = ForecastReader::new();
    if !reader.tells_huge_pages() {
        return None;
    }
    Some(reader.forecast(&spaces, request.rate, bytes, job.context.page_size))
}

/// Sums the other figures of each guest's targets, and adds the zero pages that KSM has already merged.
fn guest_sums(job: &EstimateJob<'_>, options: &EstimateOptions, found: &mut ModeResult) -> Vec<GuestScanSums> {
    let mut sums = vec![GuestScanSums::default(); job.guests];
    let sees_frames = job.context.frames.are_visible();
    for (target, tally) in job.targets.iter().zip(&found.tallies) {
        let guest = target.guest as usize;
        let Some(sums) = sums.get_mut(guest).filter(|_| !target.has_exited()) else { continue };
        let ksm = &target.memory.ksm;
        let zero = ksm.zero_pages.unwrap_or(0);
        sums.merged_zero += zero;
        // A sample sees too few merged pages to count them, and the kernel counts them anyhow.
        let is_counted = sees_frames && !matches!(options.mode, EstimateMode::Sample(_));
        sums.merged += zero + if is_counted { tally.merged } else { ksm.merging_pages.unwrap_or(0) };
        sums.is_mergeable |= target.memory.is_mergeable;
        sums.huge_bytes += target.memory.huge_bytes;
        for (&reason, bytes) in &target.memory.ineligible {
            *sums.ineligible.entry(reason).or_default() += bytes;
        }
        let forked = match options.mode {
            EstimateMode::Sample(rate) => (tally.forked as f64 / rate) as u64,
            EstimateMode::Exact | EstimateMode::Sketch => tally.forked,
        };
        *sums.ineligible.entry(IneligibleReason::Forked).or_default() += forked * job.context.page_size;
        found.outcome.add_merged_zero_pages(guest, zero);
    }
    for ((sums, guest), changing) in sums.iter_mut().zip(&found.outcome.guests).zip(&found.changing) {
        sums.changing = *changing;
        sums.looked_twice = options.again.is_some();
        sums.leaving = if options.rules.use_zero_pages { guest.zero.round() as u64 } else { 0 };
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_are_scaled_by_the_part_within_nodes() {
        let scaled = [0.0, 0.25, 2.0 / 3.0, 1.0].map(|part| scale_savings(3 << 30, part));
        assert_eq!(scaled, [0, 3 << 28, 2 << 30, 3 << 30]);
    }
}
