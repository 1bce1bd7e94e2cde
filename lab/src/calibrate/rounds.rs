//! The rounds of a measurement. Each round measures every kind of work once.

use std::path::Path;

use crossbeam_channel::Receiver;
use ksmith_host::signals::Signal;

use super::huge_pages;
use super::ksmd::SteppedKsmd;
use super::summary::{Calibration, WorkKind};
use super::{CalibrateError, is_interrupted};
use crate::live_bench::LiveBench;
use crate::play::LabBench;
use crate::{GuestContents, MemoryGuest, MemoryPart};

/// Pages of a guest: more than a CPU's caches hold, and a tree of a usual depth.
const PAGES: usize = 65_536;

/// Returns the memory that a measurement needs: three guests, and KSM's own.
pub fn needed_bytes() -> u64 {
    3 * (PAGES * rustix::param::page_size()) as u64 + (64 << 20)
}

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
        huge_pages::measure_splits(&mut calibration)?;
        huge_pages::measure_accesses(&mut calibration)?;
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
