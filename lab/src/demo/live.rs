//! The demo on the live kernel, with processes as guests and in real time.

use std::env;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use ksmith_core::kernel::Ksm;
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::sample::Sample;

use super::DemoError;
use super::stage::{DemoMode, DemoStage};
use crate::truth::{GuestTruth, filled_guest};
use crate::{GuestContents, GuestPages, MemoryGuest};
use ksmith_core::controller::{ApplyOutcome, KeepTerms, KsmHost};
use ksmith_host::live::LiveHost;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::signals::Signal;

/// The longest wait for ksmd to remove the pages of processes that have ended.
const SETTLING: Duration = Duration::from_secs(5);

/// The time from one reading of the guests' page tables to the next, at least.
const READING: Duration = Duration::from_millis(200);

/// The live host and the guests of the demo.
#[derive(Debug)]
pub struct LiveStage {
    // Dropped before `host` restores: the merged pages of an ended guest need not be unmerged.
    guests: Vec<MemoryGuest>,
    host: LiveHost,
    before: KnobSettings,
    saved_before: u64,
    started: Instant,
    interrupts: Receiver<Signal>,
    program: PathBuf,
    keep_terms: KeepTerms,
    /// Reads page tables, where guests are on huge pages.
    truth: Option<GuestTruth>,
    /// The newest reading, and its time.
    truly_saved: (u64, Option<Instant>),
}

impl LiveStage {
    /// Makes a stage of a host that is already under control, with guests on such `pages`. A signal on `interrupts` ends the
    /// demo.
    ///
    /// # Errors
    /// A guest can't be started.
    pub fn new(
        mut host: LiveHost,
        interrupts: Receiver<Signal>,
        pages: GuestPages,
        keep_terms: KeepTerms,
    ) -> Result<Self, DemoError> {
        let program = env::current_exe().map_err(DemoError::Program)?;
        let is_huge = pages == GuestPages::Huge;
        let truth = is_huge.then(|| GuestTruth::new(Root::host(), &program)).transpose()?;
        let sample = host.observer.sample();
        let before = KnobSettings::current(&sample.ksm);
        let mut saved_before = sample.ksm.saved_pages();
        if let Some(living) = sample.merged_by_the_living().filter(|living| *living < saved_before) {
            settle(&mut host, living);
            saved_before = host.observer.sample().ksm.saved_pages();
        }
        let (guests, started, truly_saved) = (Vec::new(), Instant::now(), (0, None));
        Ok(Self {
            guests,
            host,
            before,
            saved_before,
            started,
            interrupts,
            program,
            keep_terms,
            truth,
            truly_saved,
        })
    }
}

/// Runs ksmd until no more than `saved` pages count as saved, so that it removes the pages of ended processes.
///
/// The kernel counts an ended process's pages as saved until ksmd scans its slot (`__ksm_exit` in `mm/ksm.c`);
/// with ksmd stopped they would count for ever. Two ends of passes cover every process, even if other pages merge
/// meanwhile. Nothing depends on success, so a refused write is not reported here.
fn settle(host: &mut LiveHost, saved: u64) {
    let scanning = KnobSettings::none()
        .with(Knob::AdvisorMode, 0)
        .with(Knob::PagesToScan, 20_000)
        .with(Knob::SleepMillisecs, 1)
        .with(Knob::Run, 1);
    let started = Instant::now();
    let mut passes = None;
    loop {
        let ksm = host.observer.sample().ksm;
        let full_scans = ksm.full_scans.get().unwrap_or(0);
        let has_passed = full_scans.saturating_sub(*passes.get_or_insert(full_scans)) >= 2;
        if ksm.saved_pages() <= saved || has_passed || started.elapsed() > SETTLING {
            break;
        }
        host.apply(&scanning);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The settings to compare after a restore. `pages_to_scan` is left out while the kernel's advisor is on, because
/// the advisor starts again from its minimum.
fn comparable(mut knobs: KnobSettings) -> KnobSettings {
    if knobs.get(Knob::AdvisorMode) == Some(1) {
        knobs.remove(Knob::PagesToScan);
    }
    knobs
}

impl KsmHost for LiveStage {
    fn sample(&mut self) -> Sample {
        self.host.sample()
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        self.host.apply(knobs)
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        self.host.hold(until_next, rest_after)
    }
}

impl DemoStage for LiveStage {
    fn mode(&self) -> DemoMode {
        DemoMode::Live
    }

    fn pages(&self) -> GuestPages {
        if self.truth.is_some() { GuestPages::Huge } else { GuestPages::Small }
    }

    fn keep_terms(&self) -> KeepTerms {
        self.keep_terms
    }

    fn truly_saved_bytes(&mut self) -> Option<u64> {
        let truth = self.truth.as_ref()?;
        let (saved, at) = self.truly_saved;
        if at.is_some_and(|at| at.elapsed() < READING) {
            return Some(saved);
        }
        let saved = truth.read(self.guests.iter().map(filled_guest)).saved_bytes;
        self.truly_saved = (saved, Some(Instant::now()));
        Some(saved)
    }

    fn start(&mut self, _name: &str, contents: &GuestContents) -> Result<(), DemoError> {
        let mut guest = MemoryGuest::start_on(&self.program, contents, self.pages())?;
        guest.wait_ready()?;
        self.guests.push(guest);
        self.host.observer.refresh();
        Ok(())
    }

    fn wait(&mut self, time: Duration) -> Result<(), DemoError> {
        match self.interrupts.recv_timeout(time) {
            Ok(_) => Err(DemoError::Interrupted),
            Err(_) => Ok(()),
        }
    }

    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn wrong_pages(&mut self) -> Result<usize, DemoError> {
        self.guests.iter_mut().try_fold(0, |sum, guest| Ok(sum + guest.wrong_pages()?))
    }

    fn strike(mut self) -> Result<bool, DemoError> {
        self.guests.clear();
        settle(&mut self.host, self.saved_before);
        self.host.control.restore()?;
        let after: Ksm = HostObserver::new(Root::host()).sample().ksm;
        Ok(comparable(KnobSettings::current(&after)) == comparable(self.before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernels_advisor_writes_is_not_compared() {
        let pages = |mode, pages| {
            comparable(KnobSettings::none().with(Knob::AdvisorMode, mode).with(Knob::PagesToScan, pages))
        };
        assert_eq!(pages(1, 700), pages(1, 4000));
        assert_ne!(pages(0, 700), pages(0, 4000));
        assert_ne!(pages(0, 700), pages(1, 700));
    }
}
