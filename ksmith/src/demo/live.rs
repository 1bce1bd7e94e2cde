//! The demo on the live kernel: guests are processes, time is time.

use std::env;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use ksmith_core::kernel::Ksm;
use ksmith_core::knobs::Knobs;
use ksmith_core::sample::Sample;

use super::DemoError;
use super::stage::{Mode, Stage};
use crate::controller::{Applied, Host};
use crate::lab::{Contents, MemoryGuest};
use crate::live::LiveHost;
use crate::observe::Observer;
use crate::root::Root;
use crate::signals::Signal;

/// The live host and the guests that run on it for the demo.
#[derive(Debug)]
pub struct LiveStage {
    // Ended before `host` restores: a guest that goes takes its merged pages along.
    guests: Vec<MemoryGuest>,
    host: LiveHost,
    before: Knobs,
    started: Instant,
    interrupts: Receiver<Signal>,
}

impl LiveStage {
    /// Sets the stage on a host that is under control already; a signal on `interrupts` ends the demo.
    pub fn new(mut host: LiveHost, interrupts: Receiver<Signal>) -> Self {
        let before = Knobs::current(&host.observer.sample().ksm);
        Self { guests: Vec::new(), host, before, started: Instant::now(), interrupts }
    }
}

impl Host for LiveStage {
    fn sample(&mut self) -> Sample {
        self.host.sample()
    }

    fn apply(&mut self, knobs: &Knobs) -> Applied {
        self.host.apply(knobs)
    }
}

impl Stage for LiveStage {
    fn mode(&self) -> Mode {
        Mode::Live
    }

    fn start(&mut self, _name: &str, contents: &Contents) -> Result<(), DemoError> {
        let program = env::current_exe().map_err(DemoError::Program)?;
        let mut guest = MemoryGuest::start(&program, contents)?;
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
        self.host.control.restore()?;
        let after: Ksm = Observer::new(Root::host()).sample().ksm;
        Ok(Knobs::current(&after) == self.before)
    }
}
