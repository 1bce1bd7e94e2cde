//! The single-instance lock. The kernel releases it however its holder ends.

mod removed;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::StateDir;
use crate::undo::{is_in_place, lock_in_place};

/// An error from taking the lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another ksmith holds it.
    #[error("another ksmith ({pid}) controls KSM; end it first, it restores the settings on its way out",
            pid = .pid.map_or("pid unknown".to_owned(), |pid| format!("pid {pid}")))]
    Held {
        /// The holder's PID, if it could be read.
        pid: Option<u32>,
    },
    /// The lock file can't be opened or written.
    #[error("can't use the lock {path}: {source}", path = .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

/// The right to control KSM, until dropped. The file stays: removing it would let two hold different files.
#[derive(Debug)]
pub struct KsmLock {
    file: File,
    path: PathBuf,
}

impl KsmLock {
    /// Takes the lock without waiting, and writes our PID into it for others to read.
    ///
    /// # Errors
    /// Another ksmith holds it, or the file can't be used.
    pub fn acquire(directory: &StateDir) -> Result<Self, LockError> {
        let path = directory.lock();
        let fail = |source| LockError::Unusable { path: path.clone(), source };
        directory.make().map_err(fail)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let attempt = || {
            let file = options.open(&path).map_err(fail)?;
            match file.try_lock() {
                Ok(()) => Ok(file),
                Err(TryLockError::WouldBlock) => Err(LockError::Held { pid: read_pid(file) }),
                Err(TryLockError::Error(source)) => Err(fail(source)),
            }
        };
        let mut file = lock_in_place(&path, fail, attempt)?;
        if let Some((pid, _)) = removed::find_holder(&path).map_err(fail)? {
            return Err(LockError::Held { pid: Some(pid) });
        }
        let pid = format!("{}\n", std::process::id());
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes())).map_err(fail)?;
        Ok(Self { file, path })
    }

    /// Returns true if the file that is locked is the one that another ksmith would lock. It is not once the directory
    /// was removed.
    pub fn is_in_place(&self) -> bool {
        is_in_place(&self.file, &self.path)
    }
}

/// Returns the PID that the holder of a lock has written into it.
fn read_pid(file: File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_ksmith_is_told_the_pid_of_the_first() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let lock = KsmLock::acquire(&directory).unwrap();
        let error = KsmLock::acquire(&directory).unwrap_err();
        assert!(error.to_string().contains(&format!("(pid {})", std::process::id())), "{error}");
        drop(lock);
        // A process that another test starts right now has a copy of the descriptor until it execs. So it has of one that
        // is taken only to see whether that can be done.
        let next = loop {
            match KsmLock::acquire(&directory) {
                Err(LockError::Held { .. }) => std::thread::yield_now(),
                taken => break taken,
            }
        };
        next.unwrap();
    }

    #[test]
    fn a_lock_whose_directory_was_removed_still_keeps_a_second_ksmith_out() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let lock = KsmLock::acquire(&directory).unwrap();
        assert!(lock.is_in_place());
        std::fs::remove_dir_all(directory.path()).unwrap();
        assert!(!lock.is_in_place());
        let refused = KsmLock::acquire(&directory);
        assert!(matches!(refused, Err(LockError::Held { pid: Some(pid) }) if pid == std::process::id()));
        drop(lock);
        // Another test's child may have a copy of the descriptor until it execs.
        let next = loop {
            match KsmLock::acquire(&directory) {
                Err(LockError::Held { .. }) => std::thread::yield_now(),
                taken => break taken,
            }
        };
        assert!(next.unwrap().is_in_place());
    }

    #[test]
    fn a_lock_without_a_pid_is_still_held() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let _lock = KsmLock::acquire(&directory).unwrap();
        std::fs::write(directory.lock(), "nonsense").unwrap();
        assert!(matches!(KsmLock::acquire(&directory), Err(LockError::Held { pid: None })));
    }
}
