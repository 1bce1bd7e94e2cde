//! Plans of simulated guests: their contents, their start and end, and their writes.

use std::time::Duration;

use super::content::{UNIQUE, ZERO};

/// The plan of a guest: the parts of its memory, and its life.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestPlan {
    pub(super) name: String,
    parts: Vec<PlanPart>,
    pub(super) starts: Duration,
    pub(super) stops: Option<Duration>,
    pub(super) load_permille: u32,
    pub(super) is_huge: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlanPart {
    Equal { label: u16, pages: u32 },
    Zero { pages: u32 },
    Mixed { label: u16, pages: u32 },
    Unique { pages: u32 },
    Rewritten { pages: u32, every: Duration },
    Settling { label: u16, pages: u32, after: Duration },
    Growing { label: u16, pages: u32, over: Duration },
}

impl PlanPart {
    fn pages(self) -> u32 {
        match self {
            Self::Equal { pages, .. }
            | Self::Zero { pages }
            | Self::Mixed { pages, .. }
            | Self::Unique { pages }
            | Self::Settling { pages, .. }
            | Self::Growing { pages, .. }
            | Self::Rewritten { pages, .. } => pages,
        }
    }

    /// The content of its run number `index` of `run_pages` pages at the start.
    fn content(self, index: u32, run_pages: u32) -> u64 {
        match self {
            Self::Equal { label, .. } | Self::Growing { label, .. } => equal_content(label, index),
            Self::Mixed { label, .. } => match mixed_kind(u64::from(index) * u64::from(run_pages)) {
                MixedKind::Equal => equal_content(label, index),
                MixedKind::Zero => ZERO,
                MixedKind::Unique => UNIQUE,
            },
            Self::Zero { .. } => ZERO,
            Self::Unique { .. } | Self::Rewritten { .. } | Self::Settling { .. } => UNIQUE,
        }
    }

    /// Its length in runs, to the nearest.
    fn runs(self, run_pages: u32) -> u32 {
        let run_pages = run_pages.max(1);
        self.pages() / run_pages + u32::from(self.pages() % run_pages * 2 >= run_pages && run_pages > 1)
    }
}

/// A part that is rewritten, and its place, in runs of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RewrittenPart {
    pub first: u32,
    pub runs: u32,
    pub every: Duration,
}

impl GuestPlan {
    /// Plans a guest without memory that starts at once and does not end.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// Adds `pages` different pages, equal to the same pages of every guest that uses the same label.
    #[must_use]
    pub fn equal(self, label: u16, pages: u32) -> Self {
        self.with(PlanPart::Equal { label, pages })
    }

    /// Adds empty pages.
    #[must_use]
    pub fn zero(self, pages: u32) -> Self {
        self.with(PlanPart::Zero { pages })
    }

    /// Adds pages of all kinds in turns ([`mixed_kind`]), so that no huge page is of one kind.
    #[must_use]
    pub fn mixed(self, label: u16, pages: u32) -> Self {
        self.with(PlanPart::Mixed { label, pages })
    }

    /// Adds pages that no other page equals.
    #[must_use]
    pub fn unique(self, pages: u32) -> Self {
        self.with(PlanPart::Unique { pages })
    }

    /// Adds pages that no other page equals, each of which gets a new content once in `every`.
    #[must_use]
    pub fn rewritten(self, pages: u32, every: Duration) -> Self {
        self.with(PlanPart::Rewritten { pages, every })
    }

    /// Adds pages that no other page equals at first, and that are equal, `after` its start, to the same pages of every
    /// guest that uses the same label.
    #[must_use]
    pub fn settling(self, label: u16, pages: u32, after: Duration) -> Self {
        self.with(PlanPart::Settling { label, pages, after })
    }

    /// Adds memory that the guest takes bit by bit, `over` that time from its start. Its pages are equal to the same
    /// pages of every guest that uses the same label, and lie behind all other parts.
    #[must_use]
    pub fn growing(self, label: u16, pages: u32, over: Duration) -> Self {
        self.with(PlanPart::Growing { label, pages, over })
    }

    /// Sets its start, as a time since boot.
    #[must_use]
    pub fn starting_at(mut self, at: Duration) -> Self {
        self.starts = at;
        self
    }

    /// Sets its end, as a time since boot.
    #[must_use]
    pub fn stopping_at(mut self, at: Duration) -> Self {
        self.stops = Some(at);
        self
    }

    /// Sets the CPU that it always uses, in thousandths of one CPU.
    #[must_use]
    pub fn busy(mut self, permille: u32) -> Self {
        self.load_permille = permille;
        self
    }

    /// Has its memory be in huge pages.
    #[must_use]
    pub fn huge(mut self) -> Self {
        self.is_huge = true;
        self
    }

    fn with(mut self, part: PlanPart) -> Self {
        self.parts.push(part);
        self
    }

    /// Returns true if its memory is in huge pages.
    pub fn is_huge(&self) -> bool {
        self.is_huge
    }

    /// The name of its guest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its start, as a time since boot.
    pub fn starts(&self) -> Duration {
        self.starts
    }

    /// Its end, as a time since boot, if it has one.
    pub fn stops(&self) -> Option<Duration> {
        self.stops
    }

    /// The number of its pages, once all of them are there.
    pub fn pages(&self) -> u64 {
        self.parts.iter().map(|part| u64::from(part.pages())).sum()
    }

    /// Its contents, one for each run of `run_pages` pages.
    pub(super) fn contents(&self, run_pages: u32) -> impl Iterator<Item = u64> {
        let here = self.parts.iter().filter(|part| !matches!(part, PlanPart::Growing { .. }));
        here.flat_map(move |part| (0..part.runs(run_pages)).map(move |index| part.content(index, run_pages)))
    }

    /// The contents of part number `part` at the start, one for each run of `run_pages` pages, each with its place in
    /// the guest.
    pub fn part_contents(&self, part: usize, run_pages: u32) -> impl Iterator<Item = (usize, u64)> {
        let first: u32 = self.parts.iter().take(part).map(|part| part.runs(run_pages)).sum();
        let runs = self
            .parts
            .get(part)
            .map(|part| (0..part.runs(run_pages)).map(move |index| part.content(index, run_pages)));
        runs.into_iter().flatten().enumerate().map(move |(index, content)| (first as usize + index, content))
    }

    /// The parts that have their lasting content later, and that grow.
    pub(super) fn later_parts(&self, run_pages: u32) -> impl Iterator<Item = LaterPart> {
        let mut first = 0;
        self.parts.iter().filter_map(move |&part| {
            let (here, runs) = (first, part.runs(run_pages));
            if !matches!(part, PlanPart::Growing { .. }) {
                first += runs;
            }
            match part {
                PlanPart::Settling { label, after, .. } => {
                    Some(LaterPart::Settles { first: here, runs, label, after })
                }
                PlanPart::Growing { label, over, .. } => Some(LaterPart::Grows { runs, label, over }),
                _ => None,
            }
        })
    }

    pub(super) fn rewritten_parts(&self, run_pages: u32) -> impl Iterator<Item = RewrittenPart> {
        let mut first = 0;
        self.parts.iter().filter_map(move |&part| {
            let here = first;
            let runs = part.runs(run_pages);
            if !matches!(part, PlanPart::Growing { .. }) {
                first += runs;
            }
            match part {
                PlanPart::Rewritten { every, .. } => Some(RewrittenPart { first: here, runs, every }),
                _ => None,
            }
        })
    }
}

/// A part that is not there, or not as it will be, from the start. In runs of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaterPart {
    Settles { first: u32, runs: u32, label: u16, after: Duration },
    Grows { runs: u32, label: u16, over: Duration },
}

/// The kind of a page of a mixed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MixedKind {
    /// Equal to the same page of other guests.
    Equal,
    /// An empty page.
    Zero,
    /// Equal to no other page.
    Unique,
}

/// The kind of page number `page` of a mixed part: of each 256 pages the first 64 are equal, the next 64 empty, the rest unique.
pub fn mixed_kind(page: u64) -> MixedKind {
    match page / 64 % 4 {
        0 => MixedKind::Equal,
        1 => MixedKind::Zero,
        _ => MixedKind::Unique,
    }
}

/// The content of page number `index`, or of the run with that number, of the parts with this label.
pub fn equal_content(label: u16, index: u32) -> u64 {
    1 << 48 | u64::from(label) << 32 | u64::from(index)
}

/// Plans `count` equal guests, named `name-1`, `name-2` and so on.
pub fn clones(count: u32, name: &str, make: impl Fn(GuestPlan) -> GuestPlan) -> Vec<GuestPlan> {
    (1..=count).map(|number| make(GuestPlan::new(format!("{name}-{number}")))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::mergeable_pages;
    use super::*;

    #[test]
    fn equal_parts_of_one_label_can_merge_and_others_cannot() {
        let plans = clones(4, "vm", |plan| plan.equal(0, 100).zero(10).unique(50).rewritten(5, Duration::ZERO));
        assert_eq!(plans[3].name, "vm-4");
        assert_eq!(plans[0].pages(), 165);
        // Three of four copies of each page, and all empty pages but one frame's worth.
        assert_eq!(mergeable_pages(&plans, 256, false), 300 + 39);
        assert_eq!(mergeable_pages(&plans, 256, true), 300 + 40);
        assert_eq!(mergeable_pages(&plans, 2, true), 200 + 40);
        let apart = [GuestPlan::new("a").equal(1, 100), GuestPlan::new("b").equal(2, 100)];
        assert_eq!(mergeable_pages(&apart, 256, false), 0);
    }

    #[test]
    fn a_rewritten_part_knows_its_place() {
        let plan = GuestPlan::new("a").zero(3).rewritten(5, Duration::from_secs(1)).unique(2);
        let parts: Vec<_> = plan.rewritten_parts(1).collect();
        assert_eq!(parts, [RewrittenPart { first: 3, runs: 5, every: Duration::from_secs(1) }]);
    }
}
