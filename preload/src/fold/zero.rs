//! Which pages of a chunk are zero.

/// Pages of the largest chunk.
pub const MOST_PAGES: usize = 512;

/// Bytes of a line of the cache.
pub const LINE: usize = 64;

/// Bytes that are looked at before the next decision.
const BLOCK: usize = 256;

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
        for (word, bits) in pages.bits.iter_mut().enumerate() {
            let before = |page: usize| match page.saturating_sub(word * 64) {
                count @ 0..64 => (1_u64 << count).wrapping_sub(1),
                _ => u64::MAX,
            };
            *bits = before(end) & !before(first);
        }
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

    /// Adds a page.
    pub fn add(&mut self, page: usize) {
        if let Some(word) = self.bits.get_mut(page / 64) {
            *word |= 1 << (page % 64);
        }
    }

    /// Whether a page is in it.
    #[cfg(test)]
    pub fn has(&self, page: usize) -> bool {
        self.bits.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// How many pages it has.
    pub fn count(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The first run of pages at or after `from`: its first page, and the page after its last.
    pub fn run(&self, from: usize) -> Option<(usize, usize)> {
        let first = self.next(from, |word| word)?;
        Some((first, self.next(first, |word| !word).unwrap_or(MOST_PAGES)))
    }

    /// The first page at or after `from` that is set in what `seen` makes of the words.
    fn next(&self, from: usize, seen: impl Fn(u64) -> u64) -> Option<usize> {
        let words = self.bits.iter().enumerate().skip(from / 64);
        words.into_iter().find_map(|(number, word)| {
            let skipped = from.saturating_sub(number * 64);
            let bits = seen(*word) >> skipped << skipped;
            (bits != 0).then(|| number * 64 + bits.trailing_zeros() as usize)
        })
    }

    /// The last page.
    pub fn last(&self) -> Option<usize> {
        let mut words = self.bits.iter().enumerate().rev();
        words.find_map(|(number, word)| Some(number * 64 + word.checked_ilog2()? as usize))
    }

    /// Passes each page to `each`, in their order.
    pub fn each(&self, mut each: impl FnMut(usize)) {
        for (number, word) in self.bits.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                each(number * 64 + left.trailing_zeros() as usize);
                left &= left.wrapping_sub(1);
            }
        }
    }

    /// Those of `pages` that may be zero by their first lines. `read` gives the address at which a page can be read.
    pub fn likely_of(pages: &Self, page_size: usize, read: &dyn Fn(usize) -> *const u64) -> Self {
        let mut found = Self::NONE;
        pages.each(|page| {
            let first = read(page);
            ahead(first.wrapping_byte_add(page_size * AHEAD));
            // SAFETY: the caller gives addresses of whole readable pages.
            if unsafe { is_line_zero(first) } {
                found.add(page);
            }
        });
        found
    }

    /// The same where the first lines of these pages lie one behind another.
    pub fn likely_of_lines(pages: &Self, lines: *const u64) -> Self {
        let mut found = Self::NONE;
        let mut line = lines;
        pages.each(|page| {
            // SAFETY: the caller gives a line for each page.
            if unsafe { is_line_zero(line) } {
                found.add(page);
            }
            line = line.wrapping_byte_add(LINE);
        });
        found
    }

    /// Those of `pages` that are zero. `read` gives the address at which a page can be read.
    pub fn zero_of(pages: &Self, page_size: usize, read: &dyn Fn(usize) -> *const u64) -> Self {
        // SAFETY: the caller gives addresses of whole readable pages.
        pages.those(read, |page| unsafe { is_zero(page, page_size) })
    }

    fn those(&self, read: &dyn Fn(usize) -> *const u64, mut is_one: impl FnMut(*const u64) -> bool) -> Self {
        let mut found = Self::NONE;
        let mut from = 0_usize;
        while let Some((first, end)) = self.run(from) {
            (first..end).filter(|page| is_one(read(*page))).for_each(|page| found.add(page));
            from = end;
        }
        found
    }
}

/// Pages that are asked for before they are looked at: a page at another place of memory takes as long as some lines of one.
const AHEAD: usize = 8;

/// Has the processor read a line, if it can. Any address may be given.
fn ahead(line: *const u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes nothing, and an address that can't be read is ignored.
    unsafe {
        core::arch::asm!("prefetcht0 [{line}]", line = in(reg) line, options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Whether a page is zero. Another thread may write to it meanwhile: each byte is read once, and what was read is no more than
/// what it was at that moment.
///
/// # Safety
/// A whole page of `bytes` bytes can be read there.
unsafe fn is_zero(page: *const u64, bytes: usize) -> bool {
    // Most pages that are not zero show it in their first line.
    // SAFETY: a page is a multiple of a block, which is a multiple of a line.
    unsafe { is_line_zero(page) && (0..bytes / BLOCK).all(|block| is_block_zero(page.byte_add(block * BLOCK))) }
}

/// Whether a line of the cache is zero.
///
/// # Safety
/// It can be read.
unsafe fn is_line_zero(line: *const u64) -> bool {
    let mut any = 0_u64;
    for word in 0..LINE / size_of::<u64>() {
        // SAFETY: within the line.
        any |= unsafe { line.add(word).read_volatile() };
    }
    any == 0
}

/// Whether a block is zero.
///
/// # Safety
/// It can be read, and begins at a multiple of 16.
#[cfg(target_arch = "x86_64")]
unsafe fn is_block_zero(block: *const u64) -> bool {
    let bytes: u32;
    // By instructions of our own: the compiler joins no volatile reads, and other reads must not race with writers.
    // SAFETY: reads the block only; SSE2 is part of the architecture.
    unsafe {
        core::arch::asm!(
            // Ahead, also over the end of the page: the processor's own reading ahead stops there.
            "prefetcht0 [{block} + 1024]",
            "prefetcht0 [{block} + 1088]",
            "prefetcht0 [{block} + 1152]",
            "prefetcht0 [{block} + 1216]",
            "movdqa {a}, [{block}]",
            "movdqa {b}, [{block} + 16]",
            "por {a}, [{block} + 32]",
            "por {b}, [{block} + 48]",
            "por {a}, [{block} + 64]",
            "por {b}, [{block} + 80]",
            "por {a}, [{block} + 96]",
            "por {b}, [{block} + 112]",
            "por {a}, [{block} + 128]",
            "por {b}, [{block} + 144]",
            "por {a}, [{block} + 160]",
            "por {b}, [{block} + 176]",
            "por {a}, [{block} + 192]",
            "por {b}, [{block} + 208]",
            "por {a}, [{block} + 224]",
            "por {b}, [{block} + 240]",
            "por {a}, {b}",
            "pxor {b}, {b}",
            "pcmpeqb {a}, {b}",
            "pmovmskb {bytes:e}, {a}",
            block = in(reg) block,
            bytes = out(reg) bytes,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            options(nostack, readonly),
        );
    }
    bytes == 0xffff
}

/// Whether a block is zero.
///
/// # Safety
/// It can be read, and begins at a multiple of 16.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn is_block_zero(block: *const u64) -> bool {
    // SAFETY: lines of the block.
    (0..BLOCK / LINE).all(|line| unsafe { is_line_zero(block.byte_add(line * LINE)) })
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

    /// Pages at which a set begins or ends.
    fn edge() -> impl Strategy<Value = usize> {
        prop_oneof![0_usize..=512, (0_usize..=8).prop_map(|word| word * 64)]
    }

    proptest! {
        #[test]
        fn runs_are_those_of_the_single_pages(first in edge(), end in edge(), more in proptest::collection::vec(0_usize..512, 0..9), from in edge()) {
            let mut pages = Pages::between(first, end);
            more.iter().for_each(|page| pages.add(*page));
            let is_in = |page: usize| (first..end).contains(&page) || more.contains(&page);
            prop_assert!((0..512).all(|page| pages.has(page) == is_in(page)));
            let run = (from..512).find(|page| is_in(*page));
            let run = run.map(|run| (run, (run..512).find(|page| !is_in(*page)).unwrap_or(512)));
            prop_assert_eq!(pages.run(from), run);
            let last = (0..512).rev().find(|page| is_in(*page));
            prop_assert_eq!(pages.last(), last);
            let mut all = Vec::new();
            pages.each(|page| all.push(page));
            prop_assert_eq!(all, (0..512).filter(|page| is_in(*page)).collect::<Vec<_>>());
        }

        #[test]
        fn one_byte_anywhere_is_seen(at in 0_usize..4096, value in 1_u8..) {
            let mut page = vec![0_u64; 512];
            let is_zero_at = |page: &[u64]| {
                let start = page.as_ptr();
                Pages::zero_of(&Pages::between(0, 1), 4096, &|_| start).has(0)
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
            let found = Pages::zero_of(&pages, 4096, &|_| page.as_ptr());
            prop_assert_eq!(found, pages);
        }
    }
}
