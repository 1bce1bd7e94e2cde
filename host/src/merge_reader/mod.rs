//! Reads what is really merged in each process, at leisure: KSM's counters do not notice what collapses un-merge, nor
//! the zeros that splits of huge pages free.
//!
//! A thread reads one process after another by a child that can be killed ([`crate::reader`]). The measured CPU time is
//! charged to a token bucket, which bounds it more than a low priority would. No tick waits for it. Commands that scan
//! without a daemon have a [`DirectMergeReader`].

mod direct;
mod ledger_file;
mod page_tables;
mod read;

use std::io;

use crossbeam_channel::TryRecvError;
use ksmith_core::merge_schedule::{MergeReply, MergeRequest, MergeSchedule};
use ksmith_core::sample::Sample;

use self::ledger_file::LedgerFile;
use self::read::ProcessMergeReader;
use crate::undo::StateDir;
use crate::worker_thread::WorkerThread;

pub use self::direct::DirectMergeReader;
pub(crate) use self::page_tables::PageTableReader;

/// Keeps the newest reading of each process, with a thread that reads.
#[derive(Debug)]
pub struct MergeReader {
    schedule: MergeSchedule,
    worker: WorkerThread<MergeRequest, MergeReply>,
    /// True once the thread has panicked: it reads nothing any more, and the counters stay.
    has_failed: bool,
}

impl MergeReader {
    /// Starts the thread. It ends when this is dropped. The account of freed zeros goes on where an earlier reader with this
    /// directory has left it.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(directory: &StateDir) -> io::Result<Self> {
        let mut file = LedgerFile::of(directory);
        let schedule = MergeSchedule::new(file.load());
        let worker = WorkerThread::start_replying("merge-reader", 1, {
            let mut reader = ProcessMergeReader::default();
            move |mut request: MergeRequest| {
                // Here, so that no tick waits for a disk.
                if let Some(account) = request.account.take() {
                    file.store(account);
                }
                reader.carry_out(&request)
            }
        })?;
        Ok(Self { schedule, worker, has_failed: false })
    }

    /// Fills the newest readings into `sample`.
    pub fn fill(&mut self, sample: &mut Sample) {
        match self.worker.poll_reply() {
            Ok(reply) => self.schedule.record_reply(reply),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                self.has_failed = true;
                self.schedule.cancel_renewal();
            }
        }
        self.schedule.fill(sample);
    }

    /// Has all processes read anew, at once. [`Self::is_renewing`] is true until that is done.
    pub fn renew(&mut self) {
        if !self.has_failed {
            self.schedule.renew();
        }
    }

    /// Ends what [`Self::renew`] has begun.
    pub fn cancel_renewal(&mut self) {
        self.schedule.cancel_renewal();
    }

    /// Returns true while processes are to be read anew.
    pub fn is_renewing(&self) -> bool {
        self.schedule.is_renewing()
    }

    /// Requests the readings that are due from the thread, if it is idle and the budget allows it.
    pub fn request(&mut self, sample: &Sample) {
        if let Some(request) = self.schedule.next_request(sample) {
            // That the thread has panicked shows at its next reply.
            let _ = self.worker.queue_request(request);
        }
    }
}
