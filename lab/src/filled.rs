//! A part of a guest's memory, filled with its content and checked against it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ksmith_core::sim::{MixedKind, mixed_kind};
use ksmith_core::sketch::mix;

use super::contents::MemoryPart;
use super::region::{Region, RegionKind};

/// The host's page size, which is the unit that ksmd compares.
pub(super) fn page_size() -> usize {
    rustix::param::page_size()
}

/// One part in memory. `generation` counts rewrites and is mixed into the content of rewritten pages.
pub(super) struct FilledPart {
    pub(super) part: MemoryPart,
    index: u64,
    generation: u64,
    region: Option<Region>,
}

impl FilledPart {
    /// Maps the part at `index` of its guest and fills it with its first content.
    ///
    /// # Errors
    /// The memory can't be mapped.
    pub(super) fn new(part: MemoryPart, index: usize, is_huge: bool) -> std::io::Result<Self> {
        let region = match part.pages() {
            0 => None,
            pages => Some(Region::of_kind(kind(part, is_huge), pages * page_size())?),
        };
        let mut filled = Self { part, index: index as u64, generation: 0, region };
        filled.fill();
        Ok(filled)
    }

    /// Keeps some pages in a pipe, as I/O in flight does.
    ///
    /// # Errors
    /// The kernel refuses the pipes.
    pub(super) fn hold(&mut self) -> std::io::Result<()> {
        self.region.as_mut().map_or(Ok(()), Region::hold)
    }

    /// Restores the first content.
    pub(super) fn refill(&mut self) {
        self.generation = 0;
        self.fill();
    }

    /// Sums the words of one page, so that the page is really read. `None` where the part has no such page.
    pub(super) fn read(&self, number: usize) -> Option<u64> {
        let page = self.region.as_ref()?.bytes().chunks_exact(page_size()).nth(number)?;
        Some(page.iter().fold(0, |sum: u64, &byte| sum.rotate_left(5).wrapping_add(u64::from(byte))))
    }

    /// Writes new content into one page of a `work` part.
    pub(super) fn write(&mut self, number: usize, round: u64) {
        let (part, index) = (self.part, self.index);
        let Some(region) = &mut self.region else { return };
        let Some(page) = region.bytes_mut().chunks_exact_mut(page_size()).nth(number) else { return };
        // Rounds count from 1, so that no two pages of this part ever hold the same content.
        fill_page(page, part, index, round, number);
    }

    /// Writes new content into every page, unique to this guest.
    pub(super) fn rewrite(&mut self) {
        self.generation += 1;
        self.fill();
    }

    fn fill(&mut self) {
        let (part, index, generation) = (self.part, self.index, self.generation);
        let Some(region) = &mut self.region else { return };
        for (number, page) in region.bytes_mut().chunks_exact_mut(page_size()).enumerate() {
            fill_page(page, part, index, generation, number);
        }
    }

    /// Counts the pages with wrong content. Pages that a worker rewrites are not checked.
    pub(super) fn wrong_pages(&self) -> usize {
        let Some(region) = self.region.as_ref().filter(|_| !matches!(self.part, MemoryPart::Work { .. })) else {
            return 0;
        };
        let is_wrong =
            |(number, page): &(usize, &[u8])| match stream(self.part, self.index, self.generation, *number) {
                None => page.iter().any(|&byte| byte != 0),
                Some(stream) => {
                    stream.zip(page.chunks_exact(8)).any(|(word, bytes)| bytes != word.to_ne_bytes().as_slice())
                }
            };
        region.bytes().chunks_exact(page_size()).enumerate().filter(is_wrong).count()
    }
}

/// Measures the time to write new content into this many pages.
///
/// # Errors
/// The memory can't be mapped.
pub(super) fn rewriting_time(pages: usize) -> std::io::Result<Duration> {
    let mut filled = FilledPart::new(MemoryPart::Unmarked { pages }, 0, false)?;
    let started = Instant::now();
    filled.rewrite();
    Ok(started.elapsed())
}

/// Locks a part, also after a thread that held it has panicked.
pub(super) fn lock(part: &Mutex<FilledPart>) -> MutexGuard<'_, FilledPart> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kind(part: MemoryPart, is_huge: bool) -> RegionKind {
    match part {
        MemoryPart::Shared { .. } => RegionKind::Shared,
        MemoryPart::Unmarked { .. } => RegionKind::Unmarked,
        MemoryPart::Hugetlb { .. } => RegionKind::Hugetlb,
        MemoryPart::Huge { .. } => RegionKind::Huge,
        _ if is_huge => RegionKind::Huge,
        _ => RegionKind::Mergeable,
    }
}

fn fill_page(page: &mut [u8], part: MemoryPart, index: u64, generation: u64, number: usize) {
    match stream(part, index, generation, number) {
        None => page.fill(0),
        Some(stream) => {
            for (word, bytes) in stream.zip(page.chunks_exact_mut(8)) {
                bytes.copy_from_slice(&word.to_ne_bytes());
            }
        }
    }
}

/// The words of one page, or `None` for a page of zeros. Two different streams differ in every word.
fn stream(part: MemoryPart, index: u64, generation: u64, number: usize) -> Option<impl Iterator<Item = u64>> {
    let number = number as u64;
    let own = || mix(u64::from(std::process::id()) << 32 | index << 16).wrapping_add(mix(generation));
    let origin = match part {
        MemoryPart::Zero { .. } if generation == 0 => return None,
        MemoryPart::Equal { seed, .. } | MemoryPart::Huge { seed, .. } if generation == 0 => {
            mix(seed ^ 0x6b73_6d69_7468).wrapping_add(number << 16)
        }
        MemoryPart::Mixed { seed, .. } if generation == 0 => match mixed_kind(number) {
            MixedKind::Zero => return None,
            MixedKind::Equal => mix(seed ^ 0x6d_6978_6564).wrapping_add(number << 16),
            MixedKind::Unique => own().wrapping_add(number << 16),
        },
        MemoryPart::Same { seed, .. } if generation == 0 => mix(seed ^ 0x7361_6d65),
        _ => own().wrapping_add(number << 16),
    };
    Some((0..).map(move |word: u64| mix(origin.wrapping_add(word))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(part: MemoryPart, generation: u64, number: usize) -> Option<u64> {
        stream(part, 0, generation, number).and_then(|mut words| words.next())
    }

    #[test]
    fn equal_pages_depend_on_seed_and_number_only() {
        let part = |seed| MemoryPart::Equal { seed, pages: 2 };
        assert_eq!(first(part(1), 0, 0), first(part(1), 0, 0));
        assert_ne!(first(part(1), 0, 0), first(part(1), 0, 1));
        assert_ne!(first(part(1), 0, 0), first(part(2), 0, 0));
        assert_ne!(first(part(1), 0, 0), first(part(1), 1, 0));
        assert_eq!(first(MemoryPart::Zero { pages: 1 }, 0, 0), None);
    }

    #[test]
    fn verify_counts_pages_that_are_not_what_they_should_be() {
        let part = MemoryPart::Equal { seed: 1, pages: 4 };
        let mut filled = FilledPart::new(part, 0, false).unwrap();
        filled.region.as_mut().unwrap().bytes_mut()[2 * page_size() + 5] ^= 1;
        assert_eq!(filled.wrong_pages(), 1);
    }
}
