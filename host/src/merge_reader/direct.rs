//! Readings for commands without a daemon: they wait for them.

use ksmith_core::merge_schedule::{MergeRequest, MergeSchedule};
use ksmith_core::sample::{ProcessId, Sample};

use super::ledger_file::LedgerFile;
use super::read::ProcessMergeReader;
use crate::undo::StateDir;

/// Seconds of CPU time after which no further process is read: those of some 500 GiB.
const MOST_CPU_SECONDS: f64 = 10.0;

/// Seconds of CPU time of a command that only reports, for which a monitoring plugin may wait.
const MOST_CPU_SECONDS_ONCE: f64 = 2.0;

/// Reads page tables while its caller waits.
#[derive(Debug)]
pub struct DirectMergeReader {
    schedule: MergeSchedule,
    reader: ProcessMergeReader,
    /// `None`: the account is not written.
    file: Option<LedgerFile>,
    most_cpu_seconds: f64,
}

impl DirectMergeReader {
    /// Creates a reader. It goes on with the account of freed zeros in `directory`, and leaves it there for the next daemon.
    pub fn new(directory: &StateDir) -> Self {
        let file = LedgerFile::of(directory);
        let schedule = MergeSchedule::new(file.load());
        let reader = ProcessMergeReader::default();
        Self { schedule, reader, file: Some(file), most_cpu_seconds: MOST_CPU_SECONDS }
    }

    /// Reads once, for commands that change nothing: the account in `directory` is read, if this user may, and stays as it
    /// is. Zeros that were freed before, and that it does not have, are not known.
    pub fn read_once(directory: &StateDir, sample: &mut Sample) {
        let schedule = MergeSchedule::new(LedgerFile::of(directory).load_if_permitted());
        let reader = ProcessMergeReader::default();
        Self { schedule, reader, file: None, most_cpu_seconds: MOST_CPU_SECONDS_ONCE }.read(sample);
        sample.sum_folded();
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
            cpu_seconds: self.most_cpu_seconds,
            page_size: sample.page_size,
            account: None,
        };
        self.schedule.record_reply(self.reader.carry_out(&request));
        self.schedule.fill(sample);
        let Some(file) = &mut self.file else { return };
        if let Some(account) = self.schedule.account_to_write() {
            file.store(account);
        }
    }
}
