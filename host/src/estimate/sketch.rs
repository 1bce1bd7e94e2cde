//! Sketch mode: reads every page once, and keeps a bounded sketch.

use std::sync::{Mutex, PoisonError};

use ksmith_core::sketch::{ContentSketch, SamplePositions, SavingsOutcome};

use super::job::EstimateJob;
use super::places::{FingerprintedPage, look_again};
use crate::memory::scan::ScanTally;
use crate::memory::target::ReadTarget;
use crate::memory::work::{chunks, read_chunks};

const CHUNK: u64 = 16 << 20;

/// Approximate number of pages that are read again: 1.5 MiB, and an error of 0.3 points in the changing pages.
const LOOKED_AT_AGAIN: f64 = 65_536.0;

/// The result of sketch mode.
pub struct SketchResult {
    /// The savings that merging would bring, as estimated.
    pub outcome: SavingsOutcome,
    /// The scan figures of each target.
    pub tallies: Vec<ScanTally>,
    /// Pages of each guest that change, as estimated.
    pub changing: Vec<u64>,
    /// Pages read in all.
    pub read: u64,
    /// The peak memory of the sketch.
    pub sketch_bytes: u64,
}

/// Reads everything once.
pub fn run(job: &EstimateJob<'_>) -> SketchResult {
    let chunks = chunks(job.targets, CHUNK);
    let sketch = Mutex::new(ContentSketch::new(job.guests, ContentSketch::SLOTS, job.context.salt.tag()));
    let places = Mutex::new(Vec::new());
    let size = job.context.page_size;
    let rate = (LOOKED_AT_AGAIN / (job.bytes() / size).max(1) as f64).min(1.0);
    let tallies = {
        let progress = job.progress("reading", 1);
        read_chunks(&job.context, job.targets, &chunks, job.threads, &progress, |scratch, target, at| {
            let chunk = &chunks[at];
            let pages = (chunk.addresses.end - chunk.addresses.start) / size;
            let rate = if job.again.is_some() { rate } else { 0.0 };
            let mut drawn = SamplePositions::new(job.context.salt.seed(), at as u64, pages, rate).peekable();
            let mut again = Vec::new();
            let mut fingerprints = Vec::with_capacity(pages as usize);
            let tally =
                scratch.scan(&job.context, &target.memory, chunk.addresses.clone(), |address, fingerprint| {
                    fingerprints.push(fingerprint);
                    let page = (address - chunk.addresses.start) / size;
                    while drawn.next_if(|&place| place < page).is_some() {}
                    if drawn.next_if_eq(&page).is_some() {
                        again.push(FingerprintedPage { target: chunk.target as u32, address, fingerprint });
                    }
                })?;
            sketch.lock().unwrap_or_else(PoisonError::into_inner).add(target.guest, &fingerprints);
            places.lock().unwrap_or_else(PoisonError::into_inner).append(&mut again);
            Ok(tally)
        })
    };
    let mut sketch = sketch.into_inner().unwrap_or_else(PoisonError::into_inner);
    // What a process held that is gone can't be merged. Of a group only the whole can be told apart.
    for guest in 0..job.guests {
        if job.targets.iter().filter(|target| target.guest as usize == guest).all(ReadTarget::has_exited) {
            sketch.forget(guest as u32);
        }
    }
    let mut outcome = sketch.outcome(&job.rules, job.wants_pairs);
    let before: Vec<u64> = outcome.guests.iter().map(|guest| guest.pages).collect();
    let mut read = tallies.iter().map(|tally| tally.read).sum();
    if job.again.is_some() {
        let mut places = places.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (looks, again) = look_again(job, &mut places);
        outcome.without_changing(&looks);
        read += again;
    }
    let changing = before.iter().zip(&outcome.guests).map(|(before, guest)| before - guest.pages.min(*before));
    SketchResult { changing: changing.collect(), sketch_bytes: sketch.peak_bytes() as u64, outcome, tallies, read }
}
