//! The recorder: a thread of its own writes the history, and no turn of the daemon waits for it.
//!
//! [`Recorder::record_turn`] hands a turn over by a channel of bounded length. Where the disk is slow the channel fills, and
//! moments are lost and counted. A fault of the disk ends nothing: it is tried again, and the status says so.

mod config;
mod notes;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crossbeam_channel::TrySendError;
use ksmith_core::alarm::AlarmTransition;
use ksmith_core::controller::TickOutcome;
use ksmith_core::decide::DecisionReason;
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::fold::FoldNote;
use ksmith_core::guest::{Guest, GuestLabelRule};
use ksmith_core::model::HistoryStatus;
use ksmith_core::sample::Sample;
use ksmith_host::root::Root;
use ksmith_host::worker_thread::WorkerThread;
use ksmith_record::{DecisionMade, HistoryEvent};
use tracing::warn;

pub use self::config::{DEFAULT_PATH, HistoryConfig};
use self::notes::TurnNotes;
use self::worker::RecorderWorker;

/// The shortest time between two moments that are recorded.
const PERIOD: Duration = Duration::from_millis(995);

/// Moments that may wait for the thread. With a thousand guests each takes some 300 KiB.
const WAITING: usize = 16;

/// The longest wait at the daemon's end for the last moments to be written. A disk that hangs keeps no settings from
/// being restored.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// A turn of the daemon: its observations and actions.
#[derive(Debug, Clone, Copy)]
pub struct RecordedTurn<'a> {
    /// The turn of the daemon.
    pub tick: &'a TickOutcome,
    /// Alarms that began or ended in the turn.
    pub notices: &'a [AlarmTransition],
    /// Decisions to fold and their outcomes since the turn before.
    pub folds: &'a [FoldNote],
    /// Guests that pruning switched, and why, since the turn before.
    pub prunes: &'a [DecisionReason],
    /// The policy in charge.
    pub policy: &'a str,
    /// Per cent of one CPU that ksmd uses.
    pub ksmd_cpu_percent: Option<f64>,
    /// Milliseconds since 1970.
    pub day_clock: i64,
    /// Time since the daemon started.
    pub uptime: Duration,
}

/// The rules that give recorded guests their domain and their labels.
#[derive(Debug, Clone, Default)]
pub struct GuestRules {
    /// The trust domains.
    pub domains: DomainsConfig,
    /// The rules of labels.
    pub labels: Vec<GuestLabelRule>,
}

/// A moment on its way to the thread.
#[derive(Debug)]
struct RecordedMoment {
    time: i64,
    sample: Sample,
    ksmd_cpu_percent: Option<f64>,
    uptime: Duration,
    decisions: Vec<DecisionMade>,
    events: Vec<HistoryEvent>,
    /// Moments that were lost since the one before.
    lost: u64,
    /// True if the guests' figures are recorded.
    has_guests: bool,
    /// The rules in force.
    rules: Arc<GuestRules>,
}

#[derive(Debug)]
enum RecorderOrder {
    Take(Box<RecordedMoment>),
    #[cfg(test)]
    Flush(crossbeam_channel::Sender<()>),
    End(i64),
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Recorder {
    worker: WorkerThread<RecorderOrder>,
    status: Arc<Mutex<HistoryStatus>>,
    notes: TurnNotes,
    rules: Arc<GuestRules>,
    guest_period: Duration,
    last: Option<Duration>,
    last_guests: Option<Duration>,
}

impl Recorder {
    /// Starts the thread, which opens the file. `guests` returns the guests of a sample, and `day_clock` is the time.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(
        root: &Root,
        config: &HistoryConfig,
        rules: GuestRules,
        guests: impl Fn(&Sample) -> Vec<Guest> + Send + 'static,
        day_clock: i64,
    ) -> io::Result<Self> {
        let status = HistoryStatus { path: config.file(root).display().to_string(), ..HistoryStatus::default() };
        let status = Arc::new(Mutex::new(status));
        let worker = RecorderWorker::new(root, config, Box::new(guests), Arc::clone(&status), day_clock);
        Ok(Self {
            worker: WorkerThread::start("history", WAITING, move |inbox, _| worker.work(inbox))?,
            status,
            notes: TurnNotes::default(),
            rules: Arc::new(rules),
            guest_period: Duration::from_secs(u64::from(config.guest_seconds)),
            last: None,
            last_guests: None,
        })
    }

    /// Records a turn. Never waits: a turn that finds no room is lost and counted.
    pub fn record_turn(&mut self, seen: &RecordedTurn<'_>) {
        self.notes.collect_turn(seen);
        let at = seen.tick.sample.at;
        let is_due =
            |last: Option<Duration>, period: Duration| last.is_none_or(|last| at.saturating_sub(last) >= period);
        if !is_due(self.last, PERIOD) {
            return;
        }
        self.last = Some(at);
        let has_guests = is_due(self.last_guests, self.guest_period);
        if has_guests {
            self.last_guests = Some(at);
        }
        let (decisions, events, lost) = self.notes.hand_over();
        let taken = RecordedMoment {
            time: seen.day_clock,
            sample: seen.tick.sample.clone(),
            ksmd_cpu_percent: seen.ksmd_cpu_percent,
            uptime: seen.uptime,
            decisions,
            events,
            lost,
            has_guests,
            rules: Arc::clone(&self.rules),
        };
        match self.worker.queue_request(RecorderOrder::Take(Box::new(taken))) {
            Ok(()) => {}
            Err(TrySendError::Full(RecorderOrder::Take(taken))) => {
                // What changes nothing is lost; decisions and events go with the next moment.
                self.notes.take_back(taken.decisions, taken.events, taken.lost);
                self.count_lost();
            }
            Err(_) => self.count_lost(),
        }
    }

    fn count_lost(&mut self) {
        self.notes.lose();
        if let Ok(mut status) = self.status.lock() {
            status.lost += 1;
        }
    }

    /// Replaces the rules, for the moments to come.
    pub fn configure(&mut self, rules: GuestRules) {
        self.rules = Arc::new(rules);
    }

    /// Returns the state of the history.
    pub fn status(&self) -> HistoryStatus {
        self.status.lock().map(|status| status.clone()).unwrap_or_default()
    }

    /// Writes the moments that are left, and ends. A disk that hangs is left behind after some time.
    pub fn end(self, day_clock: i64) {
        let is_told = self.worker.queue_within(RecorderOrder::End(day_clock), LAST_WRITE).is_ok();
        if !is_told || self.worker.end_within(LAST_WRITE).is_err() {
            warn!("the last samples of the history were not written: the disk does not answer");
        }
    }

    #[cfg(test)]
    fn flush(&self) {
        let (reply, done) = crossbeam_channel::bounded(1);
        self.worker.queue_within(RecorderOrder::Flush(reply), Duration::MAX).unwrap();
        done.recv().unwrap();
    }
}
