//! The sketcher's thread.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use ksmith_core::guest::Guest;
use ksmith_core::model::SketchStatus;
use ksmith_core::sample::Sample;
use ksmith_host::memory::pace::lower_priority;
use ksmith_host::root::Root;
use ksmith_sketch::{
    FleetKey, HostFacts, KeyRotations, RotationTurn, SketchClock, SketchSubject, read_next_secret, read_secret,
};
use rustix::time::{ClockId, clock_gettime};
use tracing::{info, warn};

use super::{SketchConfig, SketcherRequest, Terms};

/// The pause after a fault, at least.
const RETRY: Duration = Duration::from_secs(60);

/// The longest sleep: an order wakes the thread anyhow.
const LONGEST: Duration = Duration::from_secs(3600);

/// The pause that follows a piece of work.
pub(super) enum WorkPause {
    /// Only the pause for its CPU time.
    None,
    /// The pause for its CPU time and that of a child.
    Opened,
    /// A pause without work, of this length.
    Idle(Duration),
}

/// CPU time that other threads spend on the sketch file, in nanoseconds since the worker last charged it.
pub(super) type Elsewhere = Arc<AtomicU64>;

type Guests = Box<dyn Fn(&Sample) -> Vec<Guest> + Send>;

pub(super) struct SketcherWorker {
    root: Root,
    config: SketchConfig,
    path: PathBuf,
    guests: Guests,
    status: Arc<Mutex<SketchStatus>>,
    elsewhere: Elsewhere,
    clock: SketchClock,
    rotations: Option<KeyRotations>,
    /// True if the secret is refused now, so that no file may be written.
    is_refused: bool,
    /// The id of the next key as a file was last written because all guests were read with it.
    told_ready: Option<String>,
    /// The reason why the next secret is refused, as it was last logged.
    refused: Option<String>,
    sample: Option<Box<Sample>>,
    /// Time at which the file was last written, or could not be.
    written: Option<Instant>,
    /// CPU time of this thread that is charged already, in seconds.
    charged: f64,
    /// End of the sleep for CPU time that the thread has used.
    pub(super) free: Instant,
    /// Time until which there is no work, as far as is known.
    idle: Instant,
}

impl SketcherWorker {
    pub(super) fn new(
        root: &Root,
        config: &SketchConfig,
        guests: Guests,
        status: Arc<Mutex<SketchStatus>>,
        elsewhere: Elsewhere,
    ) -> Self {
        Self {
            root: root.clone(),
            path: config.file(root),
            config: config.clone(),
            guests,
            status,
            elsewhere,
            clock: SketchClock::start(),
            rotations: None,
            is_refused: false,
            told_ready: None,
            refused: None,
            sample: None,
            written: None,
            charged: thread_seconds(),
            free: Instant::now(),
            idle: Instant::now(),
        }
    }

    /// Runs until the queue is closed.
    pub(super) fn work(mut self, inbox: &Receiver<SketcherRequest>) {
        // The worker was made by another thread. What the start of this one took is charged with the first piece of
        // work.
        self.charged = 0.0;
        lower_priority();
        loop {
            let wait = match self.sample {
                Some(_) => self.free.max(self.idle).saturating_duration_since(Instant::now()).min(LONGEST),
                None => LONGEST,
            };
            match inbox.recv_timeout(wait) {
                Ok((sample, terms)) => self.paid(|worker| worker.meet(sample, &terms)),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.paid(Self::turn),
            }
        }
    }

    /// Does some work, and then keeps the thread asleep until it is within its share of the CPU.
    pub(super) fn paid(&mut self, work: impl FnOnce(&mut Self) -> WorkPause) {
        let (began, cpu_before) = (Instant::now(), thread_seconds());
        let pause = work(self);
        let child = match pause {
            // A child's CPU time is not the thread's. It is at most the time that the thread has waited.
            WorkPause::Opened => (began.elapsed().as_secs_f64() - (thread_seconds() - cpu_before)).max(0.0),
            _ => 0.0,
        };
        let idle = match pause {
            WorkPause::Idle(idle) => idle,
            WorkPause::None | WorkPause::Opened => Duration::ZERO,
        };
        if let (Ok(mut status), Some(rotations)) = (self.status.lock(), &self.rotations) {
            let rotation = rotations.current();
            status.guests = rotation.sketched() as u64;
            status.missing = (rotation.known() - rotation.sketched()) as u64;
            status.memory_bytes = rotations.bytes() as u64;
        }
        let spent = self.charge() + child;
        let share = self.config.max_cpu_percent / 100.0;
        let owed = Duration::try_from_secs_f64(spent / share).unwrap_or(LONGEST);
        self.free = self.free.max(began) + owed;
        // A sample that comes meanwhile may bring work.
        self.idle = Instant::now() + idle;
        if let Ok(mut status) = self.status.lock() {
            status.cpu_seconds += spent;
        }
    }

    /// Returns the CPU time since it was last charged, in seconds: of this thread with all that waking it took, and of
    /// other threads for it.
    fn charge(&mut self) -> f64 {
        let until = thread_seconds();
        let own = until - self.charged;
        self.charged = until;
        own + Duration::from_nanos(self.elsewhere.swap(0, Ordering::Relaxed)).as_secs_f64()
    }

    /// Updates the guests from a sample.
    pub(super) fn meet(&mut self, sample: Box<Sample>, (domains, balance): &Terms) -> WorkPause {
        let of = |guest: &Guest| SketchSubject::from_guest(guest, domains, balance);
        let subjects = (self.guests)(&sample).iter().map(of).collect();
        self.sample = Some(sample);
        let key = match read_secret(&self.secret()) {
            Ok(key) => key,
            Err(error) => {
                // The samples are kept: the file may be in the middle of a change.
                self.is_refused = true;
                self.fail(error.to_string());
                return WorkPause::Idle(LONGEST);
            }
        };
        let was_refused = std::mem::take(&mut self.is_refused);
        let next = self.next_key();
        let rotations =
            self.rotations.get_or_insert_with(|| KeyRotations::new(key.clone(), self.config.rotation()));
        rotations.guests(subjects);
        let is_other = rotations.set_keys(key, next);
        if is_other {
            info!("another key is in use: {}", rotations.current().key_id());
        }
        if is_other || was_refused {
            self.written = None;
        }
        WorkPause::None
    }

    /// Reads the secret that comes next. One that is refused must not stop the file of the one in use.
    fn next_key(&mut self) -> Option<FleetKey> {
        let (key, refused) = match read_next_secret(&self.secret()) {
            Ok(key) => (key, None),
            Err(error) => (None, Some(error.to_string())),
        };
        if let Some(why) = refused.as_ref().filter(|why| self.refused.as_ref() != Some(why)) {
            warn!("no guest is read with the next secret: {why}");
        }
        self.refused = refused;
        key
    }

    fn secret(&self) -> PathBuf {
        match self.root.is_host() {
            true => self.config.secret.clone(),
            false => self.root.path(self.config.secret.strip_prefix("/").unwrap_or(&self.config.secret)),
        }
    }

    pub(super) fn turn(&mut self) -> WorkPause {
        // The secret is read again with the next sample.
        let Some(rotations) = self.rotations.as_mut().filter(|_| !self.is_refused) else {
            return WorkPause::Idle(LONGEST);
        };
        let now = self.clock.now();
        let turn = rotations.turn(now);
        let is_first = self.written.is_none() && rotations.current().is_complete();
        // An operator waits for it, and a period may be long.
        let ready = rotations.ready_key_id().filter(|id| self.told_ready.as_ref() != Some(id));
        let is_due = self.written.is_some_and(|written| written.elapsed() >= self.config.every());
        if is_due || is_first || (ready.is_some() && self.written.is_some()) {
            self.told_ready = ready.or(self.told_ready.take());
            self.write();
        }
        match turn {
            RotationTurn::Idle(until) => {
                let next =
                    self.written.map_or(LONGEST, |written| self.config.every().saturating_sub(written.elapsed()));
                WorkPause::Idle(until.saturating_sub(now.at).min(next))
            }
            RotationTurn::Opened => WorkPause::Opened,
            RotationTurn::Worked | RotationTurn::Round => WorkPause::None,
        }
    }

    pub(super) fn write(&mut self) {
        let (Some(rotations), Some(sample)) = (&self.rotations, &self.sample) else { return };
        let reserved = self.config.reserved_bytes();
        let time = self.clock.now().day_clock;
        let facts = HostFacts::read(&self.root, sample, self.config.host.as_deref(), reserved, time);
        let made = self
            .path
            .parent()
            .map_or(Ok(()), |parent| DirBuilder::new().recursive(true).mode(0o750).create(parent));
        let made =
            made.map_err(|why: io::Error| format!("can't make the directory of {}: {why}", self.path.display()));
        let written = made.and_then(|()| rotations.write(&self.path, facts).map_err(|error| error.to_string()));
        match written {
            Ok(bytes) => {
                self.written = Some(Instant::now());
                let Ok(mut status) = self.status.lock() else { return };
                if status.problem.take().is_some() {
                    info!("the sketch file is written again");
                }
                status.bytes = bytes;
                status.written += 1;
            }
            Err(why) => {
                // It is tried again soon, however long a period is.
                let soon = self.config.every().saturating_sub(RETRY.min(self.config.every()));
                self.written = Instant::now().checked_sub(soon).or(Some(Instant::now()));
                self.fail(why);
            }
        }
    }

    fn fail(&self, why: String) {
        let Ok(mut status) = self.status.lock() else { return };
        if status.problem.as_ref() != Some(&why) {
            warn!("no sketch file is written: {why}");
        }
        status.problem = Some(why);
    }
}

/// Returns the CPU time that this thread has used, in seconds.
pub(super) fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
