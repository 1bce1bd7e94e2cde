//! Folding of a job from outside: a thread scans the job's processes, and folds those that are due.

use std::collections::BTreeMap;
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ksmith_core::job::{FoldSchedule, FoldWhen};
use ksmith_core::sample::ProcessId;
use serde::Serialize;

use super::tree::{self, JobMember};
use crate::fold::{FoldError, FoldSettings, FoldTally, FoldTarget, LeftBytes};
use crate::own_use::thread_cpu;
use crate::root::Root;

/// The least pause between two scans of the job's processes.
const PAUSE: Duration = Duration::from_millis(250);

/// Scans cost at most `1 / SHARE` of the time: the pause grows with their cost.
const SHARE: u32 = 100;

/// The least zero part of a job's huge page for it to be split, in thousandths: 8 pages of 4 KiB. A job's memory is in huge pages only
/// because ksmith asked for them, and they must not cost memory.
const LEAST_ZERO_PERMILLE: u32 = 15;

/// The result of folding in a job.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct JobFoldReport {
    /// Processes that were folded.
    pub processes: u64,
    /// Passes over all huge pages of a process.
    pub passes: u64,
    /// CPU time of all passes.
    pub cpu_seconds: f64,
    /// Freed bytes, all passes together. Memory that was written to and folded again counts again.
    pub folded_bytes: u64,
    /// Bytes in huge pages that were read, all passes together.
    pub looked_bytes: u64,
    /// Bytes that the last pass over each process left unchanged, by reason.
    pub left: LeftBytes,
    /// The reason of the last failure to fold a process; null if there was none.
    pub refusal: Option<String>,
}

/// Settings of the folding of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobFoldSettings {
    /// The time at which processes are folded.
    pub when: FoldWhen,
    /// Share of a CPU for the passes over each process after its first.
    pub cpu_share: f64,
}

/// The thread that folds a job. It ends with [`JobFolder::finish`].
#[derive(Debug)]
pub struct JobFolder {
    stop: Sender<()>,
    thread: JoinHandle<JobFoldReport>,
}

impl JobFolder {
    /// Starts folding the descendants of this process.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn begin(settings: JobFoldSettings) -> io::Result<Self> {
        let (stop, stopped) = bounded(1);
        let worker = FoldWorker {
            root: Root::host(),
            settings,
            started: Instant::now(),
            known: BTreeMap::new(),
            report: JobFoldReport::default(),
        };
        let thread = std::thread::Builder::new().name("fold".to_owned()).spawn(move || worker.work(&stopped))?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread and returns its report.
    pub fn finish(self) -> JobFoldReport {
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// The worker's state of a process of the job.
#[derive(Debug)]
struct KnownProcess {
    schedule: FoldSchedule,
    first_seen: Duration,
    /// Memory that its last pass left unchanged, if there was one.
    left: Option<LeftBytes>,
    /// True if it can't be folded, and is not tried again.
    is_given_up: bool,
}

struct FoldWorker {
    root: Root,
    settings: JobFoldSettings,
    started: Instant,
    known: BTreeMap<ProcessId, KnownProcess>,
    report: JobFoldReport,
}

impl FoldWorker {
    fn work(mut self, stopped: &Receiver<()>) -> JobFoldReport {
        let mut pause = PAUSE;
        while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let begin = thread_cpu();
            let members = tree::descendants(&self.root, std::process::id(), rustix::param::page_size() as u64);
            pause = (thread_cpu().saturating_sub(begin) * SHARE).max(PAUSE);
            for member in &members {
                self.visit(member);
            }
        }
        let folded: Vec<&LeftBytes> = self.known.values().filter_map(|process| process.left.as_ref()).collect();
        self.report.processes = folded.len() as u64;
        folded.iter().for_each(|left| self.report.left.add(left));
        self.report
    }

    /// Records the sight of a process, and folds it if it is due.
    fn visit(&mut self, member: &JobMember) {
        let now = self.started.elapsed();
        let JobFoldSettings { when, cpu_share } = self.settings;
        let process = self.known.entry(member.id).or_insert_with(|| KnownProcess {
            schedule: FoldSchedule::new(when, cpu_share),
            first_seen: now,
            left: None,
            is_given_up: false,
        });
        let age = now.saturating_sub(process.first_seen);
        if process.is_given_up || !process.schedule.is_due(age, member.rss_bytes) {
            return;
        }
        match fold(member.id) {
            Ok(tally) => {
                let cpu = Duration::try_from_secs_f64(tally.cpu_seconds).unwrap_or_default();
                let age = self.started.elapsed().saturating_sub(process.first_seen);
                process.schedule.record_pass(age, tally.freed_bytes, tally.looked_bytes, cpu);
                process.left = Some(tally.left);
                let report = &mut self.report;
                report.passes += 1;
                report.cpu_seconds += tally.cpu_seconds;
                report.folded_bytes = report.folded_bytes.saturating_add(tally.freed_bytes);
                report.looked_bytes = report.looked_bytes.saturating_add(tally.looked_bytes);
            }
            Err(None) => {}
            Err(Some(why)) => {
                process.is_given_up = matches!(why, FoldError::Denied | FoldError::NoCall(_));
                process.schedule.record_failure(age);
                self.report.refusal = Some(why.to_string());
            }
        }
    }
}

/// Folds a process. Fails with `None` if it has ended.
fn fold(id: ProcessId) -> Result<FoldTally, Option<FoldError>> {
    use crate::memory::error::UnreadableProcess::{Exited, NoSuchProcess};

    let outcome = FoldTarget::open(id.pid).map_err(FoldError::from).and_then(|target| {
        if target.id() == id {
            target.fold(&FoldSettings {
                least_zero_permille: LEAST_ZERO_PERMILLE,
                collapses: true,
                ..FoldSettings::default()
            })
        } else {
            Err(Exited.into())
        }
    });
    outcome.map_err(|why| Some(why).filter(|why| !matches!(why, FoldError::Unreadable(Exited | NoSuchProcess))))
}
