//! The account of zeros that splits have freed, and of huge pages that were split, in a file of the state directory.
//!
//! Both outlive the daemon, and the kernel counts them nowhere: without the file the next daemon would take the zeros for
//! memory that was never written to, and exposure would be too low for as long as the guests run.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use ksmith_core::fold::FoldEntry;
use ksmith_core::merge_schedule::LedgerEntries;
use ksmith_core::sample::ProcessId;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::proc_file::read_within;
use crate::undo::{self, StateDir, WriteDurability};

/// The version of the format.
const VERSION: u32 = 1;

/// The most processes in the file: those with the most freed zeros and split huge pages.
const MOST_PROCESSES: usize = 4096;

/// The longest file that is read, in bytes. As many processes as may be in it take less.
const LONGEST: u64 = 1 << 20;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerContent {
    version: u32,
    /// PIDs and start times begin anew at each boot.
    boot_id: Option<String>,
    processes: Vec<(ProcessId, FoldEntry)>,
}

/// The reason why a file is not used.
#[derive(Debug, thiserror::Error)]
enum LedgerFileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is longer than {LONGEST} bytes")]
    TooLong,
    #[error("it is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    #[error("it has version {0}, and this ksmith reads {VERSION}")]
    OtherVersion(u32),
}

/// The file of a state directory.
#[derive(Debug)]
pub(super) struct LedgerFile {
    path: PathBuf,
    boot_id: Option<String>,
    /// True if the last attempt to write it failed, which is logged once.
    is_failing: bool,
}

impl LedgerFile {
    pub(super) fn of(directory: &StateDir) -> Self {
        let path = directory.path().join("freed-zeros.json");
        Self { path, boot_id: undo::boot_id(), is_failing: false }
    }

    /// Reads the entries. A file that can't be used is logged, and has none; nor has one of an earlier boot.
    pub(super) fn load(&self) -> LedgerEntries {
        self.or_warn(self.read())
    }

    /// Reads the entries as [`Self::load`] does. A file that this user may not read has none, without a warning.
    pub(super) fn load_if_permitted(&self) -> LedgerEntries {
        match self.read() {
            Err(LedgerFileError::Io(why)) if why.kind() == io::ErrorKind::PermissionDenied => LedgerEntries::new(),
            read => self.or_warn(read),
        }
    }

    fn or_warn(&self, read: Result<LedgerEntries, LedgerFileError>) -> LedgerEntries {
        read.unwrap_or_else(|why| {
            let path = self.path.display();
            warn!("zeros that splits freed before the start are not counted: {path} is not used: {why}");
            LedgerEntries::new()
        })
    }

    fn read(&self) -> Result<LedgerEntries, LedgerFileError> {
        // Whatever is there, it keeps nobody waiting.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LedgerEntries::new()),
            file => file?,
        };
        let text = read_within(file, LONGEST)?.ok_or(LedgerFileError::TooLong)?;
        let content: LedgerContent = serde_json::from_slice(&text)?;
        if content.version != VERSION {
            return Err(LedgerFileError::OtherVersion(content.version));
        }
        let is_of_this_boot = self.boot_id.is_some() && content.boot_id == self.boot_id;
        Ok(if is_of_this_boot { content.processes.into_iter().collect() } else { LedgerEntries::new() })
    }

    /// Replaces the file, whole or not at all. A failure is logged, and costs only the account of a restart.
    pub(super) fn store(&mut self, entries: LedgerEntries) {
        let failed = self.write(entries).err();
        if let Some(why) = failed.as_ref().filter(|_| !self.is_failing) {
            let path = self.path.display();
            warn!(
                "a restart of the daemon will lose the count of zeros that splits freed: {path} can't be written: {why}"
            );
        }
        self.is_failing = failed.is_some();
    }

    fn write(&self, entries: LedgerEntries) -> Result<(), LedgerFileError> {
        let mut processes: Vec<(ProcessId, FoldEntry)> = entries.into_iter().collect();
        let weight = |entry: &FoldEntry| entry.folded_bytes().saturating_add(entry.split_bytes());
        processes.sort_by_key(|(id, entry)| (std::cmp::Reverse(weight(entry)), *id));
        processes.truncate(MOST_PROCESSES);
        let content = LedgerContent { version: VERSION, boot_id: self.boot_id.clone(), processes };
        Ok(undo::replace(&self.path, &serde_json::to_vec(&content)?, WriteDurability::Cached)?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ksmith_core::fold::{FoldLedger, ZeroReading};

    use super::*;
    use crate::undo::disk::fault::{self, DiskFault};

    fn entries(count: u32) -> LedgerEntries {
        let mut ledger = FoldLedger::new(u64::MAX);
        for pid in 0..count {
            let id = ProcessId { pid, start_ticks: u64::MAX };
            let bytes = u64::MAX - u64::from(count - pid);
            ledger.record_fold(id, bytes, ZeroReading { zero_mapped_bytes: bytes, ..ZeroReading::default() });
        }
        ledger.entries().collect()
    }

    #[test]
    fn what_is_stored_is_there_for_the_next_daemon_of_this_boot() {
        let tree = tempfile::tempdir().unwrap();
        let mut file = LedgerFile::of(&StateDir::at(tree.path()));
        assert!(file.read().unwrap().is_empty(), "there is none yet");
        file.store(entries(3));
        assert_eq!(LedgerFile::of(&StateDir::at(tree.path())).read().unwrap(), entries(3));
        for boot_id in [Some("another".to_owned()), None] {
            assert!(LedgerFile { boot_id, ..LedgerFile::of(&StateDir::at(tree.path())) }.load().is_empty());
        }
    }

    #[test]
    fn the_file_is_bounded_and_the_smallest_figures_are_left_out() {
        let tree = tempfile::tempdir().unwrap();
        let mut file = LedgerFile::of(&StateDir::at(tree.path()));
        file.store(entries(5000));
        let read = file.read().unwrap();
        assert_eq!((read.len(), read.keys().next().unwrap().pid), (MOST_PROCESSES, 5000 - 4096));
    }

    #[test]
    fn garbage_is_not_used_and_is_replaced() {
        let tree = tempfile::tempdir().unwrap();
        let mut file = LedgerFile::of(&StateDir::at(tree.path()));
        file.store(entries(2));
        let whole = fs::read_to_string(&file.path).unwrap();
        let long = " ".repeat(LONGEST as usize + 1);
        let other = whole.replacen("\"version\":1", "\"version\":2", 1);
        let negative = whole.replacen("\"pid\":", "\"pid\":-", 1);
        for text in ["", "{}", "\0\u{1}", &whole[..whole.len() / 2], &long, &other, &negative] {
            fs::write(&file.path, text).unwrap();
            assert!(file.read().is_err() && file.load().is_empty(), "{}", &text[..text.len().min(99)]);
        }
        file.store(entries(2));
        assert_eq!(file.load(), entries(2));
        fs::remove_file(&file.path).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file.path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        assert!(file.load().is_empty(), "a pipe keeps nobody waiting");
    }

    #[test]
    fn a_full_disk_leaves_the_file_as_it_was() {
        let tree = tempfile::tempdir().unwrap();
        let mut file = LedgerFile::of(&StateDir::at(tree.path()));
        file.store(entries(2));
        fault::with(Some((0, DiskFault::Full)), || file.store(entries(3)));
        assert!(file.is_failing);
        assert_eq!((file.load(), fs::read_dir(tree.path()).unwrap().count()), (entries(2), 1));
        file.store(entries(3));
        assert_eq!((file.load(), file.is_failing), (entries(3), false));
    }
}
