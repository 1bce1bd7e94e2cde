//! Continuous reading of a host's guests in small turns. Keeps the newest complete sketch of each.
//!
//! A guest's sketch is replaced only when the guest has been read from beginning to end. So each sketch is a sample of
//! all its pages, and no page counts twice. The length of a round depends only on the budget: the caller waits between
//! the turns.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use ksmith_core::sample::ProcessId;
use ksmith_host::memory::scan::page_size;

use crate::clock::ClockTime;
use crate::file::{HostSketch, SketchWriteError, write_file};
use crate::host_facts::{HostFacts, SkippedGuest};
use crate::key::FleetKey;
use crate::rate::RateRule;
use crate::reading::{FinishedReading, GuestReading, OpenedGuest, ReadingBuffers, ReadingStep};
use crate::subject::{SketchSubject, identify};

/// Limit of guests that wait for their second look at the same time.
const WAITING: usize = 8;

/// Options of a rotation.
#[derive(Debug, Clone)]
pub struct RotationOptions {
    /// The rule that sets the sampling rate.
    pub rate: RateRule,
    /// Delay before the second look at the sampled pages; `None` for no second look.
    pub again: Option<Duration>,
    /// Minimum time between the beginnings of two rounds.
    pub every: Duration,
}

/// The result of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotationTurn {
    /// The turn read a small part.
    Worked,
    /// A guest was opened, or failed to open. The kernel walked its page tables, in a child of this process.
    Opened,
    /// A round is complete: each readable guest has a sketch.
    Round,
    /// There is no work until this time.
    Idle(Duration),
}

/// A round robin over the guests of a host.
#[derive(Debug)]
pub struct SketchRotation {
    key: FleetKey,
    options: RotationOptions,
    buffers: ReadingBuffers,
    /// The guests of the host, as of the last update.
    subjects: Vec<SketchSubject>,
    queue: VecDeque<ProcessId>,
    current: Option<GuestReading>,
    waiting: Vec<(Duration, GuestReading)>,
    sketches: BTreeMap<ProcessId, FinishedReading>,
    failures: BTreeMap<ProcessId, String>,
    /// Start of the round, and whether its end was reported.
    round: Option<(Duration, bool)>,
}

impl SketchRotation {
    /// Creates a rotation without guests.
    pub fn new(key: FleetKey, options: RotationOptions) -> Self {
        Self {
            key,
            options,
            buffers: ReadingBuffers::new(),
            subjects: Vec::new(),
            queue: VecDeque::new(),
            current: None,
            waiting: Vec::new(),
            sketches: BTreeMap::new(),
            failures: BTreeMap::new(),
            round: None,
        }
    }

    /// Updates the list of guests. Drops the sketches of those that are gone; new ones are read in this round.
    pub fn guests(&mut self, mut subjects: Vec<SketchSubject>) {
        identify(&mut subjects);
        let first = |subject: &SketchSubject| subject.processes.first().copied();
        let is_there = |id: &ProcessId| subjects.iter().any(|subject| first(subject) == Some(*id));
        self.sketches.retain(|id, _| is_there(id));
        self.failures.retain(|id, _| is_there(id));
        self.queue.retain(is_there);
        let is_known = |id: &ProcessId| self.subjects.iter().any(|subject| first(subject) == Some(*id));
        if self.round.is_some() {
            self.queue.extend(subjects.iter().filter_map(first).filter(|id| !is_known(id)));
        }
        self.subjects = subjects;
    }

    /// Performs a small part of the work that is due.
    pub fn turn(&mut self, now: ClockTime) -> RotationTurn {
        if let Some(at) = self.waiting.iter().position(|(due, _)| *due <= now.at) {
            let (_, reading) = self.waiting.swap_remove(at);
            return self.step(reading, now);
        }
        if let Some(reading) = self.current.take() {
            return self.step(reading, now);
        }
        let due = self.waiting.iter().map(|(due, _)| *due).min();
        if let Some(due) = due.filter(|_| self.waiting.len() >= WAITING) {
            return RotationTurn::Idle(due);
        }
        if let Some(id) = self.queue.pop_front() {
            self.open(id);
            return RotationTurn::Opened;
        }
        match (due, self.round) {
            (Some(due), _) => RotationTurn::Idle(due),
            (None, Some((began, false))) => {
                self.round = Some((began, true));
                RotationTurn::Round
            }
            (None, Some((began, true))) if now.at < began + self.options.every => {
                RotationTurn::Idle(began + self.options.every)
            }
            (None, _) => {
                self.round = Some((now.at, false));
                self.queue =
                    self.subjects.iter().filter_map(|subject| subject.processes.first().copied()).collect();
                RotationTurn::Worked
            }
        }
    }

    fn open(&mut self, id: ProcessId) {
        let subject = self.subjects.iter().find(|subject| subject.processes.first() == Some(&id));
        let Some(subject) = subject.cloned() else { return };
        // The file has one rate, which the largest guest sets. What is resident is known of all at once.
        let most = self.subjects.iter().map(|subject| subject.rss_bytes / page_size()).max().unwrap_or(0);
        let rate = self.options.rate.rate(most);
        match OpenedGuest::open(subject) {
            Ok(opened) => self.current = Some(opened.begin(&self.key, rate, self.options.again)),
            Err(why) => self.fail(id, why.to_string()),
        }
    }

    fn fail(&mut self, id: ProcessId, why: String) {
        self.sketches.remove(&id);
        self.failures.insert(id, why);
    }

    fn step(&mut self, mut reading: GuestReading, now: ClockTime) -> RotationTurn {
        let id = reading.subject().processes.first().copied();
        match (reading.step(&mut self.buffers, now), id) {
            (ReadingStep::Read, _) if reading.is_read() => self.waiting.push((now.at, reading)),
            (ReadingStep::Read, _) => self.current = Some(reading),
            (ReadingStep::Wait(until), _) => self.waiting.push((until, reading)),
            (ReadingStep::Done, Some(id)) => {
                self.failures.remove(&id);
                self.sketches.insert(id, reading.finish(now));
            }
            (ReadingStep::Gone, Some(id)) => self.fail(id, "it has ended".to_owned()),
            (ReadingStep::Done | ReadingStep::Gone, None) => {}
        }
        RotationTurn::Worked
    }

    /// Returns true if the next turn takes a second look at sampled pages.
    pub fn is_looking_again(&self, now: ClockTime) -> bool {
        self.waiting.iter().any(|(due, _)| *due <= now.at)
    }

    /// Returns the guests.
    pub(crate) fn subjects(&self) -> &[SketchSubject] {
        &self.subjects
    }

    /// Returns the number of guests with a sketch.
    pub fn sketched(&self) -> usize {
        self.sketches.len()
    }

    /// Returns the number of guests, with a sketch or without.
    pub fn known(&self) -> usize {
        self.subjects.len()
    }

    /// Returns the memory that all sketches use, in bytes.
    pub fn bytes(&self) -> usize {
        self.sketches.values().map(|guest| guest.sketch.bytes()).sum()
    }

    /// Returns true if each guest has been read to its end, or can't be read.
    pub fn is_complete(&self) -> bool {
        let is_done = |id: &ProcessId| self.sketches.contains_key(id) || self.failures.contains_key(id);
        self.subjects.iter().filter_map(|subject| subject.processes.first()).all(is_done)
    }

    /// Returns the id of its key.
    pub fn key_id(&self) -> String {
        self.key.id()
    }

    /// Writes the sketch file of this host: all guests with a sketch, and the names of those without. Returns its size.
    /// `next_key_id` is that of the key that comes next, if all guests have been read with it.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(
        &self,
        path: &Path,
        mut facts: HostFacts,
        next_key_id: Option<&str>,
    ) -> Result<u64, SketchWriteError> {
        let mut guests = Vec::new();
        for subject in &self.subjects {
            let Some(id) = subject.processes.first() else { continue };
            match self.sketches.get(id) {
                // Its figures and its domain may have changed since it was read.
                Some(found) => guests.push((subject, found)),
                None => {
                    let why = self.failures.get(id).map_or("it has not been read yet", String::as_str).to_owned();
                    facts
                        .skipped
                        .push(SkippedGuest { guest: format!("{} (pid {})", subject.name, subject.pid), why });
                }
            }
        }
        guests.sort_by(|one, other| one.0.guest_id.cmp(&other.0.guest_id));
        let key_id = self.key.id();
        let sketch = HostSketch { facts: &facts, guests, key_id: &key_id, next_key_id, page_size: page_size() };
        write_file(path, &sketch)
    }
}
