//! The single-instance lock. The kernel releases it however its holder ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use super::StateDir;

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
    _file: File,
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
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(fail)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                let pid = file.take(32).read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(LockError::Held { pid });
            }
            Err(TryLockError::Error(source)) => return Err(fail(source)),
        }
        let pid = format!("{}\n", std::process::id());
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(pid.as_bytes())).map_err(fail)?;
        Ok(Self { _file: file })
    }
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
    fn a_lock_without_a_pid_is_still_held() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let _lock = KsmLock::acquire(&directory).unwrap();
        std::fs::write(directory.lock(), "nonsense").unwrap();
        assert!(matches!(KsmLock::acquire(&directory), Err(LockError::Held { pid: None })));
    }
}
