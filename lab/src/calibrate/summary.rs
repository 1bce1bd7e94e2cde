//! The results of a calibration: costs with their spread, and the file that `ksmith sim --costs` takes.

use ksmith_core::huge_worth::{SplitLosses, WORKING_SETS};
use ksmith_core::sim::SimCosts;
use schemars::JsonSchema;
use serde::Serialize;

use super::CalibrateError;
use crate::measure::Spread;
use crate::results::MeasuredHost;

/// A kind of ksmd's work, a field of [`Costs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkKind {
    Checksum,
    Unshared,
    Merge,
    Join,
    Zero,
    Merged,
    Skip,
    Walk,
    Free,
    Batch,
    Pass,
    Write,
    StableLevel,
    UnstableLevel,
    Chain,
    Split,
    Freed,
    Collapse,
}

/// A kind of work with its key in [`Costs`], its meaning and its plausible range. The range is that of a page, batch or
/// pass, in nanoseconds, on any machine that runs Linux.
type Row = (WorkKind, &'static str, &'static str, [u64; 2]);

const KINDS: [Row; 18] = [
    (WorkKind::Checksum, "checksum", "a first visit, or one that finds the page changed", [100, 50_000]),
    (WorkKind::Unshared, "unshared", "a visit that finds no equal page", [200, 100_000]),
    (WorkKind::Merge, "merge", "a visit that merges with a page that waits for it", [300, 200_000]),
    (WorkKind::Join, "join", "a visit that merges with a merged page", [200, 200_000]),
    (WorkKind::Zero, "zero", "a visit that merges with the zero page", [100, 100_000]),
    (WorkKind::Merged, "merged", "a visit to a merged page", [10, 20_000]),
    (WorkKind::Skip, "skip", "a page that smart_scan skips", [5, 20_000]),
    (WorkKind::Walk, "walk", "an entry that KSM passes over", [0, 5_000]),
    (WorkKind::Free, "free", "an rmap_item that is freed", [1, 10_000]),
    (WorkKind::Batch, "batch", "waking up for a batch", [100, 1_000_000]),
    (WorkKind::Pass, "pass", "starting a pass, with a visit to one page", [100, 10_000_000]),
    (WorkKind::Write, "write", "a guest's own time for a page that it fills", [50, 50_000]),
    (WorkKind::StableLevel, "stable_level", "a doubling of the stable tree, for a search", [0, 20_000]),
    (WorkKind::UnstableLevel, "unstable_level", "a doubling of the unstable tree, for a search", [0, 20_000]),
    (WorkKind::Chain, "chain", "a full frame of a chain that a search passes", [0, 5_000]),
    (WorkKind::Split, "split", "splitting a huge page", [1_000, 20_000_000]),
    (WorkKind::Freed, "freed", "an empty page that a split frees", [0, 50_000]),
    (WorkKind::Collapse, "collapse", "putting a huge page together", [10_000, 100_000_000]),
];

/// The share of the median by which a cost may differ from round to round, and the difference in nanoseconds that is
/// little in any case: the cost of waking ksmd counts along with small figures.
const MOST_SPREAD: f64 = 0.5;
const LITTLE_NS: f64 = 100.0;

/// The costs of visits, which decide what a simulation comes to. Others are small, and may differ.
const DECISIVE: [WorkKind; 4] = [WorkKind::Checksum, WorkKind::Unshared, WorkKind::Merge, WorkKind::Merged];

/// One cost in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorkCost {
    /// The kind of work, as in the file of costs.
    pub key: &'static str,
    /// The kind of work in words.
    pub about: &'static str,
    /// Median and extremes over the rounds that agree best, in nanoseconds; null where this kernel does no such work.
    pub ns: Option<Spread>,
}

/// The cost of an access at random to memory in huge pages and to the same memory in small ones: what splitting costs a
/// program.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AccessCost {
    /// The bytes that the program uses.
    pub working_set_bytes: u64,
    /// CPU time of an access in huge pages, in nanoseconds.
    pub huge_ns: Spread,
    /// CPU time of an access in small pages, in nanoseconds.
    pub small_ns: Spread,
    /// CPU-seconds a second that a program which does nothing else loses in small pages; negative is noise.
    pub lost_cpus: f64,
}

/// The samples of a calibration.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    pages: u64,
    /// The rounds that have to agree, and those that were made.
    wanted: u32,
    rounds: u32,
    samples: [Vec<u64>; KINDS.len()],
    /// Nanoseconds of an access in huge and in small pages, for each working set.
    accesses: [Vec<[f64; 2]>; WORKING_SETS.len()],
}

impl Calibration {
    /// Creates a calibration without samples, of guests with `pages` pages, in at least `wanted` rounds.
    pub(super) fn new(pages: u64, wanted: u32) -> Self {
        Self { pages, wanted, rounds: 0, samples: Default::default(), accesses: Default::default() }
    }

    /// Counts a round in which each kind of work was measured.
    pub(super) fn end_round(&mut self) {
        self.rounds += 1;
    }

    /// The rounds that were made: more than wanted where some were disturbed.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Adds a measured cost in nanoseconds.
    pub(super) fn add(&mut self, kind: WorkKind, ns: u64) {
        self.samples[kind as usize].push(ns);
    }

    /// Adds measured accesses to the working set at `place`, in huge and in small pages, in nanoseconds.
    pub(super) fn add_access(&mut self, place: usize, ns: [f64; 2]) {
        self.accesses[place].push(ns);
    }

    /// Accesses in huge and in small pages, by working set; none where this host has no huge pages.
    pub fn accesses(&self) -> Vec<AccessCost> {
        let cost = |(working_set_bytes, rounds): (u64, &Vec<[f64; 2]>)| {
            let [huge_ns, small_ns] =
                [0, 1].map(|kind| Spread::from_values(rounds.iter().map(|ns| Some(ns[kind]))));
            let lost_cpus = 1.0 - huge_ns.median? / small_ns.median?;
            Some(AccessCost { working_set_bytes, huge_ns, small_ns, lost_cpus })
        };
        WORKING_SETS.into_iter().zip(&self.accesses).filter_map(cost).collect()
    }

    /// The losses by split huge pages, for `[huge_pages]` of the daemon's configuration; `None` where this host has none.
    pub fn split_losses(&self) -> Option<SplitLosses> {
        let lost: Vec<f64> = self.accesses().iter().map(|access| access.lost_cpus).collect();
        Some(SplitLosses::from_measured(lost.try_into().ok()?))
    }

    /// The cost that was measured last, 0 before the first.
    pub(super) fn latest(&self, kind: WorkKind) -> u64 {
        self.samples[kind as usize].last().copied().unwrap_or(0)
    }

    /// The spread of a cost in the rounds that agree best, as many as are wanted: what runs beside ksmd for a while changes other
    /// rounds.
    fn spread(&self, kind: WorkKind) -> Option<Spread> {
        let mut samples = self.samples[kind as usize].clone();
        samples.sort_unstable();
        let kept = samples.len() * self.wanted as usize / self.rounds.max(self.wanted).max(1) as usize;
        let closest = samples.windows(kept.max(1)).min_by_key(|window| Some(window.last()? - window.first()?))?;
        Some(Spread::from_values(closest.iter().map(|&ns| Some(ns as f64))))
    }

    fn median(&self, kind: WorkKind) -> Option<u64> {
        self.spread(kind)?.median.map(|ns| ns.round() as u64)
    }

    /// Refuses costs that can't be, and decisive ones that differ much even in the rounds that agree best.
    pub(super) fn check(&self) -> Result<(), CalibrateError> {
        for (kind, key, _, [least, most]) in KINDS {
            let Some(ns) = self.median(kind) else { continue };
            if !(least..=most).contains(&ns) {
                return Err(CalibrateError::Nonsense { key, ns });
            }
        }
        for (kind, key, ..) in KINDS.into_iter().filter(|(kind, ..)| DECISIVE.contains(kind)) {
            let Some(Spread { median: Some(median), min: Some(min), max: Some(max) }) = self.spread(kind) else {
                continue;
            };
            if max - min > (MOST_SPREAD * median).max(LITTLE_NS) {
                return Err(CalibrateError::Noisy { key, min: min as u64, max: max as u64 });
            }
        }
        Ok(())
    }

    /// Returns the medians as costs for the simulator. Kinds that this kernel lacks keep their defaults.
    pub fn costs(&self) -> SimCosts {
        let usual = SimCosts::default();
        let of = |kind, default| self.median(kind).unwrap_or(default);
        SimCosts {
            checksum: of(WorkKind::Checksum, usual.checksum),
            unshared: of(WorkKind::Unshared, usual.unshared),
            merge: of(WorkKind::Merge, usual.merge),
            join: of(WorkKind::Join, usual.join),
            zero: of(WorkKind::Zero, usual.zero),
            merged: of(WorkKind::Merged, usual.merged),
            skip: of(WorkKind::Skip, usual.skip),
            walk: of(WorkKind::Walk, usual.walk),
            free: of(WorkKind::Free, usual.free),
            batch: of(WorkKind::Batch, usual.batch),
            pass: of(WorkKind::Pass, usual.pass),
            write: of(WorkKind::Write, usual.write),
            stable_level: of(WorkKind::StableLevel, usual.stable_level),
            unstable_level: of(WorkKind::UnstableLevel, usual.unstable_level),
            chain: of(WorkKind::Chain, usual.chain),
            split: of(WorkKind::Split, usual.split),
            freed: of(WorkKind::Freed, usual.freed),
            collapse: of(WorkKind::Collapse, usual.collapse),
        }
    }

    /// All costs, in the order of the file.
    pub fn all(&self) -> Vec<WorkCost> {
        KINDS.iter().map(|&(kind, key, about, _)| WorkCost { key, about, ns: self.spread(kind) }).collect()
    }

    /// Pages of the guests that were measured.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// The file that `ksmith sim --costs` takes: TOML with nanoseconds by kind of work.
    pub fn toml(&self) -> String {
        let MeasuredHost { kernel, cpus } = MeasuredHost::current();
        let mut text = format!(
            "# Costs of ksmd's work in nanoseconds, for `ksmith sim --costs`, measured by `ksmith sim calibrate`\n\
             # on Linux {kernel} with {cpus} CPUs. Behind each: the least and the greatest of all rounds.\n"
        );
        for WorkCost { key, about, ns } in self.all() {
            let whole = |ns: Option<f64>| ns.unwrap_or(0.0).round() as u64;
            if let Some(Spread { median, min, max }) = ns {
                let (median, min, max) = (whole(median), whole(min), whole(max));
                let entry = format!("{key} = {median}");
                text.push_str(&format!("{entry:<17} # {min} to {max}: {about}\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds in which each cost is in the middle of what can be, but for `odd`.
    fn rounds(odd: Option<(WorkKind, [u64; 3])>) -> Calibration {
        let mut calibration = Calibration::new(8, 3);
        for (kind, _, _, [least, _]) in KINDS {
            let usual = [least + 500, least + 510, least + 490];
            let costs = odd.filter(|(it, _)| *it == kind).map_or(usual, |(_, costs)| costs);
            costs.into_iter().for_each(|ns| calibration.add(kind, ns));
        }
        (0..3).for_each(|_| calibration.end_round());
        calibration
    }

    /// A further round, in which each cost is as usual but for one.
    fn one_more(calibration: &mut Calibration, odd: (WorkKind, u64)) {
        for (kind, _, _, [least, _]) in KINDS {
            calibration.add(kind, if kind == odd.0 { odd.1 } else { least + 505 });
        }
        calibration.end_round();
    }

    #[test]
    fn the_file_is_read_back_as_the_medians() {
        let calibration = rounds(None);
        calibration.check().unwrap();
        let costs: SimCosts = toml::from_str(&calibration.toml()).unwrap();
        assert_eq!(costs, calibration.costs());
        assert_eq!((costs.checksum, costs.merged), (600, 510));
        // Each cost of the simulator is measured.
        let fields = toml::Table::try_from(costs).unwrap();
        let keys: Vec<&str> = KINDS.iter().map(|(_, key, ..)| *key).collect();
        assert_eq!(fields.len(), keys.len());
        assert!(fields.keys().all(|key| keys.contains(&key.as_str())));
    }

    #[test]
    fn small_pages_cost_what_accesses_take_longer() {
        let mut calibration = rounds(None);
        assert_eq!(calibration.accesses(), []);
        [[10.0, 25.0], [20.0, 40.0], [21.0, 39.0]].into_iter().for_each(|ns| calibration.add_access(1, ns));
        let accesses = calibration.accesses();
        assert_eq!(accesses.len(), 1);
        assert_eq!((accesses[0].working_set_bytes, accesses[0].huge_ns.median), (WORKING_SETS[1], Some(20.0)));
        assert!((accesses[0].lost_cpus - (1.0 - 20.0 / 39.0)).abs() < 1e-12, "{accesses:?}");
        assert_eq!(calibration.split_losses(), None, "two working sets were not measured");
        [0, 2].into_iter().for_each(|place| calibration.add_access(place, [10.0, 16.0]));
        assert_eq!(calibration.split_losses(), SplitLosses::try_from([0.375, 0.487, 0.487]).ok());
    }

    #[test]
    fn each_kind_is_at_its_own_place() {
        for (place, (kind, key, ..)) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, place, "{key}");
            let text = toml::Table::try_from(rounds(Some((kind, [7777, 7777, 7777]))).costs()).unwrap();
            assert_eq!(text[key].as_integer(), Some(7777), "{key}");
        }
    }

    #[test]
    fn a_kernel_without_a_kind_of_work_leaves_its_default() {
        let mut calibration = rounds(None);
        calibration.samples[WorkKind::Skip as usize].clear();
        calibration.check().unwrap();
        assert_eq!(calibration.costs().skip, SimCosts::default().skip);
        assert!(!calibration.toml().contains("skip ="));
    }

    #[test]
    fn noise_in_a_decisive_cost_is_refused_and_in_a_small_one_is_not() {
        for kind in DECISIVE {
            let noisy = rounds(Some((kind, [1000, 1000, 1700]))).check();
            assert!(
                matches!(noisy, Err(CalibrateError::Noisy { min: 1000, max: 1700, .. })),
                "{kind:?}: {noisy:?}"
            );
        }
        rounds(Some((WorkKind::Free, [50, 60, 500]))).check().unwrap();
        rounds(Some((WorkKind::Merged, [100, 110, 190]))).check().unwrap();
    }

    #[test]
    fn a_disturbed_round_is_left_out_once_as_many_agree_as_are_wanted() {
        let mut calibration = rounds(Some((WorkKind::Merge, [1000, 2000, 1010])));
        assert!(matches!(calibration.check(), Err(CalibrateError::Noisy { key: "merge", min: 1000, max: 2000 })));
        one_more(&mut calibration, (WorkKind::Merge, 3000));
        assert!(calibration.check().is_err(), "two of four agree");
        one_more(&mut calibration, (WorkKind::Merge, 1030));
        calibration.check().unwrap();
        assert_eq!(calibration.rounds(), 5);
        assert_eq!(calibration.costs().merge, 1010);
        let merge = calibration.all().into_iter().find(|cost| cost.key == "merge").unwrap().ns.unwrap();
        assert_eq!((merge.min, merge.max), (Some(1000.0), Some(1030.0)));
        // What is measured twice in a round has twice as many that have to agree.
        let mut twice = Calibration::new(8, 1);
        [500, 600, 900, 610].into_iter().for_each(|ns| twice.add(WorkKind::Merged, ns));
        (0..2).for_each(|_| twice.end_round());
        assert_eq!(twice.spread(WorkKind::Merged).and_then(|spread| spread.median), Some(605.0));
    }

    #[test]
    fn costs_that_can_not_be_are_refused() {
        for (kind, ns) in [(WorkKind::Checksum, 0), (WorkKind::Unshared, 5_000_000), (WorkKind::Batch, 0)] {
            let odd = rounds(Some((kind, [ns; 3]))).check();
            assert!(
                matches!(odd, Err(CalibrateError::Nonsense { ns: found, .. }) if found == ns),
                "{kind:?}: {odd:?}"
            );
        }
    }
}
