//! Sketch mode: reads every page once, and keeps a bounded sketch.

use std::sync::{Mutex, PoisonError};

use ksmith_core::sketch::{
    ContentSketch, MergeRules, SKIPPED, SamplePositions, SavingsOutcome, ZERO, fingerprint, mix,
};

use super::job::EstimateJob;
use super::places::{FingerprintedPage, look_again};
use crate::memory::nodes::page_nodes;
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
    /// The part of the savings that merging within NUMA nodes has, 0 to 1; `None` if it was not to be estimated, or a node could
    /// not be read.
    pub within_nodes: Option<f64>,
}

/// A sketch in which a content counts anew on each NUMA node, as for KSM with `merge_across_nodes` 0. `None` once a node could not
/// be read.
type NodeSketch = Mutex<Option<ContentSketch>>;

/// Returns the fingerprints of pages on these nodes: equal ones on one node only. The kernel has one zero page for all nodes.
fn fingerprints_of_nodes(fingerprints: &[u64], nodes: &[Option<u32>]) -> Vec<u64> {
    let of_node = |(page, node): (&u64, &Option<u32>)| match *page {
        ZERO | SKIPPED => *page,
        page => fingerprint(mix(page ^ mix(node.map_or(u64::MAX, u64::from)))),
    };
    fingerprints.iter().zip(nodes).map(of_node).collect()
}

/// Adds pages of a process to the sketch.
fn add_to_nodes(sketch: &NodeSketch, target: &ReadTarget, addresses: &[u64], fingerprints: &[u64]) {
    let nodes = page_nodes(target.pid, addresses);
    let mut sketch = sketch.lock().unwrap_or_else(PoisonError::into_inner);
    match nodes {
        Ok(nodes) => {
            if let Some(sketch) = sketch.as_mut() {
                sketch.add(target.guest, &fingerprints_of_nodes(fingerprints, &nodes));
            }
        }
        // A process that has ended counts nowhere.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
        Err(_) => *sketch = None,
    }
}

/// Reads everything once.
pub fn run(job: &EstimateJob<'_>) -> SketchResult {
    let chunks = chunks(job.targets, CHUNK);
    let new_sketch = || ContentSketch::new(job.guests, ContentSketch::SLOTS, job.context.salt.tag());
    let sketch = Mutex::new(new_sketch());
    let of_nodes: NodeSketch = Mutex::new(job.tells_nodes.then(new_sketch));
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
            let mut addresses = Vec::new();
            let tally =
                scratch.scan(&job.context, &target.memory, chunk.addresses.clone(), |address, fingerprint| {
                    fingerprints.push(fingerprint);
                    if job.tells_nodes {
                        addresses.push(address);
                    }
                    let page = (address - chunk.addresses.start) / size;
                    while drawn.next_if(|&place| place < page).is_some() {}
                    if drawn.next_if_eq(&page).is_some() {
                        again.push(FingerprintedPage { target: chunk.target as u32, address, fingerprint });
                    }
                })?;
            sketch.lock().unwrap_or_else(PoisonError::into_inner).add(target.guest, &fingerprints);
            if job.tells_nodes {
                add_to_nodes(&of_nodes, target, &addresses, &fingerprints);
            }
            places.lock().unwrap_or_else(PoisonError::into_inner).append(&mut again);
            Ok(tally)
        })
    };
    let mut sketch = sketch.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut of_nodes = of_nodes.into_inner().unwrap_or_else(PoisonError::into_inner);
    // What a process held that is gone can't be merged. Of a group only the whole can be told apart.
    for guest in 0..job.guests {
        if job.targets.iter().filter(|target| target.guest as usize == guest).all(ReadTarget::has_exited) {
            sketch.forget(guest as u32);
            of_nodes.iter_mut().for_each(|sketch| sketch.forget(guest as u32));
        }
    }
    let mut outcome = sketch.outcome(&job.rules, job.wants_pairs);
    let within_nodes = of_nodes.as_ref().map(|of_nodes| part_within_nodes(of_nodes, &job.rules, &outcome));
    let before: Vec<u64> = outcome.guests.iter().map(|guest| guest.pages).collect();
    let mut read = tallies.iter().map(|tally| tally.read).sum();
    if job.again.is_some() {
        let mut places = places.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (looks, again) = look_again(job, &mut places);
        outcome.without_changing(&looks);
        read += again;
    }
    let changing = before.iter().zip(&outcome.guests).map(|(before, guest)| before - guest.pages.min(*before));
    let peak_bytes = sketch.peak_bytes() + of_nodes.map_or(0, |sketch| sketch.peak_bytes());
    SketchResult {
        changing: changing.collect(),
        sketch_bytes: peak_bytes as u64,
        outcome,
        tallies,
        read,
        within_nodes,
    }
}

/// Returns the part of the savings that merging within nodes has, 1 where nothing is saved.
fn part_within_nodes(of_nodes: &ContentSketch, rules: &MergeRules, across: &SavingsOutcome) -> f64 {
    let [within, across] = [&of_nodes.outcome(rules, false), across].map(|outcome| outcome.total.saved.expected);
    if across > 0.0 { (within / across).clamp(0.0, 1.0) } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_merge_on_each_node_by_themselves_and_zeros_everywhere() {
        let saved = |pages: &[(u64, Option<u32>)]| {
            let (fingerprints, nodes): (Vec<u64>, Vec<Option<u32>>) = pages.iter().copied().unzip();
            let mut sketch = ContentSketch::new(1, ContentSketch::SLOTS, 0);
            sketch.add(0, &fingerprints_of_nodes(&fingerprints, &nodes));
            sketch.outcome(&MergeRules::default(), false).total.saved.expected
        };
        let [one, other] = [fingerprint(7), fingerprint(8)];
        assert_eq!(saved(&[(one, Some(0)), (one, Some(1))]), 0.0);
        assert_eq!(saved(&[(one, Some(0)), (one, Some(1)), (one, Some(1)), (other, Some(1))]), 1.0);
        assert_eq!(saved(&[(ZERO, Some(0)), (ZERO, Some(1))]), saved(&[(ZERO, Some(0)), (ZERO, Some(0))]));
    }

    #[test]
    fn the_part_within_nodes_is_that_of_the_savings_across_them() {
        let part = |pages: &[(u64, u32)]| {
            let (fingerprints, nodes): (Vec<u64>, Vec<_>) =
                pages.iter().map(|&(page, node)| (page, Some(node))).unzip();
            let sketch = |fingerprints: &[u64]| {
                let mut sketch = ContentSketch::new(1, ContentSketch::SLOTS, 0);
                sketch.add(0, fingerprints);
                sketch
            };
            let rules = MergeRules::default();
            let across = sketch(&fingerprints).outcome(&rules, false);
            part_within_nodes(&sketch(&fingerprints_of_nodes(&fingerprints, &nodes)), &rules, &across)
        };
        let one = fingerprint(7);
        // Of four copies three are saved across nodes, and two where each node keeps one.
        assert_eq!(part(&[(one, 0), (one, 0), (one, 1), (one, 1)]), 2.0 / 3.0);
        assert_eq!(part(&[(one, 0), (one, 0)]), 1.0);
        assert_eq!(part(&[(one, 0), (one, 1)]), 0.0);
        assert_eq!(part(&[(one, 0)]), 1.0, "nothing is saved either way");
    }
}
