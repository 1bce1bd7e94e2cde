//! Which pages of a chunk are zero.

/// Pages of the largest chunk.
pub const MOST_PAGES: usize = 512;

/// Words that are looked at before the next decision: a line of the cache.
const LINE: usize = 8;

/// A set of pages of one chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pages {
    bits: [u64; MOST_PAGES / 64],
}

impl Pages {
    /// No page.
    pub const NONE: Self = Self { bits: [0; MOST_PAGES / 64] };

    /// The pages from `first` to before `end`.
    pub fn between(first: usize, end: usize) -> Self {
        let mut pages = Self::NONE;
        (first..end.min(MOST_PAGES)).for_each(|page| pages.add(page));
        pages
    }

    /// The pages of both sets.
    pub fn or(&self, other: &Self) -> Self {
        self.with(other, |left, right| left | right)
    }

    /// The pages that both sets have.
    pub fn and(&self, other: &Self) -> Self {
        self.with(other, |left, right| left & right)
    }

    /// The pages that the other set does not have.
    pub fn without(&self, other: &Self) -> Self {
        self.with(other, |left, right| left & !right)
    }

    fn with(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let mut joined = *self;
        for (word, other) in joined.bits.iter_mut().zip(&other.bits) {
            *word = join(*word, *other);
        }
        joined
    }

    /// The first page, and the page after the last.
    pub fn bounds(&self) -> Option<(usize, usize)> {
        let first = (0..MOST_PAGES).find(|page| self.has(*page))?;
        let last = (first..MOST_PAGES).rev().find(|page| self.has(*page))?;
        Some((first, last.saturating_add(1)))
    }

    /// Adds a page.
    pub fn add(&mut self, page: usize) {
        if let Some(word) = self.bits.get_mut(page / 64) {
            *word |= 1 << (page % 64);
        }
    }

    /// Whether a page is in it.
    pub fn has(&self, page: usize) -> bool {
        self.bits.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// How many pages it has.
    pub fn count(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The first run of pages at or after `from`: its first page, and the page after its last.
    pub fn run(&self, from: usize) -> Option<(usize, usize)> {
        let first = (from..MOST_PAGES).find(|page| self.has(*page))?;
        let end = (first..MOST_PAGES).find(|page| !self.has(*page)).unwrap_or(MOST_PAGES);
        Some((first, end))
    }

    /// Those of `pages` that are zero. `read` gives the address at which a page can be read.
    pub fn zero_of(pages: &Self, page_size: usize, mut read: impl FnMut(usize) -> *const u64) -> Self {
        let mut zero = Self::NONE;
        let mut from = 0_usize;
        while let Some((first, end)) = pages.run(from) {
            for page in first..end {
                // SAFETY: the caller gives addresses of whole readable pages.
                if unsafe { is_zero(read(page), page_size) } {
                    zero.add(page);
                }
            }
            from = end;
        }
        zero
    }
}

/// Whether a page is zero. Another thread may write to it meanwhile: each word is read once, and what was read is no more than
/// what it was at that moment.
///
/// # Safety
/// A whole page of `bytes` bytes can be read there.
unsafe fn is_zero(page: *const u64, bytes: usize) -> bool {
    let words = bytes / size_of::<u64>();
    let mut at = 0_usize;
    while at < words {
        let mut any = 0_u64;
        for next in at..at.saturating_add(LINE) {
            // SAFETY: within the page, which is a multiple of a line.
            any |= unsafe { page.add(next).read_volatile() };
        }
        if any != 0 {
            return false;
        }
        at = at.saturating_add(LINE);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_found_up_to_the_last_page() {
        let mut pages = Pages::NONE;
        [0, 1, 5, 64, 511].into_iter().for_each(|page| pages.add(page));
        let mut runs = Vec::new();
        let mut from = 0;
        while let Some((first, end)) = pages.run(from) {
            runs.push((first, end));
            from = end;
        }
        assert_eq!(runs, [(0, 2), (5, 6), (64, 65), (511, 512)]);
        assert_eq!(
            (pages.count(), Pages::between(0, 512).run(0), Pages::between(0, 0).run(0)),
            (5, Some((0, 512)), None)
        );
    }

    proptest! {
        #[test]
        fn one_byte_anywhere_is_seen(at in 0_usize..4096, value in 1_u8..) {
            let mut page = vec![0_u64; 512];
            let is_zero_at = |page: &[u64]| {
                let start = page.as_ptr();
                Pages::zero_of(&Pages::between(0, 1), 4096, |_| start).has(0)
            };
            prop_assert!(is_zero_at(&page));
            page[at / 8] |= u64::from(value) << (at % 8 * 8);
            prop_assert!(!is_zero_at(&page));
        }

        #[test]
        fn only_pages_that_were_asked_for_are_found(asked in proptest::collection::btree_set(0_usize..512, 0..40)) {
            let page = vec![0_u64; 512];
            let mut pages = Pages::NONE;
            asked.iter().for_each(|page| pages.add(*page));
            let found = Pages::zero_of(&pages, 4096, |_| page.as_ptr());
            prop_assert_eq!(found, pages);
        }
    }
}
