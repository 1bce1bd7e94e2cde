//! The schedule of reading guests for their sketches, and its budget of CPU time.
//!
//! A sketch ([`GuestSketch`]) tells what a new guest has in common with others before ksmd moves, at a fraction of
//! ksmd's price. The [`SketchKeeper`] decides what to read, and keeps an account of the CPU time that it took. Reading
//! memory is up to its owner.
//!
//! * A guest is read when it is first seen, but for one that has only just started, and again when it has grown.
//! * When a pass of ksmd has ended, the kept pages of new guests that some other guest holds too are looked at again,
//!   in both: which of them are merged now.
//! * A sketch is renewed some minutes later, if the page samples show that memory changes and the account is paid off.

mod account;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use self::account::SketchAccount;
use crate::kernel::RunState;
use crate::reading::Reading;
use crate::sample::{ContentBloomFilter, GuestSketch, HostSketches, ProcessId, ReadPage, Sample, SketchedPage};

/// The next action of the owner of a [`SketchKeeper`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SketchRequest {
    /// Do nothing now.
    Nothing,
    /// Read [`GuestSketch::pages_to_read`] pages of this guest, drawn at random.
    Read(ProcessId),
    /// Look at these pages again.
    Look(Vec<(ProcessId, Vec<u64>)>),
}

/// The state of one guest.
#[derive(Debug, Clone, Default)]
struct SketchedGuest {
    sketch: Option<Arc<GuestSketch>>,
    /// The time when it was read, or could not be; `None` if it is still to be read.
    read_at: Option<Duration>,
    /// Bytes that it had when it was read.
    read_bytes: u64,
    /// Bytes at the last sample and at the one before.
    bytes: [u64; 2],
    /// True if a clean pass has visited it since it was read.
    is_met: bool,
    /// The number of the last sample that it was in.
    sample: u64,
}

/// A guest that has grown by one part in so many is read again, once it grows no more.
const GROWN: u64 = 8;

/// A guest that has not grown by one part in so many since the last sample grows no more.
const STEADY: u64 = 32;

/// A guest younger than that still fills its memory, and would be read once more right after.
const YOUNG: Duration = Duration::from_millis(500);

/// Time after which the sketch of a guest may be renewed, before a clean pass has visited it and after that.
const RENEWED: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(1800)];

/// The part of the sampled pages that has to have changed for a sketch to be renewed.
const CHANGED: f64 = 1.0 / 32.0;

/// Decides what is read, and keeps the sketches.
#[derive(Debug, Clone, Default)]
pub struct SketchKeeper {
    guests: BTreeMap<ProcessId, SketchedGuest>,
    account: SketchAccount,
    /// The number and the time of the last sample.
    sample: u64,
    at: Duration,
    full_scans: u64,
    /// The time when the last pass ended.
    ended_at: Duration,
    /// Passes that had ended when pages were last looked at again.
    looked_scans: u64,
    /// Passes that had ended when the look was asked for that is under way, if it was for their sake.
    looking: Option<u64>,
    /// The guest that was read last, if its contents were not looked for in others since.
    newest: Option<ProcessId>,
    /// True if memory changes, as far as is known.
    changes: bool,
    page_size: u64,
    published: Option<Arc<HostSketches>>,
}

impl SketchKeeper {
    /// Records a sample. Afterwards [`SketchKeeper::next_request`] is called until there is nothing to do.
    pub fn follow(&mut self, sample: &Sample) {
        self.sample += 1;
        self.at = sample.at;
        self.page_size = sample.page_size;
        self.account.follow(sample.at);
        let full_scans = sample.ksm.full_scans.get().unwrap_or(0);
        if full_scans != self.full_scans {
            let is_clean =
                sample.ksm.smart_scan.get().unwrap_or(0) == 0 && sample.ksm.run_state() == Some(RunState::Running);
            if is_clean {
                let began = self.ended_at;
                let has_visited = |known: &&mut SketchedGuest| known.read_at.is_some_and(|at| at <= began);
                self.guests.values_mut().filter(has_visited).for_each(|known| known.is_met = true);
            }
            (self.full_scans, self.ended_at) = (full_scans, sample.at);
        }
        self.changes = match &sample.page_samples {
            Reading::Value(samples) => f64::from(samples.changed) >= f64::from(samples.pages) * CHANGED,
            _ => true,
        };
        let bytes = |process: &crate::sample::ProcessSample| {
            process.rss_bytes.saturating_add(process.zero_pages().saturating_mul(sample.page_size))
        };
        for process in sample.processes.iter().filter(|process| process.may_merge()) {
            let known = self.guests.entry(process.id).or_default();
            (known.bytes, known.sample) = ([bytes(process), known.bytes[0]], self.sample);
        }
        let gone = self.guests.extract_if(.., |_, known| known.sample != self.sample);
        if gone.filter(|(_, known)| known.sketch.is_some()).count() > 0 {
            self.publish();
        }
    }

    /// Returns the next request, as long as the account allows it.
    pub fn next_request(&mut self) -> SketchRequest {
        if !self.account.allows() {
            return SketchRequest::Nothing;
        }
        let is_passed = self.looked_scans != self.full_scans;
        let newest = self.newest.take();
        let places = match newest {
            _ if is_passed => self.open_places(),
            Some(id) => self.merged_places(id),
            None => Vec::new(),
        };
        if !places.is_empty() {
            self.looking = is_passed.then_some(self.full_scans);
            return SketchRequest::Look(places);
        }
        if is_passed {
            self.looked_scans = self.full_scans;
            self.publish();
        }
        let due = self.guests.iter().rev().find(|(id, known)| known.is_due(id.age(self.at))).map(|(id, _)| *id);
        due.or_else(|| self.renewable()).map_or(SketchRequest::Nothing, SketchRequest::Read)
    }

    /// The guest with the oldest sketch, if that may be renewed.
    fn renewable(&self) -> Option<ProcessId> {
        if !self.account.is_paid_off() || !self.changes {
            return None;
        }
        let read = self.guests.iter().filter_map(|(id, known)| Some((id, known.is_met, known.read_at?)));
        let aged = read.map(|(id, is_met, read_at)| (id, is_met, self.at.saturating_sub(read_at)));
        let old = aged.filter(|(_, is_met, age)| *age >= RENEWED[usize::from(*is_met)]);
        old.max_by_key(|(.., age)| *age).map(|(id, ..)| *id)
    }

    /// Records the sketch of a guest; `None` if it can't be read. `cpu_seconds` is the cost of that.
    pub fn record_sketch(&mut self, id: ProcessId, sketch: Option<GuestSketch>, cpu_seconds: f64) {
        self.account.charge(cpu_seconds);
        if let Some(known) = self.guests.get_mut(&id) {
            *known = SketchedGuest {
                sketch: sketch.map(Arc::new),
                read_at: Some(self.at),
                read_bytes: known.bytes[0],
                is_met: false,
                ..*known
            };
            self.newest = Some(id);
        }
        self.publish();
    }

    /// Records the pages that were looked at again, those of each guest by their places; `None` if the page is gone.
    pub fn record_pages(&mut self, pages: &[(ProcessId, FxHashMap<u64, Option<ReadPage>>)], cpu_seconds: f64) {
        self.account.charge(cpu_seconds);
        for (id, pages) in pages {
            if let Some(sketch) = self.guests.get_mut(id).and_then(|known| known.sketch.as_mut()) {
                *sketch = Arc::new(sketch.with_second_reading(pages));
            }
        }
        self.looked_scans = self.looking.take().unwrap_or(self.looked_scans);
        self.publish();
    }

    /// The unmerged pages that a guest which no clean pass has visited has in common with another guest, in both.
    fn open_places(&self) -> Vec<(ProcessId, Vec<u64>)> {
        let sketched = || self.guests.iter().filter_map(|(id, known)| Some((id, known, known.sketch.as_ref()?)));
        // The guest that holds a content. `None`: more than one does.
        let mut holders: FxHashMap<u64, Option<ProcessId>> = FxHashMap::default();
        let mut seen =
            ContentBloomFilter::with_capacity(sketched().map(|(_, _, sketch)| sketch.kept().len()).sum());
        sketched().for_each(|(_, _, sketch)| sketch.kept().iter().for_each(|page| seen.add(page.content())));
        let may_be_common = |page: &&SketchedPage| seen.may_be_twice(page.content());
        for (id, _, sketch) in sketched().filter(|(_, known, _)| !known.is_met) {
            for page in sketch.kept().iter().filter(may_be_common).filter(|page| page.mappings() == 0) {
                let holder = holders.entry(page.content()).or_insert(Some(*id));
                if *holder != Some(*id) {
                    *holder = None;
                }
            }
        }
        let mut common: FxHashSet<u64> =
            holders.iter().filter(|(_, id)| id.is_none()).map(|(content, _)| *content).collect();
        for (id, _, sketch) in sketched() {
            let contents = sketch.kept().iter().filter(may_be_common).map(|page| page.content());
            common
                .extend(contents.filter(|content| holders.get(content).is_some_and(|holder| *holder != Some(*id))));
        }
        let places = sketched().filter_map(|(id, _, sketch)| {
            let open = sketch.kept().iter().filter(may_be_common);
            let open = open.filter(|page| page.mappings() == 0 && common.contains(&page.content()));
            let places: Vec<u64> = open.map(|page| page.place()).collect();
            (!places.is_empty()).then_some((*id, places))
        });
        places.collect()
    }

    /// For each content of a guest that is merged in others, the page of one: how many share its frame by now.
    fn merged_places(&self, id: ProcessId) -> Vec<(ProcessId, Vec<u64>)> {
        let Some(sketch) = self.guests.get(&id).and_then(|known| known.sketch.as_ref()) else { return Vec::new() };
        let mut open: FxHashSet<u64> = sketch.kept().iter().map(|page| page.content()).collect();
        let others = self.guests.iter().filter(|(other, _)| **other != id);
        let places = others.filter_map(|(id, known)| {
            let merged = known.sketch.as_ref()?.kept().iter().filter(|page| page.mappings() > 0);
            let places: Vec<u64> =
                merged.filter(|page| open.remove(&page.content())).map(|page| page.place()).collect();
            (!places.is_empty()).then_some((*id, places))
        });
        places.collect()
    }

    /// Charges CPU time that was spent on it otherwise.
    pub fn charge(&mut self, cpu_seconds: f64) {
        self.account.charge(cpu_seconds);
    }

    fn publish(&mut self) {
        let guests: Vec<_> = self.guests.values().filter_map(|known| known.sketch.clone()).collect();
        let sketches = HostSketches { guests, full_scans: self.looked_scans, page_size: self.page_size };
        self.published = (!sketches.guests.is_empty()).then(|| Arc::new(sketches));
    }

    /// The sketches as they are now.
    pub fn sketches(&self) -> Reading<Arc<HostSketches>> {
        self.published.clone().map_or(Reading::Absent, Reading::Value)
    }

    /// CPU-seconds that reading has taken so far.
    pub fn cpu_seconds(&self) -> f64 {
        self.account.spent()
    }
}

impl SketchedGuest {
    /// Returns true if it is to be read: it never was, or has grown and grows no more. `age`: the time since it
    /// started.
    fn is_due(&self, age: Duration) -> bool {
        let [bytes, before] = self.bytes;
        let is_steady = bytes.abs_diff(before) <= bytes / STEADY;
        let has_grown = bytes > self.read_bytes.saturating_add(self.read_bytes / GROWN);
        bytes > 0 && if self.read_at.is_some() { has_grown && is_steady } else { age >= YOUNG }
    }
}
