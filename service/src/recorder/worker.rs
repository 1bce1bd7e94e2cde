//! The thread that writes the history.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use ksmith_core::guest::{Guest, assign_labels};
use ksmith_core::model::{DaemonStatus, HistoryStatus, StatusReport, committed_bytes};
use ksmith_core::sample::Sample;
use ksmith_host::own_use::OwnUse;
use ksmith_host::root::Root;
use ksmith_record::{
    EventKind, GuestFigures, HistoryBounds, HistoryEvent, HistorySnapshot, HistoryStore, OpenedStore, StoreError,
    StoreFault, columns,
};
use tracing::{info, warn};

use super::{HistoryConfig, RecordedMoment, RecorderOrder};

/// The time over which moments are collected for one write, so that a parked daemon wakes the disk seldom. A crash
/// loses at most that time.
const TOGETHER: Duration = Duration::from_secs(5);

/// The most moments in one write.
const MOST: usize = 64;

/// The most decisions, and events, that are kept while the disk refuses writes. The oldest are lost.
const NOTES: usize = 500;

/// The pause before a retry after a fault of the file.
const RETRY: Duration = Duration::from_secs(10);

/// A function that returns the guests of a sample.
pub(super) type GuestsOf = Box<dyn Fn(&Sample) -> Vec<Guest> + Send>;

pub(super) struct RecorderWorker {
    path: std::path::PathBuf,
    bounds: HistoryBounds,
    boot_id: String,
    guests: GuestsOf,
    status: Arc<Mutex<HistoryStatus>>,
    store: Option<HistoryStore>,
    retry: Option<Instant>,
    moments: Vec<HistorySnapshot>,
    /// Time at which the oldest of them came.
    since: Option<Instant>,
    /// Moments that were lost since the last that was written.
    gap: u64,
    /// The minute in which the history was last tidied.
    tidied: i64,
}

impl RecorderWorker {
    pub(super) fn new(
        root: &Root,
        config: &HistoryConfig,
        guests: GuestsOf,
        status: Arc<Mutex<HistoryStatus>>,
        day_clock: i64,
    ) -> Self {
        let boot_id = root.text("proc/sys/kernel/random/boot_id");
        let start =
            HistoryEvent { time: day_clock, kind: EventKind::DaemonStarted, text: "the daemon started".to_owned() };
        Self {
            path: config.file(root),
            bounds: config.bounds(),
            boot_id: boot_id.value().map(|text| text.trim().to_owned()).unwrap_or_default(),
            guests,
            status,
            store: None,
            retry: None,
            moments: vec![HistorySnapshot { time: day_clock, events: vec![start], ..HistorySnapshot::default() }],
            since: None,
            gap: 0,
            tidied: 0,
        }
    }

    /// Runs until an order to end, or until no sender is left.
    pub(super) fn work(mut self, inbox: &Receiver<RecorderOrder>) {
        self.flush();
        loop {
            let wait = self
                .since
                .map_or(Duration::MAX, |since| (since + TOGETHER).saturating_duration_since(Instant::now()));
            match inbox.recv_timeout(wait.min(Duration::from_secs(3600))) {
                Ok(RecorderOrder::Take(taken)) => self.add_moment(*taken),
                #[cfg(test)]
                Ok(RecorderOrder::Flush(done)) => {
                    self.flush();
                    let _ = done.send(());
                }
                Ok(RecorderOrder::End(time)) => return self.end(time),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
            if self.moments.len() >= MOST {
                self.flush();
            }
        }
    }

    fn add_moment(&mut self, taken: RecordedMoment) {
        let RecordedMoment { time, sample, ksmd_cpu_percent, uptime, decisions, events, lost, has_guests, rules } =
            taken;
        self.gap += lost;
        let mut committed = None;
        let guests = has_guests.then(|| {
            let mut guests = (self.guests)(&sample);
            committed = committed_bytes(&guests);
            rules.domains.assign(&mut guests);
            assign_labels(&rules.labels, &mut guests);
            guests.iter().map(GuestFigures::from).collect()
        });
        let own = OwnUse::now();
        let daemon = DaemonStatus {
            cpu_seconds: own.cpu.as_secs_f64(),
            rss_bytes: own.rss_bytes,
            uptime_seconds: uptime.as_secs_f64(),
            ..DaemonStatus::default()
        };
        let status = StatusReport {
            sample,
            ksmd_cpu_percent,
            daemon: Some(daemon),
            committed_bytes: committed,
            ..StatusReport::default()
        };
        self.moments.push(HistorySnapshot { time, host: columns::host_values(&status), guests, decisions, events });
        self.since.get_or_insert_with(Instant::now);
    }

    fn end(mut self, time: i64) {
        let text = "the daemon ended".to_owned();
        let event = HistoryEvent { time, kind: EventKind::DaemonStopped, text };
        self.moments.push(HistorySnapshot { time, events: vec![event], ..HistorySnapshot::default() });
        self.flush();
        if let Some(store) = self.store.take() {
            let _ = store.close(time).inspect_err(|why| warn!("{why}"));
        }
    }

    /// Writes the moments that have come. Those that the disk refuses are lost, and counted in the status.
    fn flush(&mut self) {
        self.since = None;
        let mut moments = std::mem::take(&mut self.moments);
        let Some(last) = moments.last_mut() else { return };
        let (gap, time) = (self.gap, last.time);
        if gap > 0 {
            let text = format!("{gap} samples were not recorded: the disk refused them, or was too slow");
            last.events.push(HistoryEvent { time, kind: EventKind::Gap, text });
        }
        let written =
            self.open(time).and_then(|store| store.map_or(Ok(false), |store| store.write(&moments).map(|()| true)));
        match written {
            Ok(true) => {
                self.gap = 0;
                self.say(moments.len(), 0, None);
                self.tidy(time);
            }
            Ok(false) => self.lose(moments),
            Err(error) => {
                self.fail(&error);
                self.lose(moments);
            }
        }
    }

    /// Builds the rows of coarser tiers, and deletes rows beyond the limits of age and size.
    fn tidy(&mut self, time: i64) {
        let minute = time.div_euclid(60_000);
        if std::mem::replace(&mut self.tidied, minute) == minute {
            return;
        }
        if let Some(Err(error)) = self.store.as_mut().map(|store| store.tidy(time)) {
            if error.fault() == StoreFault::Corrupt {
                self.fail(&error);
            } else {
                // Samples are recorded all the same. The next minute tries again.
                warn!("the history is not tidied: {error}");
            }
        }
    }

    /// Returns the store, opened if need be; `None` while the retry is not due.
    fn open(&mut self, now: i64) -> Result<Option<&mut HistoryStore>, StoreError> {
        if self.store.is_none() {
            if self.retry.is_some_and(|retry| Instant::now() < retry) {
                return Ok(None);
            }
            self.retry = Some(Instant::now() + RETRY);
            let OpenedStore { store, set_aside } =
                HistoryStore::open(&self.path, &self.boot_id, now, self.bounds.clone())?;
            if let Some(aside) = set_aside {
                warn!(
                    "{} was damaged: it is kept as {}, and a new one is begun",
                    self.path.display(),
                    aside.display()
                );
            }
            self.store = Some(store);
        }
        Ok(self.store.as_mut())
    }

    /// Sets the damaged file aside. The next moments begin a new one.
    fn begin_anew(&mut self, error: &StoreError) {
        self.store = None;
        self.retry = None;
        match HistoryStore::set_aside(&self.path) {
            Ok(aside) => warn!("{error}: it is kept as {}, and a new one is begun", aside.display()),
            Err(why) => warn!("{error}; {why}"),
        }
    }

    fn fail(&mut self, error: &StoreError) {
        if error.fault() == StoreFault::Corrupt {
            self.begin_anew(error);
        }
        let sentence = error.to_string();
        let is_new = self.status.lock().is_ok_and(|status| status.problem.as_ref() != Some(&sentence));
        if is_new {
            warn!("the history is not recorded: {sentence}");
        }
        self.say(0, 0, Some(sentence));
    }

    /// Counts lost moments. Their decisions and events go with the next ones, as far as there is room.
    fn lose(&mut self, moments: Vec<HistorySnapshot>) {
        // A moment of notes alone was counted before.
        let lost = moments.iter().filter(|moment| !moment.host.is_empty()).count();
        self.gap += lost as u64;
        self.say(0, lost, self.problem());
        let Some(time) = moments.last().map(|moment| moment.time) else { return };
        let mut notes = HistorySnapshot { time, ..HistorySnapshot::default() };
        for moment in moments {
            notes.decisions.extend(moment.decisions);
            notes.events.extend(moment.events.into_iter().filter(|event| event.kind != EventKind::Gap));
        }
        notes.decisions.drain(..notes.decisions.len().saturating_sub(NOTES));
        notes.events.drain(..notes.events.len().saturating_sub(NOTES));
        self.moments.insert(0, notes);
    }

    fn problem(&self) -> Option<String> {
        self.status.lock().ok().and_then(|status| status.problem.clone())
    }

    fn say(&self, recorded: usize, lost: usize, problem: Option<String>) {
        let Ok(mut status) = self.status.lock() else { return };
        if status.problem.is_some() && problem.is_none() {
            info!("the history is recorded again");
        }
        status.recorded += recorded as u64;
        status.lost += lost as u64;
        status.problem = problem;
        status.bytes = self.store.as_ref().map_or(status.bytes, HistoryStore::bytes);
    }
}
