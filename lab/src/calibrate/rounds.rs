//! The rounds of a measurement. Each round measures every kind of work once.

use std::path::Path;

use crossbeam_channel::Receiver;
use ksmith_core::kernel::SmapsRollup;
use ksmith_host::signals::Signal;

use super::ksmd::SteppedKsmd;
use super::summary::{Calibration, WorkKind};
use super::{CalibrateError, is_interrupted};
use crate::live_bench::LiveBench;
use crate::measure::HUGE_PAGE_BYTES;
use crate::play::LabBench;
use crate::region::{Region, RegionKind};
use crate::{GuestContents, MemoryGuest, MemoryPart};

/// Pages of a guest: more than a CPU's caches hold, and a tree of a usual depth.
const PAGES: usize = 65_536;

/// The memory that a measurement needs: three guests, and KSM's own.
pub const NEEDED_BYTES: u64 = 3 * PAGES as u64 * 4096 + (64 << 20);

/// Pages of a small guest, and how often that doubles to [`PAGES`].
const FEW_PAGES: usize = 4096;
const DOUBLINGS: u64 = 4;

/// Doublings from the contents that a search finds in the caches to a stable tree of [`PAGES`]:
/// `log2(1 + 65536 / 4096)`, in hundredths.
const STABLE_DOUBLINGS: u64 = 409;

/// Full frames of empty pages, and the pages that one backs.
const FRAMES: usize = 256;
const SHARING: usize = 256;

/// Passes over the pages of a guest until `smart_scan` skips all of them: it visits a page at the ages 0 to 3.
const YOUNG: usize = 4;

/// The settings of a measurement in rounds.
#[derive(Debug, Clone, Copy)]
pub struct CalibrationRounds<'a> {
    /// Path of the ksmith program, which runs as guests.
    pub program: &'a Path,
    /// The number of rounds, and of those that have to agree.
    pub count: u32,
    /// The most rounds: further ones are made while fewer than `count` agree, as on a host where something else runs now and then.
    pub most: u32,
    /// Signals that end the measurement.
    pub interrupts: &'a Receiver<Signal>,
}

/// Measures the costs of ksmd's work. Before each round `say` receives the number of finished rounds and, if there were
/// enough, the disagreement that makes a further one necessary.
///
/// # Errors
/// The costs can't be measured here, or are not the same from round to round.
pub fn calibrate(
    bench: &mut LiveBench,
    rounds: CalibrationRounds<'_>,
    mut say: impl FnMut(u32, Option<&CalibrateError>),
) -> Result<Calibration, CalibrateError> {
    let mut calibration = Calibration::new(PAGES as u64, rounds.count);
    let mut doubt = None;
    loop {
        say(calibration.rounds(), doubt.as_ref());
        rounds.unshared(bench, &mut calibration)?;
        rounds.merged(bench, &mut calibration)?;
        rounds.zero(bench, &mut calibration)?;
        rounds.few(bench, &mut calibration)?;
        rounds.small(bench, &mut calibration)?;
        huge(&mut calibration)?;
        calibration.end_round();
        if calibration.rounds() < rounds.count {
            continue;
        }
        doubt = match calibration.check() {
            Ok(()) => return Ok(calibration),
            Err(noisy @ CalibrateError::Noisy { .. }) if calibration.rounds() < rounds.most => Some(noisy),
            Err(error) => return Err(error),
        };
    }
}

impl CalibrationRounds<'_> {
    /// Brings the host to the state that every measurement starts from.
    fn fresh<'b>(&'b self, bench: &'b mut LiveBench) -> Result<SteppedKsmd<'b>, CalibrateError> {
        if is_interrupted(self.interrupts) {
            return Err(CalibrateError::Interrupted);
        }
        bench.reset().map_err(CalibrateError::Bench)?;
        SteppedKsmd::find(bench.writer(), self.interrupts)
    }

    fn guest(&self, parts: &[MemoryPart]) -> Result<MemoryGuest, CalibrateError> {
        let mut guest = MemoryGuest::start(self.program, &GuestContents(parts.to_vec()))?;
        guest.wait_ready()?;
        Ok(guest)
    }

    /// Pages that no other page equals, and a guest's cost of filling them.
    fn unshared(&self, bench: &mut LiveBench, to: &mut Calibration) -> Result<(), CalibrateError> {
        let mut ksmd = self.fresh(bench)?;
        ksmd.prepare(false, false)?;
        let pages = PAGES as u64;
        let small = self.guest(&[MemoryPart::Unmarked { pages: 1 }])?;
        let start_ns = ksmd.thread_cpu_ns(small.pid())?;
        let guest = self.guest(&[MemoryPart::Unique { pages: PAGES }])?;
        to.add(WorkKind::Write, ksmd.thread_cpu_ns(guest.pid())?.saturating_sub(start_ns) / pages);
        to.add(WorkKind::Checksum, ksmd.pass()? / pages);
        // The second pass puts all pages into an empty tree, as each pass does.
        to.add(WorkKind::Unshared, ksmd.pass()? / pages);
        ksmd.expect("pages_unshared", "unshared", pages)?;
        to.add(WorkKind::Unshared, ksmd.pass()? / pages);
        if ksmd.smart_scan(true)? {
            for _ in 0..YOUNG {
                ksmd.pass()?;
            }
            let skipped = ksmd.number("pages_skipped")?;
            let ns = ksmd.pass()? / pages;
            let skipped = ksmd.number("pages_skipped")?.saturating_sub(skipped);
            ksmd.expect_number(skipped, "skipped by smart_scan", pages)?;
            to.add(WorkKind::Skip, ns);
        }
        Ok(())
    }

    /// Pages of two equal guests.
    fn merged(&self, bench: &mut LiveBench, to: &mut Calibration) -> Result<(), CalibrateError> {
        let mut ksmd = self.fresh(bench)?;
        ksmd.prepare(false, false)?;
        let (pages, parts) = (PAGES as u64, [MemoryPart::Equal { seed: 1, pages: PAGES }]);
        let _guests = [self.guest(&parts)?, self.guest(&parts)?];
        to.add(WorkKind::Checksum, ksmd.pass()? / (2 * pages));
        // The pages of one guest find nothing, and those of the other one merge with them.
        let both_ns = ksmd.pass()? / pages;
        ksmd.expect("pages_sharing", "merged", pages)?;
        to.add(WorkKind::Merge, both_ns.saturating_sub(to.latest(WorkKind::Unshared)));
        to.add(WorkKind::Merged, ksmd.pass()? / (2 * pages));
        to.add(WorkKind::Merged, ksmd.pass()? / (2 * pages));
        let merged_ns = 2 * pages * to.latest(WorkKind::Merged);
        // A third guest of the same contents joins the two, and one of other contents finds nothing beside them.
        let third = self.guest(&parts)?;
        ksmd.pass()?;
        to.add(WorkKind::Join, ksmd.pass()?.saturating_sub(merged_ns) / pages);
        ksmd.expect("pages_sharing", "merged", 2 * pages)?;
        drop(third);
        // ksmd finds that it has ended.
        ksmd.pass()?;
        let _beside = self.guest(&[MemoryPart::Unique { pages: PAGES }])?;
        ksmd.pass()?;
        let beside_ns = ksmd.pass()?.saturating_sub(merged_ns) / pages;
        ksmd.expect("pages_unshared", "unshared", pages)?;
        let more_ns = beside_ns.saturating_sub(to.latest(WorkKind::Unshared));
        to.add(WorkKind::StableLevel, more_ns * 100 / STABLE_DOUBLINGS);
        Ok(())
    }

    /// Empty pages, which merge with the kernel's zero page.
    fn zero(&self, bench: &mut LiveBench, to: &mut Calibration) -> Result<(), CalibrateError> {
        let mut ksmd = self.fresh(bench)?;
        ksmd.prepare(false, true)?;
        let pages = PAGES as u64;
        let _guest = self.guest(&[MemoryPart::Zero { pages: PAGES }])?;
        ksmd.pass()?;
        to.add(WorkKind::Zero, ksmd.pass()? / pages);
        to.add(WorkKind::Free, ksmd.pass()? / pages);
        to.add(WorkKind::Walk, ksmd.pass()? / pages);
        Ok(())
    }

    /// A small unstable tree, and one beside a chain of full frames, which is all that there is in the stable tree: each search
    /// passes all of them.
    fn few(&self, bench: &mut LiveBench, to: &mut Calibration) -> Result<(), CalibrateError> {
        let mut ksmd = self.fresh(bench)?;
        ksmd.prepare(false, false)?;
        let pages = FEW_PAGES as u64;
        let _guest = self.guest(&[MemoryPart::Unique { pages: FEW_PAGES }])?;
        ksmd.pass()?;
        ksmd.pass()?;
        let alone_ns = ksmd.pass()? / pages;
        to.add(WorkKind::UnstableLevel, to.latest(WorkKind::Unshared).saturating_sub(alone_ns) / DOUBLINGS);
        let empty = FRAMES * SHARING;
        let _empty = self.guest(&[MemoryPart::Zero { pages: empty }])?;
        ksmd.pass()?;
        ksmd.pass()?;
        ksmd.expect("pages_shared", "full frames", FRAMES as u64)?;
        let merged_ns = empty as u64 * to.latest(WorkKind::Merged);
        let beside_ns = ksmd.pass()?.saturating_sub(merged_ns) / pages;
        to.add(WorkKind::Chain, beside_ns.saturating_sub(alone_ns) / FRAMES as u64);
        Ok(())
    }

    /// A pass and a batch without work.
    fn small(&self, bench: &mut LiveBench, to: &mut Calibration) -> Result<(), CalibrateError> {
        let mut ksmd = self.fresh(bench)?;
        ksmd.prepare(false, false)?;
        let _guest = self.guest(&[MemoryPart::Unique { pages: 1 }])?;
        ksmd.pass()?;
        to.add(WorkKind::Pass, ksmd.pass()?);
        to.add(WorkKind::Pass, ksmd.pass()?);
        to.add(WorkKind::Batch, ksmd.idle_batch()?);
        Ok(())
    }
}

/// Huge pages of the region that is split and put together.
const HUGE_PAGES: usize = 32;

/// Splitting huge pages of the measuring process itself and putting them together, by the calls that do the same work as ksmd and
/// khugepaged. Without huge pages here there is nothing to measure.
fn huge(to: &mut Calibration) -> Result<(), CalibrateError> {
    let mut region = Region::of_kind(RegionKind::HugeUnmarked, HUGE_PAGES * HUGE_PAGE_BYTES as usize)
        .map_err(CalibrateError::System)?;
    let huge_pages = HUGE_PAGES as u64;
    let split = |region: &mut Region, is_empty: bool| {
        // Half of each huge page is empty, or nothing of it.
        for (number, page) in region.bytes_mut().chunks_exact_mut(4096).enumerate() {
            page.fill(if is_empty && number % 512 < 256 { 0 } else { 1 + (number % 255) as u8 });
        }
        let (began, before) = (thread_cpu_ns(), own_huge_bytes());
        region.split_huge_pages();
        let spent_ns = thread_cpu_ns().saturating_sub(began);
        let split = before.saturating_sub(own_huge_bytes()) / HUGE_PAGE_BYTES;
        (split >= huge_pages).then_some(spent_ns / huge_pages)
    };
    let Some(full_ns) = split(&mut region, false) else { return Ok(()) };
    to.add(WorkKind::Split, full_ns);
    let began = thread_cpu_ns();
    if !region.collapse_huge_pages() {
        return Ok(());
    }
    to.add(WorkKind::Collapse, thread_cpu_ns().saturating_sub(began) / huge_pages);
    if let Some(half_ns) = split(&mut region, true) {
        to.add(WorkKind::Freed, half_ns.saturating_sub(full_ns) / 256);
    }
    Ok(())
}

/// CPU time of this thread, in nanoseconds.
fn thread_cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (now.tv_sec.cast_unsigned()).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec.cast_unsigned())
}

/// Memory of this process in huge pages, in bytes; 0 where the kernel does not say.
fn own_huge_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    SmapsRollup::parse(&text).ok().and_then(|sums| sums.anon_huge).unwrap_or(0)
}
