//! The reading spread over threads: a list of chunks, each taken by the next free thread.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::pace::lower_priority;
use super::progress::ReadProgress;
use super::scan::{ScanBuffers, ScanContext, ScanStopped, ScanTally};
use super::target::ReadTarget;

/// A chunk of one process's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryChunk {
    /// The index of the process in the list of targets.
    pub target: usize,
    /// The index of the range in its process, the same in clones.
    pub stretch: u64,
    /// Offset of the chunk in its range.
    pub offset: u64,
    /// The chunk's addresses.
    pub addresses: Range<u64>,
}

/// Cuts all ranges into chunks of at most `bytes`.
pub fn chunks(targets: &[ReadTarget], bytes: u64) -> Vec<MemoryChunk> {
    let mut chunks = Vec::new();
    for (target, it) in targets.iter().enumerate() {
        for (rank, stretch) in (0..).zip(&it.memory.stretches) {
            let starts = (stretch.start..stretch.end).step_by(bytes.max(1) as usize);
            chunks.extend(starts.map(|start| MemoryChunk {
                target,
                stretch: rank,
                offset: start - stretch.start,
                addresses: start..(start + bytes).min(stretch.end),
            }));
        }
    }
    chunks
}

/// Calls `work` for each number below `count`, on `threads` threads.
pub fn share_out(count: usize, threads: usize, work: impl Fn(&mut ScanBuffers, usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            scope.spawn(|| {
                lower_priority();
                let mut scratch = ScanBuffers::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        break;
                    }
                    work(&mut scratch, at);
                }
            });
        }
    });
}

/// Calls `work` for each chunk of a living process. Returns the summed figures of each target.
pub fn read_chunks(
    context: &ScanContext,
    targets: &[ReadTarget],
    chunks: &[MemoryChunk],
    threads: usize,
    progress: &ReadProgress<'_>,
    work: impl Fn(&mut ScanBuffers, &ReadTarget, usize) -> Result<ScanTally, ScanStopped> + Sync,
) -> Vec<ScanTally> {
    let tallies = Mutex::new(vec![ScanTally::default(); targets.len()]);
    share_out(chunks.len(), threads, |scratch, at| {
        let Some((chunk, target)) = chunks.get(at).and_then(|chunk| Some((chunk, targets.get(chunk.target)?)))
        else {
            return;
        };
        if target.has_exited() {
            return;
        }
        match work(scratch, target, at) {
            Ok(tally) => {
                progress.add(tally.read * context.page_size);
                let mut tallies = tallies.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(sum) = tallies.get_mut(chunk.target) {
                    sum.add(&tally);
                }
            }
            Err(ScanStopped::Exited) => target.note_exit(),
        }
    });
    tallies.into_inner().unwrap_or_else(PoisonError::into_inner)
}
