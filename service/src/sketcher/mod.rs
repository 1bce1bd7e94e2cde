//! The sketcher: a thread of its own that reads guests slowly and keeps the sketch file of this host.
//!
//! [`Sketcher::offer_sample`] hands a sample over now and then by a channel of bounded length. The thread charges itself with
//! all CPU time that the file takes: its own, that of being woken, that of the daemon's thread to hand samples over,
//! and that of the child that reads page tables. Then it sleeps until its share is kept. A fault of the disk or of a
//! guest ends nothing: it is tried again, and the status says so.

mod config;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ksmith_core::balance::BalanceConfig;
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::guest::Guest;
use ksmith_core::model::SketchStatus;
use ksmith_core::sample::Sample;
use ksmith_host::root::Root;
use ksmith_host::worker_thread::WorkerThread;

pub use self::config::SketchConfig;
use self::worker::{Elsewhere, SketcherWorker, thread_seconds};

/// The interval between two samples that are handed over, and so the delay until a new guest is known.
const PERIOD: Duration = Duration::from_secs(30);

/// Samples that may wait for the thread.
const WAITING: usize = 4;

/// The longest wait at the daemon's end for the thread. A guest or a disk that hangs delays no end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The settings that assign guests to domains and classes.
type Terms = (DomainsConfig, BalanceConfig);

/// A sample, with the settings for its guests.
type SketcherRequest = (Box<Sample>, Arc<Terms>);

/// The handle of the thread. Dropping it ends the thread, and waits for that a short time.
#[derive(Debug)]
pub struct Sketcher {
    worker: WorkerThread<SketcherRequest>,
    status: Arc<Mutex<SketchStatus>>,
    terms: Arc<Terms>,
    last: Option<Duration>,
    /// CPU time that the caller spends on handing samples over. The thread is charged for it.
    elsewhere: Elsewhere,
}

impl Sketcher {
    /// Starts the thread. `guests` returns the guests of a sample, and `terms` assign them to domains and classes.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(
        root: &Root,
        config: &SketchConfig,
        terms: Terms,
        guests: impl Fn(&Sample) -> Vec<Guest> + Send + 'static,
    ) -> io::Result<Self> {
        let status = SketchStatus { path: config.file(root).display().to_string(), ..SketchStatus::default() };
        let status = Arc::new(Mutex::new(status));
        let elsewhere = Elsewhere::default();
        let worker =
            SketcherWorker::new(root, config, Box::new(guests), Arc::clone(&status), Arc::clone(&elsewhere));
        let worker = WorkerThread::start("sketch", WAITING, move |inbox, _| worker.work(inbox))?;
        let worker = worker.with_drop_patience(PATIENCE);
        Ok(Self { worker, status, terms: Arc::new(terms), last: None, elsewhere })
    }

    /// Hands a sample over, if one is due. Never waits: a thread that is busy gets a later one.
    pub fn offer_sample(&mut self, sample: &Sample) {
        let is_due = self.last.is_none_or(|last| sample.at.saturating_sub(last) >= PERIOD);
        if is_due && self.worker.free_slots() > 0 {
            let before = thread_seconds();
            self.last = Some(sample.at);
            let _ = self.worker.queue_request((Box::new(sample.clone()), Arc::clone(&self.terms)));
            let spent = Duration::try_from_secs_f64(thread_seconds() - before).unwrap_or_default();
            self.elsewhere.fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Replaces the trust domains and classes, from the next sample on.
    pub fn configure(&mut self, domains: DomainsConfig, balance: BalanceConfig) {
        self.terms = Arc::new((domains, balance));
        self.last = None;
    }

    /// Returns the state of the sketch file.
    pub fn status(&self) -> SketchStatus {
        self.status.lock().map(|status| status.clone()).unwrap_or_default()
    }
}
