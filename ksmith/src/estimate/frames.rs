//! `/proc/kpageflags`: which of the frames that a process maps together with others are KSM's.

use std::fs::File;
use std::os::unix::fs::FileExt;

use ksmith_core::kernel::FrameFlags;

/// Flags of frames by number, as far as the kernel lets us see them (root only).
#[derive(Debug)]
pub struct Frames {
    file: Option<File>,
}

/// Frames that lie closer together than this are read in one go: a gap costs less than a system call.
const GAP: u64 = 64;

impl Frames {
    /// Opens the file, if we may.
    pub fn open() -> Self {
        Self { file: File::open("/proc/kpageflags").ok() }
    }

    /// Whether frames can be told apart.
    pub fn are_visible(&self) -> bool {
        self.file.is_some()
    }

    /// The flags of each of `frames`, which are sorted and without duplicates. Frames that can't be looked up
    /// have none.
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
