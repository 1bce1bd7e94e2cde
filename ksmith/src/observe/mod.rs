//! Looks at the host and takes one [`Sample`] per tick.
//!
//! It owns every descriptor under `/proc` and `/sys` that is read again and again, and the table of processes.
//! Cheap on a host with many processes: those with mergeable memory (and hypervisors) are read each tick through
//! kept descriptors, all others are looked at a few times when they are new and then about once a minute.
//! Starts and exits come from the kernel ([`ProcessEvents`]), or from a scan of `/proc` every few seconds.
//!
//! Reading a process's KSM figures waits for its memory map's lock (6.14 and later): a process that holds it for
//! long delays the sample, which is why nothing else here waits for anything.

mod batch;
mod connector;
mod descriptors;
mod discovery;
mod events;
mod figures;
mod host;
mod kept_file;
mod ksm_dir;
mod ksmd;
mod plain;
mod proc_dir;
mod processes;
mod schedule;
mod scratch;
mod watched;

pub use connector::ProcessEvent;
pub use events::{NoEvents, ProcessEvents};

use std::fmt;
use std::time::Duration;

use ksmith_core::kernel::{Ksm, Run};
use ksmith_core::sample::Sample;
use rustix::time::{ClockId, clock_gettime};

use self::descriptors::Descriptors;
use self::host::Host;
use self::ksm_dir::KsmDir;
use self::processes::Processes;
use self::scratch::Scratch;
use crate::root::Root;

/// The page size of every captured tree.
const CAPTURED_PAGE_SIZE: u64 = 4096;

/// Takes samples of one host. On the live host this raises the process's soft limit on open files.
pub struct Observer {
    clock: Clock,
    page_size: u64,
    scratch: Scratch,
    ksm: KsmDir,
    host: Host,
    processes: Processes,
    /// Noted in every sample; told from outside.
    pub pool_shortness: f64,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// Where [`Sample::at`] comes from.
enum Clock {
    /// `CLOCK_BOOTTIME`, which goes on while the host is suspended.
    Boot,
    /// A captured tree has no time of its own: each sample is a second after the one before, the first at 0.
    Counter(Duration),
}

impl Clock {
    fn now(&self) -> Duration {
        match self {
            // The clock counts from boot: never negative.
            Self::Boot => clock_gettime(ClockId::Boottime).try_into().unwrap_or_default(),
            Self::Counter(now) => *now,
        }
    }

    fn advance(&mut self) {
        if let Self::Counter(now) = self {
            *now += Duration::from_secs(1);
        }
    }
}

impl Observer {
    /// An observer of the host or of a captured tree. Nothing is read yet.
    pub fn new(root: Root) -> Self {
        let (clock, page_size, descriptors) = if root.is_host() {
            (Clock::Boot, rustix::param::page_size() as u64, Descriptors::of_host())
        } else {
            // Somebody may edit the tree between two samples: nothing is kept open.
            (Clock::Counter(Duration::ZERO), CAPTURED_PAGE_SIZE, Descriptors::with(0))
        };
        Self {
            clock,
            page_size,
            scratch: Scratch::new(),
            ksm: KsmDir::new(&root),
            host: Host::new(&root),
            processes: Processes::new(&root, descriptors),
            pool_shortness: 0.0,
        }
    }

    /// Looks at everything now. Never fails: each source in the sample has its own outcome.
    ///
    /// The first sample looks at every process. Before Linux 6.14 memory that a process has marked as mergeable
    /// and that ksmd has not visited yet is found only some samples later.
    pub fn sample(&mut self) -> Sample {
        let mut sample = Sample {
            at: self.clock.now(),
            page_size: self.page_size,
            pool_shortness: self.pool_shortness,
            ..Sample::default()
        };
        sample.ksm = Ksm::read(&mut self.ksm.with(&mut self.scratch));
        self.processes.read(&mut self.scratch, &mut sample);
        if sample.ksm.run_state() == Some(Run::Running) {
            // What a process holds was there before these ends of passes were counted, not after.
            sample.ksm = Ksm::read(&mut self.ksm.with(&mut self.scratch));
        }
        self.host.read(&mut self.scratch, &mut sample);
        sample.took = self.clock.now().saturating_sub(sample.at);
        self.clock.advance();
        sample
    }

    /// Takes in an event that [`ProcessEvents`] sent.
    pub fn notice(&mut self, event: ProcessEvent) {
        self.processes.notice(event, self.clock.now());
    }

    /// Takes in a batch of events. Returns whether a sample is worth while at once: a virtual machine may have
    /// started, or a process with mergeable memory has ended.
    pub fn notice_all(&mut self, events: impl IntoIterator<Item = ProcessEvent>) -> bool {
        self.processes.notice_all(events, self.clock.now(), &mut self.scratch)
    }

    /// Makes the next sample read every process with mergeable memory: while ksmd sleeps, of many a part is else as of one
    /// of the last few samples.
    pub fn look_closely(&mut self) {
        self.processes.look_closely();
    }

    /// How long it is until a process that an event told of is to be looked at for the first time.
    pub fn next_glance(&self) -> Option<Duration> {
        self.processes.next_young().map(|due| due.saturating_sub(self.clock.now()))
    }

    /// Looks at the processes that have started lately, and at nothing else. Returns whether one of them has mergeable
    /// memory: then a sample is worth while at once.
    pub fn glance(&mut self) -> bool {
        self.processes.look_at_young(self.clock.now(), &mut self.scratch)
    }

    /// Makes the next sample go through all of `/proc`, whatever events and schedules say.
    pub fn refresh(&mut self) {
        self.processes.refresh();
    }

    /// Makes the next sample look at every process, however lately it was looked at: some 10 us for each.
    pub fn look_at_all(&mut self) {
        self.processes.look_at_all();
    }
}

#[cfg(test)]
mod tests;
