//! Samples of what guests really save, where KSM's counters do not tell it.

use std::time::{Duration, Instant};

use ksmith_core::kernel::Meminfo;
use ksmith_host::root::Root;

use crate::measure::TruthPoint;
use crate::truth::GuestTruth;

/// Time between two samples, at least and at most.
const EVERY: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// Times that a sample takes until the next one: each walks all page tables of the guests.
const REST: u32 = 25;

/// The samples of a run.
#[derive(Debug)]
pub(super) struct TruthRecorder<'a> {
    truth: Option<&'a GuestTruth>,
    root: Root,
    began: Instant,
    next: Instant,
    pub(super) points: Vec<TruthPoint>,
}

impl<'a> TruthRecorder<'a> {
    /// Starts at `began`. Without a `truth` it records nothing.
    pub(super) fn new(truth: Option<&'a GuestTruth>, began: Instant) -> Self {
        Self { truth, root: Root::host(), began, next: began, points: Vec::new() }
    }

    /// Takes a sample if one is due: `guests` are the PIDs and the bytes of contents of the guests that have filled their memory.
    pub(super) fn record_due(&mut self, counted_bytes: u64, guests: impl Iterator<Item = (u32, u64)>) {
        let now = Instant::now();
        let Some(truth) = self.truth.filter(|_| self.next <= now) else { return };
        let at = self.began.elapsed().as_secs_f64();
        let memory = truth.read(guests);
        self.points.push(TruthPoint {
            at,
            counted_bytes,
            truly_saved_bytes: memory.saved_bytes,
            huge_bytes: memory.huge_bytes,
            free_bytes: self.free_bytes(),
        });
        let [least, most] = EVERY;
        self.next = now + (now.elapsed() * REST).clamp(least, most);
    }

    fn free_bytes(&self) -> u64 {
        let text = self.root.text("proc/meminfo");
        text.value().and_then(|text| Meminfo::parse(text).ok()?.free).unwrap_or(0)
    }
}
