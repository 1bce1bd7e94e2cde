//! `/proc/kpageflags`: which frames that a process shares with others are KSM's, and which were seen already.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use ksmith_core::kernel::{FrameFlags, PageEntry};

/// Returns true if the kernel shows frame numbers to this process. Without CAP_SYS_ADMIN each page seems to lie in
/// frame 0.
pub fn are_numbered() -> bool {
    let page = 1_u8;
    let address = std::ptr::from_ref(std::hint::black_box(&page)).addr();
    let number = address / rustix::param::page_size();
    let mut entry = [0; 8];
    let read = File::open("/proc/self/pagemap").and_then(|file| file.read_exact_at(&mut entry, number as u64 * 8));
    read.is_ok() && PageEntry::from_bytes(entry).frame() != 0
}

/// A reader of frame flags by number (root only), with a set of the frames seen.
#[derive(Debug)]
pub struct FrameTable {
    file: Option<File>,
    seen: Mutex<HashMap<u64, Box<[u64; WORDS]>>>,
}

/// Words of a block of the set, with a bit for each frame. A block covers 128 MiB and costs 1/32768 of that, and only
/// frames that are shared since a fork have blocks.
const WORDS: usize = 512;

/// Frames closer together than this are read by one call: a gap costs less than a system call.
const GAP: u64 = 64;

impl FrameTable {
    /// Opens the file, if permitted.
    pub fn open() -> Self {
        Self { file: File::open("/proc/kpageflags").ok(), seen: Mutex::default() }
    }

    /// Returns true if frames can be told apart.
    pub fn are_visible(&self) -> bool {
        self.file.is_some()
    }

    /// Marks this frame as seen. Returns true if it was not seen before.
    pub fn see(&self, frame: u64) -> bool {
        let bits = WORDS as u64 * 64;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let block = seen.entry(frame / bits).or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = ((frame % bits / 64) as usize, 1 << (frame % 64));
        let is_new = block[word] & bit == 0;
        block[word] |= bit;
        is_new
    }

    /// Looks up the flags of each of `frames`, which are sorted and without duplicates. Frames that can't be looked up
    /// get no flags.
    pub fn flags(&self, frames: &[u64], flags: &mut Vec<FrameFlags>) {
        flags.clear();
        flags.resize(frames.len(), FrameFlags::default());
        let Some(file) = &self.file else { return };
        let mut bytes = Vec::new();
        let mut at = 0;
        for run in frames.chunk_by(|a, b| b - a <= GAP) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            bytes.clear();
            bytes.resize((last - first + 1) as usize * 8, 0_u8);
            let read = file.read_at(&mut bytes, first * 8).unwrap_or(0);
            for (frame, flags) in run.iter().zip(&mut flags[at..]) {
                let offset = (frame - first) as usize * 8;
                if let Some(word) = bytes[..read].get(offset..).and_then(<[u8]>::first_chunk::<8>) {
                    *flags = FrameFlags(u64::from_ne_bytes(*word));
                }
            }
            at += run.len();
        }
    }
}

/// The frame flags of pages that are mapped more than once, which all merged pages and zero pages are. A merged page
/// without partners is mapped once, saves nothing and counts as unmerged.
#[derive(Debug, Default)]
pub struct SharedFrames {
    frames: Vec<u64>,
    flags: Vec<FrameFlags>,
}

impl SharedFrames {
    /// Looks up the flags for these pagemap entries.
    pub fn look_up(source: &FrameTable, entries: &[PageEntry]) -> Self {
        let shared = entries.iter().filter(|entry| entry.is_anonymous() && !entry.is_exclusive());
        let mut frames: Vec<u64> = shared.map(|entry| entry.frame()).collect();
        frames.sort_unstable();
        frames.dedup();
        let mut flags = Vec::new();
        source.flags(&frames, &mut flags);
        Self { frames, flags }
    }

    /// Returns the flags of one of those pages.
    pub fn flags(&self, entry: PageEntry) -> FrameFlags {
        if entry.is_exclusive() {
            return FrameFlags::default();
        }
        let at = self.frames.binary_search(&entry.frame()).ok();
        at.and_then(|at| self.flags.get(at)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_is_new_once() {
        let frames = FrameTable::open();
        for frame in [0, 1, 63, 64, 32_767, 32_768, 1 << 40] {
            assert!(frames.see(frame), "{frame}");
            assert!(!frames.see(frame), "{frame}");
        }
    }
}
