//! Guests at work on their memory: a new guest fills it, and a part is rewritten or restored, page by page.
//!
//! Guests that begin at the same moment share the CPUs, as on the live kernel. ksmd works meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::sim::{SimGuestId, SimMachine};

/// Time between two steps of a guest.
const STEP: Duration = Duration::from_millis(10);

/// A guest's work on its memory.
#[derive(Debug)]
struct WriteJob {
    guest: usize,
    id: SimGuestId,
    /// Places and contents, in the order of writing. A new guest's places follow each other.
    contents: Vec<(usize, u64)>,
    done: usize,
    is_new: bool,
    /// The runs of pages that it writes in a step.
    runs_in_a_step: usize,
    next: Duration,
}

/// A guest that has filled its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FilledGuest {
    pub guest: usize,
    pub id: SimGuestId,
}

/// Work that starts at one moment: a guest with the contents that it writes.
#[derive(Debug)]
pub(super) struct StartedJob {
    pub guest: usize,
    pub id: SimGuestId,
    pub contents: Vec<(usize, u64)>,
    /// True if the guest is new, and its memory grows.
    pub is_new: bool,
}

/// All guests at work on their memory.
#[derive(Debug)]
pub(super) struct MemoryWriters {
    /// A guest's time for a run of pages on a CPU of its own, in nanoseconds.
    run_ns: u64,
    cpus: u64,
    jobs: Vec<WriteJob>,
}

impl MemoryWriters {
    /// No guest at work. A run of pages takes a guest `run_ns` of a CPU.
    pub fn new(run_ns: u64, cpus: u32) -> Self {
        Self { run_ns: run_ns.max(1), cpus: u64::from(cpus.max(1)), jobs: Vec::new() }
    }

    /// Begins works at the moment `at`, all at once.
    pub fn begin(&mut self, at: Duration, begun: Vec<StartedJob>) {
        let sharing = (begun.len() as u64).max(self.cpus);
        // `sharing / cpus` guests have a CPU together.
        let run_ns = u128::from(self.run_ns) * u128::from(sharing) / u128::from(self.cpus);
        let runs_in_a_step = usize::try_from(STEP.as_nanos() / run_ns.max(1)).unwrap_or(usize::MAX).max(1);
        self.jobs.extend(begun.into_iter().map(|StartedJob { guest, id, contents, is_new }| WriteJob {
            guest,
            id,
            contents,
            done: 0,
            is_new,
            runs_in_a_step,
            next: at + STEP,
        }));
    }

    /// The moment of the next step.
    pub fn next(&self) -> Option<Duration> {
        self.jobs.iter().map(|job| job.next).min()
    }

    /// Returns true while a new guest fills its memory or a part is restored: its attainable savings are incomplete.
    pub fn is_growing(&self) -> bool {
        self.jobs.iter().any(|job| job.is_new)
    }

    /// Makes the steps of the moment `at`, and returns the new guests that are done. Guests that are not in `guests` have ended.
    pub fn step(
        &mut self,
        at: Duration,
        machine: &mut SimMachine,
        guests: &BTreeMap<usize, SimGuestId>,
    ) -> Vec<FilledGuest> {
        let mut ready = Vec::new();
        self.jobs.retain_mut(|job| {
            if guests.get(&job.guest) != Some(&job.id) {
                return false;
            }
            if job.next > at {
                return true;
            }
            let end = job.done.saturating_add(job.runs_in_a_step).min(job.contents.len());
            let now = job.contents.get(job.done..end).unwrap_or_default();
            if job.is_new {
                machine.grow_guest(job.id, now.iter().map(|(_, content)| *content));
            } else {
                now.iter().for_each(|(place, content)| {
                    machine.write_page(job.id, *place, *content);
                });
            }
            job.done = end;
            job.next = at + STEP;
            let is_done = end == job.contents.len();
            if is_done && job.is_new {
                ready.push(FilledGuest { guest: job.guest, id: job.id });
            }
            !is_done
        });
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ksmith_core::sim::{SimConfig, UNIQUE};

    fn begun(
        machine: &mut SimMachine,
        guests: &mut BTreeMap<usize, SimGuestId>,
        guest: usize,
        runs: usize,
    ) -> StartedJob {
        let id = machine.add_guest("a", []);
        guests.insert(guest, id);
        StartedJob { guest, id, contents: vec![(0, UNIQUE); runs], is_new: true }
    }

    /// Steps until all is done, and returns the moments at which guests were ready.
    fn moments(count: usize, cpus: u32) -> Vec<Duration> {
        let (mut machine, mut guests) = (SimMachine::new(SimConfig::default()), BTreeMap::new());
        let mut filling = MemoryWriters::new(1000, cpus);
        let jobs = (0..count).map(|guest| begun(&mut machine, &mut guests, guest, 100_000)).collect();
        filling.begin(Duration::from_secs(1), jobs);
        let mut moments = Vec::new();
        while let Some(at) = filling.next() {
            let ready = filling.step(at, &mut machine, &guests);
            moments.extend(ready.iter().map(|_| at));
            assert!(at < Duration::from_secs(9), "it ends");
        }
        assert!(!filling.is_growing());
        moments
    }

    #[test]
    fn guests_on_cpus_of_their_own_take_their_time_and_others_share() {
        assert_eq!(moments(1, 2), [Duration::from_millis(1100)]);
        assert_eq!(moments(2, 2), [Duration::from_millis(1100); 2]);
        assert_eq!(moments(8, 2), [Duration::from_millis(1400); 8]);
    }

    #[test]
    fn a_guest_that_ends_meanwhile_is_not_ready() {
        let (mut machine, mut guests) = (SimMachine::new(SimConfig::default()), BTreeMap::new());
        let mut filling = MemoryWriters::new(1000, 2);
        let job = begun(&mut machine, &mut guests, 0, 100_000);
        filling.begin(Duration::ZERO, vec![job]);
        assert_eq!(filling.step(Duration::from_millis(10), &mut machine, &guests), []);
        assert!(machine.remove_guest(guests.remove(&0).unwrap()));
        assert_eq!(filling.step(Duration::from_millis(20), &mut machine, &guests), []);
        assert_eq!(filling.next(), None);
    }
}
