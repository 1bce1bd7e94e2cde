//! One examination from beginning to end.

use std::time::{Duration, Instant};

use ksmith_core::diagnose::process::{HostState, MappingExamination, ProcessExamination, ScanWatch, judge};
use ksmith_core::kernel::KsmStat;
use ksmith_core::reading::Reading;

use super::equals::EqualPageSearch;
use super::host::{host_state, uptime};
use super::intent::{is_qemu, kept_out, meant_to_opt_in};
use super::looks::{first_look, is_anything_pending, last_look};
use super::pages::{RandomPageFilter, walk};
use super::patient::{ExaminationError, ExaminedProcess};
use super::report::DoctorReport;
use super::splits::{DrawnHugePage, SplitForecast};
use crate::mappings;
use crate::memory::frames::FrameTable;
use crate::memory::pace::ReadPace;
use crate::memory::pinned::PinningCheck;
use crate::memory::salt::FingerprintSalt;
use crate::memory::scan::{ScanBuffers, ScanContext, huge_page_size};
use crate::memory::target::{GuestGrouping, TargetSelection, TargetSet};
use crate::root::Root;

/// The options of an examination.
#[derive(Debug, Clone, Copy)]
pub struct ExaminationOptions {
    /// The time limit, which the last step may exceed a little.
    pub longest: Duration,
    /// True if a ksmith daemon controls KSM.
    pub daemon_runs: bool,
}

impl Default for ExaminationOptions {
    fn default() -> Self {
        Self { longest: Duration::from_secs(10), daemon_runs: false }
    }
}

/// Unmerged pages to sample: their shares are then accurate to two percentage points.
const UNMERGED_LOOKS: u64 = 2048;

/// Merged pages to sample.
const MERGED_LOOKS: u64 = 256;

/// The minimum time between the two looks at a page: content that is stable that long may be stable for a pass.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);

/// Passes to wait for, if ksmd makes them in time: see [`judge`].
const PASSES: u64 = 3;

/// Examines a process.
///
/// # Errors
/// Not even its mappings can be had.
pub fn examine(
    root: &Root,
    patient: &ExaminedProcess,
    options: ExaminationOptions,
) -> Result<DoctorReport, ExaminationError> {
    let started = Instant::now();
    // There may be so many that a second list of them would count.
    let mut mappings: Vec<MappingExamination> = Vec::new();
    let smaps = mappings::read(root, patient.pid, "smaps", |mapping| {
        mappings.push(MappingExamination { mapping, ..MappingExamination::default() });
    });
    if smaps.value().is_none() || patient.text("stat").value().is_none() {
        return Err(patient.reading_error("smaps", &smaps));
    }
    let ksm = |reading: Reading<String>| reading.and_then(|text| KsmStat::parse(&text)).get();
    let host = host_state(root);
    let mut seen = ProcessExamination {
        page_size: root.page_size().unwrap_or_default(),
        ksm: ksm(patient.text("ksm_stat")).unwrap_or_default(),
        drives_device: patient.drives_device(root),
        meant_to_opt_in: meant_to_opt_in(root, patient),
        kept_out: kept_out(root, patient),
        is_qemu: is_qemu(patient),
        daemon_runs: options.daemon_runs,
        mappings,
        host,
        age_seconds: age(root, patient),
        ..ProcessExamination::default()
    };
    let (mut unseen, mut splits) = (Vec::new(), None);
    if seen.drives_device.is_none() {
        unseen.push("its open files: whether it drives a VFIO device is not known".to_owned());
    }
    if !seen.mappings.iter().any(can_merge) {
        // Nothing that its pages could tell.
    } else if !root.is_host() {
        unseen.push("its pages: a captured tree has none".to_owned());
    } else {
        match look_at_pages(root, patient, &mut seen, started + options.longest) {
            Ok(forecast) => splits = forecast,
            Err(why) => unseen.push(why),
        }
    }
    let merge_any = |stat: KsmStat| stat.merge_any == Some(true);
    seen.watch.lost_opt_in =
        merge_any(seen.ksm) && ksm(patient.text("ksm_stat")).is_some_and(|now| !merge_any(now));
    Ok(DoctorReport::new(patient, &seen, judge(&seen), (unseen, splits)))
}

/// Returns true if ksmd scans this mapping.
fn can_merge(examined: &MappingExamination) -> bool {
    let mapping = &examined.mapping;
    mapping.is_mergeable() == Some(true) && mapping.ineligible().is_none()
}

fn age(root: &Root, patient: &ExaminedProcess) -> Option<f64> {
    let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
    Some(uptime(root)? - patient.start_ticks as f64 / ticks_per_second)
}

/// Samples pages twice, with the search for equals in between. Returns a forecast for the huge pages, or the evidence that
/// could not be had.
fn look_at_pages(
    root: &Root,
    patient: &ExaminedProcess,
    seen: &mut ProcessExamination,
    deadline: Instant,
) -> Result<Option<SplitForecast>, String> {
    let frames = FrameTable::open();
    if !frames.are_visible() {
        return Err("its pages: /proc/kpageflags is for root".to_owned());
    }
    let selection = TargetSelection {
        pids: vec![patient.pid],
        all: true,
        by: GuestGrouping::Process,
        ..TargetSelection::default()
    };
    let targets = TargetSet::select(&selection).map_err(|error| format!("its pages: {error}"))?.targets;
    let own = targets
        .iter()
        .position(|target| target.pid == patient.pid)
        .ok_or("its pages: its memory may not be read")?;
    let salt = FingerprintSalt::new().map_err(|error| format!("its pages: no random numbers: {error}"))?;
    let context = ScanContext {
        salt,
        pace: ReadPace::new(None),
        frames,
        quiet: PinningCheck::never(),
        page_size: seen.page_size,
    };
    let first_at = Instant::now();
    let mut scratch = ScanBuffers::new();
    // Pages that a fork shares are looked at like any others.
    scratch.look_again();
    let places = draw(&context, (patient.pid, &targets[own].memory.pagemap), seen);
    let drawn = first_look(&context, &targets[own], &mut scratch, places.into_iter());
    // Read after the first look: only passes that began later count.
    let before = host_state(root);

    let huge_pages = DrawnHugePage::read_some(&context, &targets[own], &mut scratch, &drawn);
    let fingerprints = drawn.iter().map(|page| page.fingerprint);
    let fingerprints = fingerprints.chain(huge_pages.iter().flat_map(DrawnHugePage::fingerprints));
    let search = EqualPageSearch::run(&context, &targets, fingerprints, deadline);
    std::thread::sleep(SHORTEST_PAUSE.saturating_sub(first_at.elapsed()));
    let is_pending = || is_anything_pending(&context, &targets, own, &drawn, &search);
    let mut now = host_state(root);
    while now.is_scanning && passes(&before, &now) < PASSES && Instant::now() < deadline && is_pending() {
        std::thread::sleep(Duration::from_millis(50));
        now = host_state(root);
    }
    for page in &drawn {
        let equals = search.equals(&context, &targets, page.fingerprint, (own, page.address));
        let Some(examined) = seen.mappings.get_mut(page.mapping) else { continue };
        if page.was_merged {
            examined.merged_looks.push(equals);
        } else {
            examined.looks.push(last_look(&context, &targets[own], &mut scratch, page, Some(equals)));
        }
    }
    seen.host = HostState { is_scanning: now.is_scanning || passes(&before, &now) > 0, ..now };
    seen.watch = ScanWatch {
        seconds: first_at.elapsed().as_secs_f64(),
        passes: passes(&before, &now),
        skipped: now.pages_skipped.saturating_sub(before.pages_skipped),
        lost_opt_in: false,
    };
    seen.searched_pages = search.searched;
    seen.searchable_pages = search.searchable;
    let sizes = [context.page_size, huge_page_size()];
    Ok(SplitForecast::new(&huge_pages, &search, own, seen.huge_bytes(), sizes))
}

fn passes(before: &HostState, now: &HostState) -> u64 {
    now.full_scans.saturating_sub(before.full_scans)
}

/// Walks all mappings that can merge, and draws pages from them.
fn draw(
    context: &ScanContext,
    pagemap: (u32, &std::fs::File),
    seen: &mut ProcessExamination,
) -> Vec<(usize, u64, bool)> {
    let size = context.page_size;
    let anonymous = seen.mappings.iter().filter(|it| can_merge(it)).filter_map(|it| it.mapping.figures.as_ref());
    let anonymous = anonymous.map(|figures| figures.anonymous).sum::<u64>() / size;
    let merged = seen.ksm.merging_pages.unwrap_or(0).min(anonymous);
    let seed = context.salt.seed();
    let draw = [
        RandomPageFilter::new(UNMERGED_LOOKS, anonymous - merged, seed),
        RandomPageFilter::new(MERGED_LOOKS, merged, seed),
    ];
    let mut places = Vec::new();
    for (at, examined) in seen.mappings.iter_mut().enumerate().filter(|(_, examined)| can_merge(examined)) {
        let mapping = &examined.mapping;
        // A mapping that went away meanwhile is told by smaps alone.
        let Ok(walked) = walk(pagemap, &context.frames, [mapping.start, mapping.end, size], draw) else { continue };
        examined.pages = Some(walked.pages);
        places.extend(walked.unmerged.into_iter().map(|address| (at, address, false)));
        places.extend(walked.merged.into_iter().map(|address| (at, address, true)));
    }
    places
}
