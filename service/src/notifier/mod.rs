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
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use ksmith_core::alarm::AlarmTransition;
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

/// The handle of the thread.
#[derive(Debug)]
pub struct Notifier {
    config: Arc<NotifyConfig>,
    orders: Option<Sender<NotifierOrder>>,
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(config: NotifyConfig) -> io::Result<Self> {
        let (orders, inbox) = bounded(WAITING);
        let (end, ended) = bounded(1);
        let work = move || {
            worker::work(&inbox);
            // The daemon may have ended without waiting.
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(work)?;
        Ok(Self { config: Arc::new(config), orders: Some(orders), ended, thread: Some(thread) })
    }

    /// Queues a notice for delivery. Never waits.
    pub fn queue_notice(&self, notice: AlarmTransition) {
        let order = NotifierOrder { notice, config: Arc::clone(&self.config) };
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order));
        if matches!(sent, Some(Err(_))) {
            warn!("too many notices wait for [notify] command; one is lost");
        }
    }

    /// Replaces the configuration, for the notices to come.
    pub fn configure(&mut self, config: NotifyConfig) {
        self.config = Arc::new(config);
    }
}

impl Drop for Notifier {
    /// Waits for a command that runs, for a short time.
    fn drop(&mut self) {
        drop(self.orders.take());
        if self.ended.recv_timeout(worker::LAST).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
