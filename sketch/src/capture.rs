//! Capture: reads the guests of this host once.

use std::path::Path;
use std::time::Duration;

use ksmith_host::memory::error::{UnreadableProcess, denied, right};
use ksmith_host::memory::scan::page_size;
use schemars::JsonSchema;
use serde::Serialize;

use crate::clock::SketchClock;
use crate::file::{HostSketch, SketchWriteError, write_file};
use crate::host_facts::{HostFacts, SkippedGuest};
use crate::key::FleetKey;
use crate::rate::{RateRule, SamplingRate};
use crate::reading::{FinishedReading, GuestReading, OpenedGuest, ReadingBuffers, ReadingStep};
use crate::subject::{SketchSubject, identify};

/// Options of a capture.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    /// The guests to read.
    pub subjects: Vec<SketchSubject>,
    /// The rule that sets the sampling rate.
    pub rate: RateRule,
    /// Delay before the second look at the sampled pages; `None` for no second look.
    pub again: Option<Duration>,
}

/// The result of a capture.
#[derive(Debug)]
pub struct CaptureResult {
    /// The completed readings.
    pub guests: Vec<FinishedReading>,
    /// The guests that were left out, with the reasons.
    pub skipped: Vec<SkippedGuest>,
}

/// The error of a capture without any result.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// None of this number of guests may be read.
    #[error("{}: {}", denied(*.0, "guest", "guests"), right("run ksmith as root, or with CAP_SYS_PTRACE"))]
    Denied(usize),
}

/// A summary of a sketch file.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SketchSummary {
    /// The rate, as `1/64`.
    pub rate: String,
    /// Guests in the file.
    pub guests: u64,
    /// Number of pages read that KSM could merge.
    pub pages: u64,
    /// Number of zero pages among them.
    pub zero_pages: u64,
    /// Number of sampled contents, each counted once for each guest that has it.
    pub contents: u64,
    /// Size of the file.
    pub bytes: u64,
    /// Savings in the file that only KSM's counters say.
    pub unverified_bytes: u64,
    /// The most that splits can have freed before page tables were first read; null if there is no bound.
    pub earlier_zero_bytes: Option<u64>,
    /// The guests that were left out, with the reasons.
    pub skipped: Vec<SkippedGuest>,
}

/// Reads all guests once, and waits for the second look.
///
/// # Errors
/// There are guests, and this process may read none of them.
pub fn capture(options: &CaptureOptions, key: &FleetKey) -> Result<CaptureResult, CaptureError> {
    let mut subjects = options.subjects.clone();
    identify(&mut subjects);
    let (mut opened, mut skipped, mut denied) = (Vec::new(), Vec::new(), 0);
    for subject in subjects {
        let guest = format!("{} (pid {})", subject.name, subject.pid);
        match OpenedGuest::open(subject) {
            Ok(guest) => opened.push(guest),
            Err(why) => {
                denied += usize::from(why == UnreadableProcess::Denied.into());
                skipped.push(SkippedGuest { guest, why: why.to_string() });
            }
        }
    }
    if opened.is_empty() && denied > 0 {
        return Err(CaptureError::Denied(denied));
    }
    let rate = options.rate.rate(opened.iter().map(OpenedGuest::pages).max().unwrap_or(0));
    let clock = SketchClock::start();
    let readings = opened.into_iter().map(|guest| guest.begin(key, rate, options.again)).collect();
    let guests = read(readings, rate, &clock, &mut skipped);
    Ok(CaptureResult { guests, skipped })
}

/// Steps through all readings, and sleeps only while none has work.
fn read(
    mut readings: Vec<GuestReading>,
    mut rate: SamplingRate,
    clock: &SketchClock,
    skipped: &mut Vec<SkippedGuest>,
) -> Vec<FinishedReading> {
    let mut buffers = ReadingBuffers::new();
    let mut finished = Vec::new();
    while !readings.is_empty() {
        let (mut next, mut waiting) = (Vec::new(), None::<Duration>);
        for mut reading in readings {
            reading.lower(rate);
            loop {
                match reading.step(&mut buffers, clock.now()) {
                    ReadingStep::Read => {}
                    ReadingStep::Wait(until) => {
                        waiting = Some(waiting.map_or(until, |first| first.min(until)));
                        next.push(reading);
                        break;
                    }
                    ReadingStep::Done => {
                        let guest = reading.finish(clock.now());
                        rate = rate.max(guest.sketch.rate);
                        finished.push(guest);
                        break;
                    }
                    ReadingStep::Gone => {
                        let SketchSubject { name, pid, .. } = reading.subject();
                        let guest = format!("{name} (pid {pid})");
                        skipped.push(SkippedGuest { guest, why: UnreadableProcess::Exited.to_string() });
                        break;
                    }
                }
            }
        }
        readings = next;
        if let Some(until) = waiting {
            std::thread::sleep(until.saturating_sub(clock.now().at));
        }
    }
    finished.sort_by(|one, other| one.subject.guest_id.cmp(&other.subject.guest_id));
    finished
}

impl CaptureResult {
    /// Writes the sketch file of this host.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(
        self,
        path: &Path,
        mut facts: HostFacts,
        key: &FleetKey,
    ) -> Result<SketchSummary, SketchWriteError> {
        facts.skipped.extend(self.skipped);
        let key_id = key.id();
        let guests = self.guests.iter().map(|guest| (&guest.subject, guest)).collect();
        let sketch =
            HostSketch { facts: &facts, guests, key_id: &key_id, next_key_id: None, page_size: page_size() };
        let bytes = write_file(path, &sketch)?;
        let rate = sketch.rate();
        let sum = |of: fn(&FinishedReading) -> u64| self.guests.iter().map(of).sum();
        Ok(SketchSummary {
            rate: rate.to_string(),
            guests: self.guests.len() as u64,
            pages: sum(|guest| guest.sketch.pages),
            zero_pages: sum(|guest| guest.sketch.zero_pages),
            contents: self.guests.iter().map(|guest| guest.sketch.rows(rate).count() as u64).sum(),
            bytes,
            unverified_bytes: facts.ksm.unverified_bytes,
            earlier_zero_bytes: facts.ksm.earlier_zero_bytes,
            skipped: facts.skipped,
        })
    }
}
