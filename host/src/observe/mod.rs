//! Observing the host: one [`Sample`] per tick.
//!
//! This module owns the table of processes and every descriptor of the host's files that is read repeatedly.
//! To be cheap on a host with many processes, it reads only hypervisors and processes with mergeable memory at
//! each tick. All others are read a few times when they are new and then about once a
//! minute. The kernel reports starts and exits ([`ProcessEvents`]); without its events a scan of `/proc` every
//! few seconds finds them.
//!
//! Reading a process's KSM figures or its `stat` waits for locks that the process may keep. So a child process reads
//! them ([`crate::reader`]), of all processes in one go, and for some milliseconds at most. A process that does not answer is named in the sample, and its
//! mergeability is unknown. Nothing else here waits.

mod asked;
mod batch;
mod connector;
mod discovery;
mod events;
mod figures;
mod host;
mod inherited;
mod kept_file;
mod kernel_files;
mod ksmd;
mod look;
mod plain;
mod proc_dir;
mod processes;
mod schedule;
mod scratch;
mod silences;
mod watch_budget;
mod watched;

pub use connector::ProcessEvent;
pub use events::{NoEvents, ProcessEvents};

use std::fmt;
use std::time::Duration;

use ksmith_core::kernel::{Ksm, KsmStat, RunState};
use ksmith_core::sample::Sample;
use rustix::time::{ClockId, clock_gettime};

use self::host::HostFiles;
use self::kernel_files::KernelFiles;
use self::processes::ProcessTable;
use self::scratch::ReadBuffer;
use crate::ksm_counts::LostZeroPages;
use crate::root::Root;

/// Returns true if the kernel shows for each process whether it has mergeable memory that ksmd has not visited: from
/// Linux 6.14 on. On earlier kernels only ksmd's progress shows if there is anything to scan.
pub fn shows_mergeable(root: &Root) -> bool {
    let own = root.text("proc/self/ksm_stat").and_then(|text| KsmStat::parse(&text));
    own.get().is_some_and(|stat| stat.mergeable.is_some())
}

/// The observer of one host.
pub struct HostObserver {
    clock: SampleClock,
    page_size: u64,
    shown_huge_page_bytes: Option<u64>,
    scratch: ReadBuffer,
    ksm: KernelFiles,
    lost: LostZeroPages,
    host: HostFiles,
    processes: ProcessTable,
    shows_mergeable: bool,
    /// True if ksmd ran at the last sample.
    has_run: bool,
    /// Shortness of the host's pool, set by the caller and copied into every sample.
    pub pool_shortness: f64,
}

impl fmt::Debug for HostObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

/// The source of [`Sample::at`].
enum SampleClock {
    /// The kernel's `CLOCK_BOOTTIME`, which goes on while the host is suspended.
    Boot,
    /// A counter for captured trees: the first sample is at 0, and each next is a second later.
    Counter(Duration),
}

impl SampleClock {
    fn now(&self) -> Duration {
        match self {
            // The clock counts from boot and is never negative.
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

impl HostObserver {
    /// Creates an observer of the host or of a captured tree. Nothing is read yet.
    pub fn new(root: Root) -> Self {
        // Commands refuse a tree that shows no page size before they observe it.
        let page_size = root.page_size().unwrap_or_default();
        let clock = if root.is_host() { SampleClock::Boot } else { SampleClock::Counter(Duration::ZERO) };
        Self {
            clock,
            page_size,
            shown_huge_page_bytes: root.shown_huge_page_bytes(),
            scratch: ReadBuffer::new(),
            ksm: KernelFiles::of_ksm(&root),
            lost: LostZeroPages::default(),
            host: HostFiles::new(&root),
            processes: ProcessTable::new(&root),
            shows_mergeable: shows_mergeable(&root),
            has_run: false,
            pool_shortness: 0.0,
        }
    }

    /// Takes a sample. It never fails: each source in the sample has its own outcome.
    ///
    /// The first sample reads every process. Before Linux 6.14, mergeable memory that ksmd has not visited yet is
    /// found only some samples later.
    pub fn sample(&mut self) -> Sample {
        let mut sample = Sample {
            at: self.clock.now(),
            page_size: self.page_size,
            shown_huge_page_bytes: self.shown_huge_page_bytes,
            pool_shortness: self.pool_shortness,
            shows_mergeable: self.shows_mergeable,
            ..Sample::default()
        };
        // Before the processes, so that those are spared which can't have changed.
        if !self.has_run {
            sample.ksm = Ksm::read(&mut self.ksm.with(&mut self.scratch));
        }
        self.processes.read(&mut self.scratch, &mut sample);
        if self.has_run || sample.ksm.run_state() == Some(RunState::Running) {
            // After the processes, so that their figures are not newer than the count of passes.
            sample.ksm = Ksm::read(&mut self.ksm.with(&mut self.scratch));
        }
        self.has_run = sample.ksm.run_state() == Some(RunState::Running);
        self.host.read(&mut self.scratch, &mut sample);
        self.lost.take_off(&mut sample);
        sample.took = self.clock.now().saturating_sub(sample.at);
        self.clock.advance();
        sample
    }

    /// Handles an event from [`ProcessEvents`].
    pub fn notice(&mut self, event: ProcessEvent) {
        self.processes.notice(event, self.clock.now());
    }

    /// Handles a batch of events. Returns true if a sample should be taken at once, because a virtual machine may have
    /// started or a process with mergeable memory has ended.
    pub fn notice_all(&mut self, events: impl IntoIterator<Item = ProcessEvent>) -> bool {
        self.processes.notice_all(events, self.clock.now(), &mut self.scratch)
    }

    /// Makes the next sample read every process with mergeable memory. Otherwise, while ksmd sleeps, a part of
    /// many processes is copied from one of the last few samples.
    pub fn look_closely(&mut self) {
        self.processes.look_closely();
    }

    /// Returns the time until the first reading of a process that an event reported.
    pub fn next_glance(&self) -> Option<Duration> {
        self.processes.next_young().map(|due| due.saturating_sub(self.clock.now()))
    }

    /// Reads only the processes that have just started. Returns true if one of them has mergeable memory, so that a
    /// sample should be taken at once.
    pub fn glance(&mut self) -> bool {
        self.processes.look_at_young(self.clock.now(), &mut self.scratch)
    }

    /// Makes the next sample scan all of `/proc`, regardless of events and schedules.
    pub fn refresh(&mut self) {
        self.processes.refresh();
    }

    /// Makes the next sample read every process, regardless of schedules. Each costs some 10 us.
    pub fn look_at_all(&mut self) {
        self.processes.look_at_all();
    }
}

#[cfg(test)]
mod tests;
