//! Notifies an operator of alarms: by a command, and in the journal under a stable message ID.
//!
//! A thread of its own starts the command, and no turn of the daemon waits for it. One command runs at a time, for 30 s
//! at most, with the daemon's rights, and 32 notices wait at most. An alarm ends after 60 s without its cause.

mod config;
mod journal;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::sync::Arc;

use ksmith_core::alarm::AlarmTransition;
use ksmith_host::worker_thread::WorkerThread;
use tracing::warn;

pub use self::config::NotifyConfig;

/// Notices that may wait while a command runs. There are few: an alarm begins and ends once a minute at most.
const WAITING: usize = 32;

/// A notice to deliver, with the configuration in force.
#[derive(Debug)]
struct NotifierOrder {
    notice: AlarmTransition,
    config: Arc<NotifyConfig>,
}

/// The handle of the thread. Dropping it waits a short time for a command that runs.
#[derive(Debug)]
pub struct Notifier {
    config: Arc<NotifyConfig>,
    worker: WorkerThread<NotifierOrder>,
}

impl Notifier {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(config: NotifyConfig) -> io::Result<Self> {
        let worker = WorkerThread::start("notify", WAITING, |inbox, _| worker::work(inbox))?;
        Ok(Self { config: Arc::new(config), worker: worker.with_drop_patience(worker::LAST) })
    }

    /// Queues a notice for delivery. Never waits.
    pub fn queue_notice(&self, notice: AlarmTransition) {
        let order = NotifierOrder { notice, config: Arc::clone(&self.config) };
        if self.worker.queue_request(order).is_err() {
            warn!("too many notices wait for [notify] command; one is lost");
        }
    }

    /// Replaces the configuration, for the notices to come.
    pub fn configure(&mut self, config: NotifyConfig) {
        self.config = Arc::new(config);
    }
}
