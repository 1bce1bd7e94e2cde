//! The search for pages of equal content: one pass over all mergeable memory of the host, as far as time allows.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use ksmith_core::diagnose::process::EqualPages;
use ksmith_core::sketch::mix;

use super::pages::page_now;
use crate::memory::scan::{ScanBuffers, ScanContext};
use crate::memory::target::ReadTarget;
use crate::memory::work::chunks;

/// Bytes read between two checks of the deadline.
const CHUNK: u64 = 4 << 20;

/// Sampled locations per content. The copies that are merged among them are extrapolated to the rest.
const PLACES: usize = 64;

/// The result of a search for pages with the sampled fingerprints.
#[derive(Debug, Default)]
pub struct EqualPageSearch {
    found: HashMap<u64, ContentCopies>,
    /// Number of pages searched.
    pub searched: u64,
    /// Number of pages in all mergeable memory; equal to `searched` if the search was complete.
    pub searchable: u64,
}

/// The copies of one content: their number, and a uniform sample of their locations.
#[derive(Debug, Default)]
struct ContentCopies {
    pages: u64,
    places: Vec<(usize, u64)>,
}

impl ContentCopies {
    /// Adds a location by reservoir sampling (Vitter's algorithm R, 1985): copies that were met one after another may
    /// share a frame that the rest does not.
    fn remember(&mut self, place: (usize, u64), seed: u64) {
        if self.places.len() < PLACES {
            self.places.push(place);
            return;
        }
        let drawn = (mix(self.pages ^ seed) % self.pages) as usize;
        if let Some(kept) = self.places.get_mut(drawn) {
            *kept = place;
        }
    }
}

impl ContentCopies {
    /// The number of copies but for the page at this place.
    fn without(&self, itself: (usize, u64)) -> u64 {
        let was_seen = self.places.contains(&itself) || self.pages > self.places.len() as u64;
        self.pages - u64::from(was_seen && self.pages > 0)
    }
}

impl EqualPageSearch {
    /// Searches for pages with these fingerprints until `deadline`, in random order, so that an incomplete search is a
    /// uniform sample of the whole.
    pub fn run(
        context: &ScanContext,
        targets: &[ReadTarget],
        fingerprints: impl Iterator<Item = u64>,
        deadline: Instant,
    ) -> Self {
        let mut search = Self {
            found: fingerprints.map(|fingerprint| (fingerprint, ContentCopies::default())).collect(),
            ..Self::default()
        };
        let mut chunks = chunks(targets, CHUNK);
        let seed = context.salt.seed();
        chunks.sort_by_key(|chunk| mix(chunk.addresses.start ^ seed ^ (chunk.target as u64) << 48));
        let mut scratch = ScanBuffers::new();
        let mut is_complete = true;
        for chunk in &chunks {
            if Instant::now() >= deadline {
                is_complete = false;
                break;
            }
            let Some(target) = targets.get(chunk.target) else { continue };
            let found = &mut search.found;
            let tally = scratch.scan(context, &target.memory, chunk.addresses.clone(), |address, fingerprint| {
                if let Some(found) = found.get_mut(&fingerprint) {
                    found.pages += 1;
                    found.remember((chunk.target, address), seed);
                }
            });
            // The memory of a process that has ended can't be merged with.
            search.searched += tally.map_or(0, |tally| tally.read);
        }
        let all = targets.iter().map(|target| target.memory.anonymous_bytes).sum::<u64>() / context.page_size;
        search.searchable = if is_complete { search.searched } else { all.max(search.searched + 1) };
        search
    }

    /// Counts the copies of a page with this fingerprint, without the page at `itself`.
    pub fn copies(&self, fingerprint: u64, itself: (usize, u64)) -> u64 {
        self.found.get(&fingerprint).map_or(0, |found| found.without(itself))
    }

    /// Counts the copies of a page with this fingerprint, without the page at `itself`, and how many of them are merged.
    pub fn equals(
        &self,
        context: &ScanContext,
        targets: &[ReadTarget],
        fingerprint: u64,
        itself: (usize, u64),
    ) -> EqualPages {
        let Some(found) = self.found.get(&fingerprint) else { return EqualPages::default() };
        let (mut looked_at, mut merged, mut frames) = (0_u64, 0_u64, BTreeSet::new());
        for &(target, address) in found.places.iter().filter(|&&place| place != itself) {
            let Some(target) = targets.get(target) else { continue };
            let now = page_now(&target.memory.pagemap, &context.frames, address, context.page_size);
            let Some((entry, flags)) = now else { continue };
            looked_at += 1;
            if flags.is_merged() {
                merged += 1;
                frames.insert(entry.frame());
            }
        }
        let copies = found.without(itself);
        let merged = (copies * merged).checked_div(looked_at).unwrap_or(0);
        EqualPages { copies, merged, frames: frames.len() as u64 }
    }
}
