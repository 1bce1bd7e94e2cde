//! The presence of a job's ranks: the last one to end knows that no other will report.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The extension of the files that ranks lock while they run.
const RUNNING: &str = "running";

/// A rank that runs, by a lock in the directory of the parts: it ends with this process, however that ends.
#[derive(Debug)]
pub struct RankPresence {
    directory: PathBuf,
    path: PathBuf,
    file: File,
}

impl RankPresence {
    /// Locks the file of a rank.
    ///
    /// # Errors
    /// The directory can't be written to, its file system has no locks, or another process has this rank.
    pub fn begin(directory: &Path, rank: u32) -> io::Result<Self> {
        let path = directory.join(format!("{rank}.{RUNNING}"));
        let file = File::options().create(true).truncate(false).write(true).open(&path)?;
        file.try_lock()?;
        Ok(Self { directory: directory.to_owned(), path, file })
    }

    /// Ends the presence. Returns true if no other rank is present: of those that end at once, one at least is told so.
    pub fn end(self) -> bool {
        let _ = self.file.unlock();
        let _ = fs::remove_file(&self.path);
        let entries = fs::read_dir(&self.directory).into_iter().flatten().flatten();
        !entries.map(|entry| entry.path()).any(|path| is_locked(&path))
    }
}

/// Returns true if a process has locked the file of a rank. Shared locks do not hold up those who look at once.
fn is_locked(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == RUNNING)
        && File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rank_to_end_is_told_so_and_leaves_nothing_behind() {
        let tree = tempfile::tempdir().unwrap();
        let begin = |rank| RankPresence::begin(tree.path(), rank).unwrap();
        let (first, second, third) = (begin(0), begin(1), begin(2));
        assert!(RankPresence::begin(tree.path(), 1).is_err(), "it is taken");
        assert!(!second.end());
        // One that was killed: the kernel drops its lock, and the file stays.
        drop(third);
        assert!(first.end());
        assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 1);
        assert!(begin(2).end(), "the next run has the rank again");
        assert_eq!(fs::read_dir(tree.path()).unwrap().count(), 0);
    }
}
