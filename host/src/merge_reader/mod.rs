//! Reads what is really merged in each process, at leisure: KSM's counters do not notice what collapses un-merge, nor
//! the zeros that splits of huge pages free.
//!
//! A thread reads one process after another by a child that can be killed ([`crate::reader`]). The measured CPU time is
//! charged to a token bucket, which bounds it more than a low priority would. No tick waits for it.

mod message;
mod read;
mod schedule;

use std::io;

use ksmith_core::sample::Sample;

use self::message::{MergeReply, MergeRequest};
use self::read::ProcessMergeReader;
use self::schedule::MergeSchedule;
use crate::worker_thread::WorkerThread;

/// Keeps the newest reading of each process, with a thread that reads.
#[derive(Debug)]
pub struct MergeReader {
    schedule: MergeSchedule,
    worker: WorkerThread<MergeRequest, MergeReply>,
}

impl MergeReader {
    /// Starts the thread. It ends when this is dropped.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start() -> io::Result<Self> {
        let worker = WorkerThread::start("merge-reader", 1, |requests, replies| {
            let mut reader = ProcessMergeReader::default();
            requests
                .iter()
                .map(|request: MergeRequest| reader.carry_out(&request))
                .all(|reply| replies.send(reply).is_ok());
        })?;
        Ok(Self { schedule: MergeSchedule::default(), worker })
    }

    /// Fills the newest readings into `sample`.
    pub fn fill(&mut self, sample: &mut Sample) {
        if let Ok(reply) = self.worker.poll_reply() {
            self.schedule.record_reply(reply);
        }
        self.schedule.fill(sample);
    }

    /// Requests the readings that are due from the thread, if it is idle and the budget allows it.
    pub fn request(&mut self, sample: &Sample) {
        if let Some(request) = self.schedule.next_request(sample) {
            // A thread that has panicked reads nothing any more: the counters stay.
            let _ = self.worker.queue_request(request);
        }
    }
}
