//! Pages read once that may be read again.

use std::sync::{Mutex, PoisonError};

use ksmith_core::sketch::{SKIPPED, SecondReading, ZERO};

use super::job::EstimateJob;
use crate::memory::scan::ScanTally;
use crate::memory::work::share_out;

/// A page and its fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FingerprintedPage {
    /// The index of its process among the targets.
    pub target: u32,
    /// The address in the process.
    pub address: u64,
    /// The fingerprint of its content.
    pub fingerprint: u64,
}

/// Pages of one batch of work.
const BATCH: usize = 256;

/// Reads all pages again: those with another content become [`SKIPPED`]. Returns the changes of each guest, and the
/// number of pages read.
pub fn look_again(job: &EstimateJob<'_>, places: &mut [FingerprintedPage]) -> (Vec<SecondReading>, u64) {
    if let Some(pause) = job.again {
        std::thread::sleep(pause);
    }
    let looks = Mutex::new((vec![SecondReading::default(); job.guests], 0));
    let batches: Vec<Mutex<&mut [FingerprintedPage]>> = places.chunks_mut(BATCH).map(Mutex::new).collect();
    share_out(batches.len(), job.threads, |scratch, at| {
        let mut found = vec![SecondReading::default(); job.guests];
        let mut tally = ScanTally::default();
        scratch.look_again();
        for place in batches[at].lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            let Some(target) = job.targets.get(place.target as usize).filter(|target| !target.has_exited()) else {
                continue;
            };
            let Ok((now, _)) = scratch.read_page(&job.context, &target.memory, place.address) else {
                target.note_exit();
                continue;
            };
            tally.read += u64::from(now.is_some());
            let look = &mut found[target.guest as usize];
            let counts = if place.fingerprint == ZERO { &mut look.zero } else { &mut look.other };
            counts.0 += 1;
            // A zero page that KSM has put on the kernel's since is not seen, and has not changed.
            if now != Some(place.fingerprint) && !(now.is_none() && place.fingerprint == ZERO) {
                counts.1 += 1;
                place.fingerprint = SKIPPED;
            }
        }
        let mut looks = looks.lock().unwrap_or_else(PoisonError::into_inner);
        for (sum, found) in looks.0.iter_mut().zip(found) {
            sum.zero = (sum.zero.0 + found.zero.0, sum.zero.1 + found.zero.1);
            sum.other = (sum.other.0 + found.other.0, sum.other.1 + found.other.1);
        }
        looks.1 += tally.read;
    });
    looks.into_inner().unwrap_or_else(PoisonError::into_inner)
}
