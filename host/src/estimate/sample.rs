//! Sample mode: reads a few pages, at the same random positions in every process.

use std::sync::{Mutex, PoisonError};

use ksmith_core::sketch::{PageProbe, ProbeSample, SamplePositions, SavingsOutcome, mix};

use super::job::EstimateJob;
use super::places::{FingerprintedPage, look_again};
use crate::memory::scan::ScanTally;
use crate::memory::work::{chunks, read_chunks};

/// Bytes in a chunk: a power of two, so that the chunks of clones cover the same positions.
const CHUNK: u64 = 1 << 30;

/// The result of sample mode.
pub struct SampleResult {
    /// The bounds of the savings.
    pub outcome: SavingsOutcome,
    /// The scan figures of each target, of the sample only.
    pub tallies: Vec<ScanTally>,
    /// Pages of each guest that change, as estimated.
    pub changing: Vec<u64>,
    /// Pages read in all.
    pub read: u64,
}

/// Reads each page with the probability `rate`.
pub fn run(job: &EstimateJob<'_>, rate: f64) -> SampleResult {
    let chunks = chunks(job.targets, CHUNK);
    let size = job.context.page_size;
    let found = Mutex::new((Vec::new(), Vec::new()));
    let tallies = {
        let progress = job.progress("sampling", (1.0 / rate) as u64);
        read_chunks(&job.context, job.targets, &chunks, job.threads, &progress, |scratch, target, at| {
            let chunk = &chunks[at];
            // The chunk's role: the same for the same part of clones' memory.
            let role = (chunk.stretch << 40) | (chunk.offset / CHUNK);
            let pages = (chunk.addresses.end - chunk.addresses.start) / size;
            let (mut places, mut numbers, mut tally) = (Vec::new(), Vec::new(), ScanTally::default());
            for page in SamplePositions::new(job.context.salt.seed(), role, pages, rate) {
                let address = chunk.addresses.start + page * size;
                let (fingerprint, look) = scratch.read_page(&job.context, &target.memory, address)?;
                tally.add(&look);
                if let Some(fingerprint) = fingerprint {
                    places.push(FingerprintedPage { target: chunk.target as u32, address, fingerprint });
                    numbers.push(mix(role) ^ page);
                }
            }
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.0.append(&mut places);
            found.1.append(&mut numbers);
            Ok(tally)
        })
    };
    let (mut places, numbers) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut read = places.len() as u64;
    if job.again.is_some() {
        read += look_again(job, &mut places).1;
    }
    let mut pages = vec![0; job.guests];
    for (target, tally) in job.targets.iter().zip(&tallies).filter(|(target, _)| !target.has_exited()) {
        // The kernel counts pages that are shared since a fork in each process: the sample says how many.
        let all = target.memory.anonymous_bytes / size;
        let forked = all as f64 * tally.forked as f64 / (tally.forked + tally.read).max(1) as f64;
        pages[target.guest as usize] += all - forked as u64;
    }
    let living = numbers.iter().zip(&places).filter(|(_, place)| !job.targets[place.target as usize].has_exited());
    let probes = living.map(|(&number, place)| {
        let guest = job.targets[place.target as usize].guest;
        PageProbe { place: number, guest, page: place.fingerprint }
    });
    let outcome = ProbeSample { rate, pages: pages.clone(), probes: probes.collect() }.outcome(&job.rules);
    let changing = pages.iter().zip(&outcome.guests).map(|(pages, guest)| pages - guest.pages.min(*pages));
    SampleResult { changing: changing.collect(), outcome, tallies, read }
}
