//! The sketch of one guest: fingerprints of some of its pages, in bounded memory.
//!
//! Pages are drawn at random, and of those the contents are kept that have a small fingerprint: the same contents in
//! all guests (coordinated sampling, as in [`crate::sketch`]). So two guests' sketches have a content of both with the
//! chance `part * other_part * rate`.

use super::ProcessId;

/// A kept page: its place, its content and its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SketchedPage([u32; 3]);

/// Bits of a place, of a fingerprint and of a count of mappings.
const PLACE_BITS: u32 = 36;
const FINGERPRINT_BITS: u32 = 48;
const MOST_MAPPINGS: u64 = (1 << (96 - PLACE_BITS - FINGERPRINT_BITS)) - 1;

impl SketchedPage {
    /// Packs a page. `place` is its number in the guest's address space, of which 36 bits count. `mappings` is the
    /// number of pages that share its merged frame, 0 where it has a frame of its own.
    fn new(place: u64, fingerprint: u64, mappings: u64) -> Self {
        let fingerprint = fingerprint >> (64 - FINGERPRINT_BITS);
        let rest = place << (64 - PLACE_BITS) | mappings.min(MOST_MAPPINGS) << 16 | fingerprint & 0xffff;
        Self([(fingerprint >> 16) as u32, (rest >> 32) as u32, rest as u32])
    }

    fn rest(self) -> u64 {
        u64::from(self.0[1]) << 32 | u64::from(self.0[2])
    }

    /// Returns the page's number in the guest's address space.
    pub fn place(self) -> u64 {
        self.rest() >> (64 - PLACE_BITS)
    }

    /// Returns the upper 48 bits of its fingerprint.
    pub fn content(self) -> u64 {
        u64::from(self.0[0]) << 16 | self.rest() & 0xffff
    }

    /// Returns the number of pages that share its merged frame; 0 if it has a frame of its own.
    pub fn mappings(self) -> u64 {
        self.rest() >> 16 & MOST_MAPPINGS
    }

    /// Returns true if the content is kept after so many halvings.
    pub fn is_kept(self, halvings: u32) -> bool {
        self.content().leading_zeros() - (64 - FINGERPRINT_BITS) >= halvings
    }
}

impl std::fmt::Debug for SketchedPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}: {:012x} x{}", self.place(), self.content(), self.mappings())
    }
}

/// A page as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPage {
    /// Its number in the guest's address space.
    pub place: u64,
    /// Equal for equal contents, different for different ones, and spread evenly. 0 for an empty page.
    pub fingerprint: u64,
    /// Pages that share its merged frame, 0 where it has a frame of its own.
    pub mappings: u64,
}

/// The sketch of one guest.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestSketch {
    /// The guest's process.
    pub id: ProcessId,
    /// Pages that the guest had when it was read.
    pub pages: u64,
    /// Of these, pages that were read.
    pub read: u64,
    /// Of these, empty pages with a frame of their own.
    pub empty: u64,
    /// The contents that are kept: `2^-halvings` of all.
    pub halvings: u32,
    kept: Vec<SketchedPage>,
}

impl GuestSketch {
    /// The most memory of a sketch, in bytes.
    pub const BYTES: usize = 32 << 10;

    /// The most pages that are kept.
    const KEPT: usize = (Self::BYTES - size_of::<Self>()) / size_of::<SketchedPage>();

    /// Returns the number of pages to read of a guest of so many pages.
    ///
    /// A sixth of a small guest shows its overlap with others: of each 1,000 pages that two guests have in common 28
    /// are read in both. Of a guest of more than 1 GiB no more are read than of that, and each read page is kept one
    /// time in 16.
    pub fn pages_to_read(pages: u64) -> u64 {
        const KEPT: u64 = GuestSketch::KEPT as u64;
        (pages / 6).clamp(2 * KEPT, 16 * KEPT)
    }

    /// Creates the sketch of a guest of so many pages, none of which is read yet.
    pub fn new(id: ProcessId, pages: u64) -> Self {
        Self { id, pages, read: 0, empty: 0, halvings: 0, kept: Vec::with_capacity(Self::KEPT) }
    }

    /// Returns true if a page with this fingerprint is kept, or counted as empty. Once false, it stays false.
    pub fn keeps(&self, fingerprint: u64) -> bool {
        fingerprint == 0 || fingerprint.leading_zeros() >= self.halvings
    }

    /// Frees the memory that no page uses.
    pub fn shrink(&mut self) {
        self.kept.shrink_to_fit();
    }

    /// Adds a page.
    pub fn add(&mut self, page: ReadPage) {
        self.read += 1;
        if page.fingerprint == 0 {
            self.empty += u64::from(page.mappings == 0);
            return;
        }
        let page = SketchedPage::new(page.place, page.fingerprint, page.mappings);
        if !page.is_kept(self.halvings) {
            return;
        }
        while self.kept.len() >= Self::KEPT {
            self.halvings += 1;
            let halvings = self.halvings;
            self.kept.retain(|page| page.is_kept(halvings));
        }
        if page.is_kept(self.halvings) {
            self.kept.push(page);
        }
    }

    /// Updates the kept pages at some places by a second reading. A page that holds another content, or that is gone
    /// (`None`), is dropped.
    #[must_use]
    pub fn with_second_reading(&self, now: &rustc_hash::FxHashMap<u64, Option<ReadPage>>) -> Self {
        let look = |page: &SketchedPage| match now.get(&page.place()) {
            None => Some(*page),
            Some(read) => {
                let read = (*read)?;
                let found = SketchedPage::new(read.place, read.fingerprint, read.mappings);
                (found.content() == page.content()).then_some(found)
            }
        };
        Self { kept: self.kept.iter().filter_map(look).collect(), ..self.clone_without_pages() }
    }

    fn clone_without_pages(&self) -> Self {
        Self { kept: Vec::new(), ..*self }
    }

    /// Returns the pages that are kept.
    pub fn kept(&self) -> &[SketchedPage] {
        &self.kept
    }

    /// Returns the part of the guest's pages that was read, 0 to 1.
    pub fn part(&self) -> f64 {
        (self.read as f64 / self.pages.max(1) as f64).min(1.0)
    }

    /// Returns the memory that it uses, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.kept.capacity() * size_of::<SketchedPage>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sketch::mix;

    const ID: ProcessId = ProcessId { pid: 1, start_ticks: 1 };

    proptest! {
        #[test]
        fn a_kept_page_is_what_was_put_in(place in 0_u64..1 << 36, fingerprint: u64, mappings in 0_u64..5000) {
            let page = SketchedPage::new(place, fingerprint, mappings);
            prop_assert_eq!(page.place(), place);
            prop_assert_eq!(page.content(), fingerprint >> 16);
            prop_assert_eq!(page.mappings(), mappings.min(4095));
            for halvings in 0..40 {
                prop_assert_eq!(page.is_kept(halvings), fingerprint.leading_zeros().min(48) >= halvings);
            }
        }
    }

    #[test]
    fn however_large_the_guest_its_sketch_is_bounded_and_keeps_an_even_part() {
        for pages in [100, 10_000, 1_000_000] {
            let mut sketch = GuestSketch::new(ID, pages);
            (0..pages).for_each(|place| sketch.add(ReadPage { place, fingerprint: mix(place), mappings: 0 }));
            assert!(sketch.bytes() <= GuestSketch::BYTES, "{} bytes", sketch.bytes());
            let expected = pages as f64 * 0.5_f64.powi(sketch.halvings as i32);
            let found = sketch.kept().len() as f64;
            assert!((found - expected).abs() <= 4.0 * expected.sqrt(), "{found} of {expected}");
            assert!(sketch.kept().len() * 3 > GuestSketch::KEPT || sketch.halvings == 0);
        }
    }

    #[test]
    fn empty_pages_are_counted_and_not_kept() {
        let mut sketch = GuestSketch::new(ID, 10);
        for mappings in [0, 0, 1] {
            sketch.add(ReadPage { place: 1, fingerprint: 0, mappings });
        }
        assert_eq!((sketch.read, sketch.empty, sketch.kept().len(), sketch.part()), (3, 2, 0, 0.3));
    }

    #[test]
    fn a_second_look_finds_pages_merged_changed_or_gone() {
        let page = |place, fingerprint: u64, mappings| ReadPage { place, fingerprint: fingerprint << 32, mappings };
        let mut sketch = GuestSketch::new(ID, 4);
        (0..4).for_each(|place| sketch.add(page(place, place + 1, 0)));
        let now = [(0, Some(page(0, 1, 2))), (1, Some(page(1, 9, 0))), (2, None)].into_iter().collect();
        let again = sketch.with_second_reading(&now);
        let kept: Vec<_> = again.kept().iter().map(|page| (page.place(), page.mappings())).collect();
        assert_eq!(kept, [(0, 2), (3, 0)]);
    }
}
