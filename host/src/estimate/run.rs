//! The run of one estimate.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ksmith_core::kernel::Ineligible;
use ksmith_core::sketch::{CostModel, Costs, MergeRules, Outcome, Verdict};

use super::job::Job;
use super::report::{GuestReport, MatrixReport, Report, SkippedReport};
use super::sums::GuestSums;
use super::{exact, sample, sketch};
use crate::memory::error::{EstimateError, Unreadable};
use crate::memory::frames::Frames;
use crate::memory::pace::Pace;
use crate::memory::pinned::Quiet;
use crate::memory::progress::Meter;
use crate::memory::salt::Salt;
use crate::memory::scan::{Context, Tally, cpu_seconds, page_size, unexpected};
use crate::memory::target::{Selection, Targets};

/// The reading mode: how much to read and to remember.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// Reads and remembers everything.
    Exact,
    /// Reads everything and remembers a bounded part.
    Sketch,
    /// Reads each page with this probability.
    Sample(f64),
}

impl Mode {
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
pub struct Options {
    /// The processes to read.
    pub selection: Selection,
    /// The mode of reading.
    pub mode: Mode,
    /// The pause before a second pass, which finds changing pages; `None` for a single pass.
    pub again: Option<Duration>,
    /// Number of reading threads.
    pub threads: usize,
    /// Bytes per second, all threads together.
    pub max_rate: Option<u64>,
    /// True to compare guests in pairs.
    pub wants_pairs: bool,
    /// The progress meter.
    pub meter: Option<Arc<dyn Meter>>,
    /// KSM's settings that decide the savings.
    pub rules: MergeRules,
    /// The cost model of ksmd's work.
    pub costs: CostModel,
    /// The salt of the fingerprints and of the drawn pages; `None` for a random one.
    pub salt: Option<Salt>,
}

impl Options {
    /// Creates the default options for these processes.
    pub fn new(selection: Selection) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            selection,
            mode: Mode::Sketch,
            again: None,
            // Half of the cores, and no more than saturate the memory of most machines.
            threads: (cores / 2).clamp(1, 8),
            max_rate: None,
            wants_pairs: false,
            meter: None,
            rules: MergeRules::default(),
            costs: CostModel::default(),
            salt: None,
        }
    }
}

/// The result of any mode.
struct Found {
    outcome: Outcome,
    tallies: Vec<Tally>,
    changing: Vec<u64>,
    read: u64,
    sketch_bytes: Option<u64>,
}

/// Runs an estimate.
///
/// # Errors
/// Nothing can be read, or the options contradict each other.
pub fn estimate(options: &Options) -> Result<Report, EstimateError> {
    if let Mode::Sample(rate) = options.mode {
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
    let found = Targets::select(&options.selection)?;
    let salt = match &options.salt {
        Some(salt) => salt.clone(),
        None => Salt::new().map_err(unexpected("get random numbers"))?,
    };
    let job = Job {
        context: Context {
            salt,
            pace: Pace::new(options.max_rate),
            frames: Frames::open(),
            quiet: Quiet::new(),
            page_size: page_size(),
        },
        targets: &found.targets,
        guests: found.guests.len(),
        rules: options.rules,
        threads: options.threads.max(1),
        again: options.again,
        wants_pairs: options.wants_pairs,
        meter: options.meter.as_deref(),
    };
    let mut result = match options.mode {
        Mode::Exact => {
            let exact::Found { outcome, tallies, changing, read } = exact::run(&job);
            Found { outcome, tallies, changing, read, sketch_bytes: None }
        }
        Mode::Sketch => {
            let sketch::Found { outcome, tallies, changing, read, sketch_bytes } = sketch::run(&job);
            Found { outcome, tallies, changing, read, sketch_bytes: Some(sketch_bytes) }
        }
        Mode::Sample(rate) => {
            let sample::Found { outcome, tallies, changing, read } = sample::run(&job, rate);
            Found { outcome, tallies, changing, read, sketch_bytes: None }
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
    let mut all = GuestSums { looked_twice: options.again.is_some(), ..GuestSums::default() };
    for sums in &sums {
        all.add(sums);
    }
    let verdict = |sums: &GuestSums, outcome: &ksmith_core::sketch::GuestOutcome| {
        let costs = Costs {
            pages: outcome.pages + sums.changing,
            changing: sums.changing,
            saved: outcome.saved,
            merged: sums.merged,
            leaving: sums.leaving,
            page_size: size,
            is_mergeable: sums.is_mergeable,
        };
        Verdict::of(&costs, &options.costs)
    };
    let mut guests = guests;
    for (report, (outcome, sums)) in guests.iter_mut().zip(result.outcome.guests.iter().zip(&sums)) {
        report.weigh(&verdict(sums, outcome));
    }
    let whole = verdict(&all, &result.outcome.total);
    let mut total = GuestReport::new("total".to_owned(), None, Vec::new(), &result.outcome.total, &all, size);
    total.weigh(&whole);
    let advice_to_fold = total.advice_to_fold();
    let exited = found.targets.iter().filter(|target| target.has_exited());
    let exited = exited.map(|target| SkippedReport { pid: target.pid, reason: Unreadable::Exited.to_string() });
    let skipped = found.skipped.iter().map(|it| SkippedReport { pid: it.pid, reason: it.why.to_string() });
    let names = guests.iter().map(|guest| match guest.pid {
        Some(pid) if guests.iter().filter(|other| other.name == guest.name).count() > 1 => {
            format!("{} {pid}", guest.name)
        }
        _ => guest.name.clone(),
    });
    let names: Vec<String> = names.collect();
    Ok(Report {
        mode: options.mode.name(),
        rate: match options.mode {
            Mode::Sample(rate) => Some(rate),
            _ => None,
        },
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

/// Sums the other figures of each guest's targets, and adds the zero pages that KSM has already merged.
fn guest_sums(job: &Job<'_>, options: &Options, found: &mut Found) -> Vec<GuestSums> {
    let mut sums = vec![GuestSums::default(); job.guests];
    let sees_frames = job.context.frames.are_visible();
    for (target, tally) in job.targets.iter().zip(&found.tallies) {
        let guest = target.guest as usize;
        let Some(sums) = sums.get_mut(guest).filter(|_| !target.has_exited()) else { continue };
        let ksm = &target.memory.ksm;
        let zero = ksm.zero_pages.unwrap_or(0);
        sums.merged_zero += zero;
        // A sample sees too few merged pages to count them, and the kernel counts them anyhow.
        let is_counted = sees_frames && !matches!(options.mode, Mode::Sample(_));
        sums.merged += zero + if is_counted { tally.merged } else { ksm.merging_pages.unwrap_or(0) };
        sums.is_mergeable |= target.memory.is_mergeable;
        sums.huge_bytes += target.memory.huge_bytes;
        for (&reason, bytes) in &target.memory.ineligible {
            *sums.ineligible.entry(reason).or_default() += bytes;
        }
        let forked = match options.mode {
            Mode::Sample(rate) => (tally.forked as f64 / rate) as u64,
            Mode::Exact | Mode::Sketch => tally.forked,
        };
        *sums.ineligible.entry(Ineligible::Forked).or_default() += forked * job.context.page_size;
        found.outcome.add_merged_zero_pages(guest, zero);
    }
    for ((sums, guest), changing) in sums.iter_mut().zip(&found.outcome.guests).zip(&found.changing) {
        sums.changing = *changing;
        sums.looked_twice = options.again.is_some();
        sums.leaving = if options.rules.use_zero_pages { guest.zero.round() as u64 } else { 0 };
    }
    sums
}
