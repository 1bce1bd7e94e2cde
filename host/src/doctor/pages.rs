//! A walk over the page tables of a mapping: counts its pages by kind, and draws a sample of them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ksmith_core::diagnose::process::AnonymousPages;
use ksmith_core::kernel::{FrameFlags, PageEntry};
use ksmith_core::sketch::mix;

use crate::memory::entries;
use crate::memory::frames::{FrameTable, SharedFrames};

/// The result of a walk over a mapping.
#[derive(Debug, Default)]
pub struct MappingWalk {
    /// Pages of the mapping by kind.
    pub pages: AnonymousPages,
    /// Addresses of pages that are not merged, drawn at random.
    pub unmerged: Vec<u64>,
    /// Addresses of merged pages, drawn at random.
    pub merged: Vec<u64>,
}

/// A filter that draws about the wanted number of pages at random.
#[derive(Debug, Clone, Copy)]
pub struct RandomPageFilter {
    seed: u64,
    every: u64,
}

impl RandomPageFilter {
    /// Returns a filter that takes about `wanted` of `of` pages.
    pub fn new(wanted: u64, of: u64, seed: u64) -> Self {
        Self { seed, every: of.div_ceil(wanted.max(1)).max(1) }
    }

    fn takes(&self, address: u64) -> bool {
        mix(address ^ self.seed).is_multiple_of(self.every)
    }
}

/// Walks the page table entries from `start` to `end`.
///
/// # Errors
/// The process is gone.
pub fn walk(
    (pid, pagemap): (u32, &File),
    frames: &FrameTable,
    [start, end, size]: [u64; 3],
    draw: [RandomPageFilter; 2],
) -> io::Result<MappingWalk> {
    let mut walked = MappingWalk::default();
    let mut spare = None;
    entries::each(pagemap, pid, [start, end, size], |first, entries| {
        let flags = SharedFrames::look_up(frames, entries);
        for (page, entry) in (first..).zip(entries).filter(|(_, entry)| entry.is_anonymous()) {
            let address = page * size;
            let flags = flags.flags(*entry);
            if flags.is_zero_page() {
                walked.pages.zero += 1;
            } else if flags.is_merged() {
                walked.pages.merged += 1;
                if draw[1].takes(address) {
                    walked.merged.push(address);
                }
            } else {
                walked.pages.unmerged += 1;
                spare = Some(address);
                if draw[0].takes(address) {
                    walked.unmerged.push(address);
                }
            }
        }
        Ok(())
    })?;
    // No mapping goes without a look.
    if walked.unmerged.is_empty() {
        walked.unmerged.extend(spare);
    }
    Ok(walked)
}

/// Reads the page table entry of one page and the flags of its frame; `None` if the page is not in memory.
pub fn page_now(pagemap: &File, frames: &FrameTable, address: u64, size: u64) -> Option<(PageEntry, FrameFlags)> {
    let mut word = [0; 8];
    pagemap.read_exact_at(&mut word, address / size * 8).ok()?;
    let entry = PageEntry::from_bytes(word);
    let mut flags = Vec::new();
    frames.flags(&[entry.frame()], &mut flags);
    entry.is_anonymous().then(|| (entry, flags.first().copied().unwrap_or_default()))
}
