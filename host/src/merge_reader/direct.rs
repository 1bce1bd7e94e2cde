//! Readings for commands that scan without a daemon: they wait for them.

use ksmith_core::sample::{ProcessId, Sample};

use super::ledger_file::LedgerFile;
use super::message::MergeRequest;
use super::read::ProcessMergeReader;
use super::schedule::MergeSchedule;
use crate::undo::StateDir;

/// Seconds of CPU time after which no further process is read: those of some 500 GiB.
const MOST_CPU_SECONDS: f64 = 10.0;

/// Reads page tables while its caller waits.
#[derive(Debug)]
pub struct DirectMergeReader {
    schedule: MergeSchedule,
    reader: ProcessMergeReader,
    file: LedgerFile,
}

impl DirectMergeReader {
    /// Creates a reader. It goes on with the account of freed zeros in `directory`, and leaves it there for the next daemon.
    pub fn new(directory: &StateDir) -> Self {
        let file = LedgerFile::of(directory);
        let schedule = MergeSchedule::new(file.load());
        Self { schedule, reader: ProcessMergeReader::default(), file }
    }

    /// Reads all processes that merge, the largest first, and fills the readings into `sample`. Those for which the CPU time
    /// does not last have KSM's counters.
    pub fn read(&mut self, sample: &mut Sample) {
        // What an earlier reader has left says which others are to be read.
        self.schedule.fill(sample);
        let mut sizes: Vec<(u64, ProcessId)> =
            self.schedule.candidates(sample).map(|process| (process.known_rss_bytes(), process.id)).collect();
        sizes.sort_unstable_by_key(|(bytes, id)| (std::cmp::Reverse(*bytes), *id));
        let request = MergeRequest {
            processes: sizes.into_iter().map(|(_, id)| id).collect(),
            at: sample.at,
            cpu_seconds: MOST_CPU_SECONDS,
            page_size: sample.page_size,
            account: None,
        };
        self.schedule.record_reply(self.reader.carry_out(&request));
        self.schedule.fill(sample);
        if let Some(account) = self.schedule.account_to_write() {
            self.file.store(account);
        }
    }
}
