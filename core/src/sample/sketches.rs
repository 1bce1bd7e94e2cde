//! The sketches of all guests, and the overlap of new guests with others that they show.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{ContentBloomFilter, GuestSketch, ProcessId, SketchedPage};

/// The sketches of a host's guests at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostSketches {
    /// One for each guest that could be read.
    pub guests: Vec<Arc<GuestSketch>>,
    /// The passes of ksmd that had ended when the merged pages were last read.
    pub full_scans: u64,
    /// Bytes of a page.
    pub page_size: u64,
}

/// An estimate in bytes, with its standard error.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ByteEstimate {
    /// The mean of the estimate.
    pub bytes: f64,
    /// The standard error.
    pub error: f64,
}

/// The matches of new guests' unmerged pages. Each page counts once, in the first class that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SketchMatches {
    /// Contents that are merged in another guest, and empty pages.
    pub merged: ByteEstimate,
    /// Contents that another guest holds unmerged.
    pub unmerged: ByteEstimate,
    /// Contents that new guests alone hold: bytes that merging them with each other saves, at least.
    pub new: ByteEstimate,
    /// Bytes of the new guests that have a sketch.
    pub new_bytes: f64,
    /// Bytes of the other guests that have a sketch.
    pub other_bytes: f64,
}

impl SketchMatches {
    /// Returns the bytes of all classes.
    pub fn all(&self) -> ByteEstimate {
        let Self { merged, unmerged, new, .. } = self;
        ByteEstimate {
            bytes: merged.bytes + unmerged.bytes + new.bytes,
            error: merged.error.hypot(unmerged.error).hypot(new.error),
        }
    }
}

/// The most new guests that are remembered for each content. More make no difference to a lower bound.
const REMEMBERED: usize = 2;

/// A content that new guests hold.
#[derive(Debug, Clone, Copy, Default)]
struct SharedContent {
    /// Unmerged pages of new guests: each kept page stands for `1 / part`.
    new: f64,
    /// Unmerged pages of other guests.
    unmerged: f64,
    /// Merged pages of all guests.
    merged: f64,
    /// The most pages that were seen to share a merged frame of it.
    mappings: u64,
    /// The first new guests that hold it unmerged, with what their page stands for.
    first: [Option<(usize, f64)>; REMEMBERED],
}

impl HostSketches {
    /// Estimates the matches of new guests' unmerged pages in others. A guest that is neither is left out.
    ///
    /// Each pair of a new page and another counts `1 / (rate * part * other_part)`, and the pages that share a merged
    /// frame count as one. For contents that new guests alone hold, pairs would count some pages twice: so each guest
    /// counts only its overlap with the one before it with which it overlaps most.
    pub fn matches(
        &self,
        is_new: impl Fn(ProcessId) -> bool,
        is_other: impl Fn(ProcessId) -> bool,
    ) -> SketchMatches {
        let guests = || self.guests.iter().filter(|guest| guest.read > 0);
        let halvings = guests().map(|guest| guest.halvings).max().unwrap_or(0);
        let new: Vec<&GuestSketch> = guests().filter(|guest| is_new(guest.id)).map(Arc::as_ref).collect();
        let others = guests().filter(|guest| !is_new(guest.id) && is_other(guest.id));
        let mut contents: FxHashMap<u64, SharedContent> = FxHashMap::default();
        let of_new = new.iter().map(|guest| guest.kept().len()).sum();
        contents.reserve(of_new);
        let mut seen = ContentBloomFilter::with_capacity(of_new);
        let mut found = SketchMatches::default();
        let mut empty = ByteEstimate::default();
        for guest in &new {
            found.new_bytes += guest.pages as f64;
            let weight = 1.0 / guest.part();
            empty.bytes += guest.empty as f64 * weight;
            empty.error = empty.error.hypot((guest.empty as f64 * (1.0 - guest.part())).sqrt() * weight);
            for page in guest.kept().iter().filter(|page| page.is_kept(halvings)) {
                seen.add(page.content());
                let content = contents.entry(page.content()).or_default();
                match page.mappings() {
                    0 => content.new += weight,
                    mappings => content.add_merged(weight, mappings),
                }
            }
        }
        for guest in others {
            found.other_bytes += guest.pages as f64;
            let weight = 1.0 / guest.part();
            let may_be_common = |page: &&SketchedPage| page.is_kept(halvings) && seen.may_be_once(page.content());
            for page in guest.kept().iter().filter(may_be_common) {
                if let Some(content) = contents.get_mut(&page.content()) {
                    match page.mappings() {
                        0 => content.unmerged += weight,
                        mappings => content.add_merged(weight, mappings),
                    }
                }
            }
        }
        let each = f64::from(halvings).exp2();
        let (mut merged, mut unmerged) = (SampledSum::default(), SampledSum::default());
        for content in contents.values().filter(|content| content.new > 0.0) {
            let class = if content.merged > 0.0 { &mut merged } else { &mut unmerged };
            class.add(content.new * content.elsewhere() * each);
        }
        let mut common: FxHashMap<(usize, usize), SampledSum> = FxHashMap::default();
        for (number, guest) in new.iter().enumerate() {
            for page in guest.kept().iter().filter(|page| page.is_kept(halvings) && page.mappings() == 0) {
                if let Some(content) = contents.get_mut(&page.content()) {
                    content.meet(number, 1.0 / guest.part(), each, &mut common);
                }
            }
        }
        let most_common = (0..new.len()).map(|guest| most_common(&common, guest));
        found.merged = merged.estimate();
        found.merged.bytes += empty.bytes;
        found.merged.error = found.merged.error.hypot(empty.error);
        found.unmerged = unmerged.estimate();
        found.new = most_common.fold(SampledSum::default(), SampledSum::and).estimate();
        found.in_bytes(self.page_size as f64)
    }
}

impl SketchMatches {
    /// Turns pages into bytes. No class has more than new guests hold.
    fn in_bytes(mut self, page_size: f64) -> Self {
        let most = self.new_bytes;
        for class in [&mut self.merged, &mut self.unmerged, &mut self.new] {
            *class = ByteEstimate { bytes: class.bytes.min(most) * page_size, error: class.error * page_size };
        }
        Self { new_bytes: self.new_bytes * page_size, other_bytes: self.other_bytes * page_size, ..self }
    }
}

impl SharedContent {
    fn add_merged(&mut self, weight: f64, mappings: u64) {
        self.merged += weight;
        self.mappings = self.mappings.max(mappings);
    }

    /// Returns the estimated copies of the content elsewhere, a merged frame counting once. 0 where none was seen; the
    /// estimate is unbiased.
    fn elsewhere(&self) -> f64 {
        if self.merged > 0.0 { self.merged / self.mappings.max(1) as f64 } else { self.unmerged }
    }

    /// Pairs the page of a new guest with those of the guests before it, and subtracts the pairs that are elsewhere
    /// too.
    fn meet(&mut self, guest: usize, weight: f64, each: f64, common: &mut FxHashMap<(usize, usize), SampledSum>) {
        let alone = 1.0 - self.elsewhere();
        for first in &mut self.first {
            match *first {
                Some((before, _)) if before == guest => return,
                Some((before, other)) => {
                    common.entry((before, guest)).or_default().add(weight * other * each * alone)
                }
                None => {
                    *first = Some((guest, weight));
                    return;
                }
            }
        }
    }
}

/// Returns the largest overlap of a new guest with one before it. Pairs that are elsewhere may be subtracted too often:
/// a negative overlap counts as 0, with its error.
fn most_common(common: &FxHashMap<(usize, usize), SampledSum>, guest: usize) -> SampledSum {
    let pairs = (0..guest).filter_map(|before| common.get(&(before, guest)));
    let most = pairs.max_by(|one, other| one.pages.total_cmp(&other.pages)).copied().unwrap_or_default();
    SampledSum { pages: most.pages.max(0.0), ..most }
}

/// A sum of weights of contents, each of which is in the sample or not.
#[derive(Debug, Clone, Copy, Default)]
struct SampledSum {
    pages: f64,
    squares: f64,
}

impl SampledSum {
    fn add(&mut self, weight: f64) {
        self.pages += weight;
        self.squares += weight * weight;
    }

    fn and(self, other: Self) -> Self {
        Self { pages: self.pages + other.pages, squares: self.squares + other.squares }
    }

    fn estimate(self) -> ByteEstimate {
        ByteEstimate { bytes: self.pages, error: self.squares.sqrt() }
    }
}
