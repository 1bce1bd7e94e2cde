//! The folder: a thread of its own decides which processes give their zero pages back, and has a child do it.
//!
//! [`Folder::offer_sample`] hands a sample over now and then by a channel of bounded length. A child of this program's
//! own reads and splits memory: a process may hold up its readers for ever. The thread kills the child after a
//! deadline, and backs off from the process for long. The CPU time of the child is charged to the budget.
//! [`FoldPolicy`](ksmith_core::fold::FoldPolicy) decides.
//!
//! It also puts together the huge pages of guests that pruning has switched off for their splits, by the same child and budget.

mod child;
mod collapse;
mod config;
mod figures;
pub mod protocol;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ksmith_core::fold::FoldNote;
use ksmith_core::guest::Guest;
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;
use ksmith_host::worker_thread::WorkerThread;
use tracing::warn;

pub use self::config::{FoldConfig, FoldMode};
pub use self::figures::FoldedFigures;
use self::worker::FolderWorker;

/// The hidden command of ksmith that is the child.
pub const WORKER_COMMAND: &str = "fold-worker";

/// The interval between two samples that are handed over, and so the delay until a new process is known.
const PERIOD: Duration = Duration::from_secs(2);

/// Orders that may wait for the thread.
const WAITING: usize = 4;

/// The longest wait at the daemon's end for the thread, which kills its child meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most notes that wait for the daemon. The oldest are lost.
const MOST_NOTES: usize = 256;

/// Names the guests of a sample.
type NameGuests = Box<dyn Fn(&Sample) -> Vec<Guest> + Send>;

#[derive(Debug)]
enum FolderOrder {
    Take(Box<Sample>),
    Configure(FoldConfig),
}

/// Notes on their way to the daemon.
type Notes = Arc<Mutex<Vec<FoldNote>>>;

/// The handle of the thread. Dropping it ends the thread and its child, and waits for that a short time.
#[derive(Debug)]
pub struct Folder {
    worker: WorkerThread<FolderOrder>,
    notes: Notes,
    last: Option<Duration>,
}

impl Folder {
    /// Starts the thread. `command` is the child's program with its arguments, `name_guests` returns the guests of a
    /// sample, and the figures are published in `figures`.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(
        command: Vec<String>,
        config: FoldConfig,
        figures: FoldedFigures,
        name_guests: impl Fn(&Sample) -> Vec<Guest> + Send + 'static,
    ) -> io::Result<Self> {
        let notes = Notes::default();
        let worker = FolderWorker::new(command, config, figures, Box::new(name_guests), Arc::clone(&notes));
        let worker = WorkerThread::start("fold", WAITING, move |inbox, _| worker.work(inbox))?;
        Ok(Self { worker: worker.with_drop_patience(PATIENCE), notes, last: None })
    }

    /// Returns the child's program with its arguments: this very program, also if its file was replaced meanwhile.
    pub fn own_command() -> Vec<String> {
        vec!["/proc/self/exe".to_owned(), WORKER_COMMAND.to_owned()]
    }

    /// Hands a sample over, if one is due. Never waits: a thread that is busy gets a later one.
    pub fn offer_sample(&mut self, sample: &Sample) {
        let is_due = self.last.is_none_or(|last| sample.at.saturating_sub(last) >= PERIOD);
        // One slot is left for orders that are not sent again.
        if is_due && self.worker.free_slots() > 1 {
            self.last = Some(sample.at);
            let handed = Sample {
                at: sample.at,
                page_size: sample.page_size,
                host: sample.host.clone(),
                processes: sample.processes.clone(),
                page_samples: Reading::Absent,
                ..Sample::default()
            };
            let _ = self.worker.queue_request(FolderOrder::Take(Box::new(handed)));
        }
    }

    /// Replaces the configuration. Waits no longer for a busy thread than at the end. Returns false if the thread does
    /// not answer, and the old configuration stays in force.
    pub fn configure(&mut self, config: FoldConfig) -> bool {
        let is_sent = self.worker.queue_within(FolderOrder::Configure(config), PATIENCE).is_ok();
        if !is_sent {
            warn!("[fold] has changed, and the thread that folds does not answer; reload the configuration again");
        }
        self.last = None;
        is_sent
    }

    /// Returns the decisions and outcomes since the last call, for the log and the history.
    pub fn drain_notes(&self) -> Vec<FoldNote> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
