//! Exact mode: reads every page, with 8 bytes of memory for each, and a bit to find it again.

use std::sync::{Mutex, PoisonError};

use ksmith_core::sketch::exact::{self, GuestPages};
use ksmith_core::sketch::{MergeRules, SKIPPED, SavingsOutcome};

use super::job::EstimateJob;
use crate::memory::scan::{ScanBuffers, ScanStopped, ScanTally};
use crate::memory::target::ReadTarget;
use crate::memory::work::{MemoryChunk, chunks, read_chunks, share_out};

/// Bytes in a chunk: at most this much work is lost on a process that ends.
const CHUNK: u64 = 16 << 20;

/// The pages of one chunk: fingerprints of the present pages, in order, and their positions.
#[derive(Debug, Default)]
struct ChunkPages {
    fingerprints: Vec<u64>,
    /// One bit for each page of the chunk; empty if there is no second pass.
    present: Vec<u64>,
}

/// The result of exact mode.
pub struct ExactResult {
    /// The savings that merging would bring.
    pub outcome: SavingsOutcome,
    /// The scan figures of each target.
    pub tallies: Vec<ScanTally>,
    /// Pages of each guest that changed.
    pub changing: Vec<u64>,
    /// Pages read in all.
    pub read: u64,
}

/// Reads everything, and once more if `job.again` is set.
pub fn run(job: &EstimateJob<'_>) -> ExactResult {
    let chunks = chunks(job.targets, CHUNK);
    let pieces: Vec<Mutex<ChunkPages>> = chunks.iter().map(|_| Mutex::default()).collect();
    let wants_places = job.again.is_some();
    let tallies = {
        let progress = job.progress("reading", 1);
        read_chunks(&job.context, job.targets, &chunks, job.threads, &progress, |scratch, target, at| {
            let (piece, tally) = read(job, scratch, target, &chunks[at], wants_places)?;
            *pieces[at].lock().unwrap_or_else(PoisonError::into_inner) = piece;
            Ok(tally)
        })
    };
    let mut read_pages: u64 = tallies.iter().map(|tally| tally.read).sum();
    let mut changing = vec![0; job.guests];
    if let Some(pause) = job.again {
        std::thread::sleep(pause);
        let changed: Vec<Mutex<u64>> = job.targets.iter().map(|_| Mutex::default()).collect();
        let progress = job.progress("reading again", 1);
        let again =
            read_chunks(&job.context, job.targets, &chunks, job.threads, &progress, |scratch, target, at| {
                // Pages that a fork shares were read in one process in the first pass, and must be met again here.
                scratch.look_again();
                let (now, tally) = read(job, scratch, target, &chunks[at], true)?;
                let mut then = pieces[at].lock().unwrap_or_else(PoisonError::into_inner);
                let count = then.skip_what_changed(&now);
                *changed[chunks[at].target].lock().unwrap_or_else(PoisonError::into_inner) += count;
                Ok(tally)
            });
        read_pages += again.iter().map(|tally| tally.read).sum::<u64>();
        for (target, changed) in job.targets.iter().zip(changed) {
            if !target.has_exited() {
                changing[target.guest as usize] += changed.into_inner().unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
    let pieces: Vec<ChunkPages> =
        pieces.into_iter().map(|piece| piece.into_inner().unwrap_or_else(PoisonError::into_inner)).collect();
    let mut guests = vec![GuestPages::default(); job.guests];
    for (chunk, piece) in chunks.iter().zip(&pieces) {
        let target = &job.targets[chunk.target];
        // What a process held that is gone by now can't be merged.
        if !target.has_exited() {
            guests[target.guest as usize].pieces.push(&piece.fingerprints);
        }
    }
    let outcome = outcome(&guests, &job.rules, job.wants_pairs, job.threads);
    ExactResult { outcome, tallies, changing, read: read_pages }
}

fn read(
    job: &EstimateJob<'_>,
    scratch: &mut ScanBuffers,
    target: &ReadTarget,
    chunk: &MemoryChunk,
    wants_places: bool,
) -> Result<(ChunkPages, ScanTally), ScanStopped> {
    let mut piece = ChunkPages::default();
    let size = job.context.page_size;
    if wants_places {
        let pages = (chunk.addresses.end - chunk.addresses.start) / size;
        piece.present.resize(pages.div_ceil(64) as usize, 0);
    }
    let tally = scratch.scan(&job.context, &target.memory, chunk.addresses.clone(), |address, fingerprint| {
        let page = ((address - chunk.addresses.start) / size) as usize;
        if let Some(word) = piece.present.get_mut(page / 64) {
            *word |= 1 << (page % 64);
        }
        piece.fingerprints.push(fingerprint);
    })?;
    piece.fingerprints.shrink_to_fit();
    Ok((piece, tally))
}

impl ChunkPages {
    /// Excludes pages that have changed or gone. Returns their number.
    fn skip_what_changed(&mut self, now: &Self) -> u64 {
        let (mut then_at, mut now_at, mut changed) = (0, 0, 0);
        for (then_bits, now_bits) in self.present.iter().zip(&now.present) {
            for bit in 0..64 {
                let was_there = then_bits >> bit & 1 == 1;
                let is_there = now_bits >> bit & 1 == 1;
                if was_there {
                    let is_same = is_there && self.fingerprints.get(then_at) == now.fingerprints.get(now_at);
                    if let Some(fingerprint) = self.fingerprints.get_mut(then_at).filter(|_| !is_same) {
                        *fingerprint = SKIPPED;
                        changed += 1;
                    }
                    then_at += 1;
                }
                now_at += usize::from(is_there);
            }
        }
        changed
    }
}

/// Calculates the outcome, on as many threads as the reading uses.
pub fn outcome(guests: &[GuestPages<'_>], rules: &MergeRules, wants_pairs: bool, threads: usize) -> SavingsOutcome {
    let counted = exact::counted(guests);
    let parts = exact::parts(counted.iter().map(|guest| guest.pages).sum(), threads);
    let all = Mutex::new(exact::ContentSums::new(guests.len(), wants_pairs));
    share_out(parts as usize, threads, |_, part| {
        let sums = exact::sums(guests, part as u64, parts, rules, wants_pairs);
        all.lock().unwrap_or_else(PoisonError::into_inner).merge(&sums);
    });
    all.into_inner().unwrap_or_else(PoisonError::into_inner).outcome(&counted, rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_compared_place_by_place() {
        let mut then = ChunkPages { fingerprints: vec![10, 11, 12, 13], present: vec![0b1011, 0b1] };
        let now = ChunkPages { fingerprints: vec![10, 99, 12, 14], present: vec![0b0111, 0b1] };
        // 0 is the same, 1 changed, 3 is gone (what is at 2 is new), 64 changed.
        assert_eq!(then.skip_what_changed(&now), 3);
        assert_eq!(then.fingerprints, [10, SKIPPED, SKIPPED, SKIPPED]);
    }
}
