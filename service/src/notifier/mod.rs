//! Notifies an operator of alarms: by a command, and in the journal under a stable message ID.
//!
//! A thread of its own starts the command, and no turn of the daemon waits for it.

mod config;
mod journal;
#[cfg(test)]
mod tests;
mod worker;

use std::io;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use ksmith_core::alarm::Notice;
use tracing::warn;

pub use self::config::NotifyConfig;

/// Notices that may wait while a command runs. There are few: an alarm begins and ends once a minute at most.
const WAITING: usize = 32;

/// What the thread is told.
#[derive(Debug)]
enum Order {
    Tell(Notice),
    Configure(NotifyConfig),
}

/// The handle of the thread.
#[derive(Debug)]
pub struct Notifier {
    orders: Option<Sender<Order>>,
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
            worker::work(config, &inbox);
            // The daemon may have ended without waiting.
            let _ = end.send(());
        };
        let thread = std::thread::Builder::new().name("notify".to_owned()).spawn(work)?;
        Ok(Self { orders: Some(orders), ended, thread: Some(thread) })
    }

    /// Has a notice told. Never waits.
    pub fn tell(&self, notice: Notice) {
        self.order(Order::Tell(notice));
    }

    /// Takes another configuration over.
    pub fn configure(&self, config: NotifyConfig) {
        self.order(Order::Configure(config));
    }

    fn order(&self, order: Order) {
        let sent = self.orders.as_ref().map(|orders| orders.try_send(order));
        if matches!(sent, Some(Err(_))) {
            warn!("too many notices wait for [notify] command; one is lost");
        }
    }
}

impl Drop for Notifier {
    /// Waits for a command that runs, as long as it may.
    fn drop(&mut self) {
        drop(self.orders.take());
        if self.ended.recv_timeout(worker::LAST).is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}
