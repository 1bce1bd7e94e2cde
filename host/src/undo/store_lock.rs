//! The lock that lets processes change the undo store in turn.

use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::StateDir;

/// The longest wait for another process that changes the store: some thousand times what a change takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// Attempts to lock a file that is replaced meanwhile.
const ATTEMPTS: usize = 16;

/// The right to change the file. It is released explicitly, since a child that was forked meanwhile has a copy of the
/// descriptor.
///
/// The lock is on a file that only its owner may open. Whoever may open a file or a directory may lock it.
pub(super) struct StoreLock(File);

impl StoreLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// The file can't be opened, or another process holds the lock for too long ([`io::ErrorKind::TimedOut`]).
    pub(super) fn acquire(directory: &StateDir) -> io::Result<Self> {
        Self::acquire_within(directory, PATIENCE)
    }

    fn acquire_within(directory: &StateDir, patience: Duration) -> io::Result<Self> {
        // For reading only: so it can be opened where the file is there and the disk is read-only.
        let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let path = directory.undo_lock();
        let deadline = Instant::now() + patience;
        let attempt = || {
            let file = File::from(openat(CWD, &path, flags, Mode::RUSR | Mode::WUSR)?);
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(file),
                    Err(TryLockError::WouldBlock) if Instant::now() < deadline => thread::sleep(PAUSE),
                    Err(TryLockError::WouldBlock) => {
                        let what = format!("another process holds {}", path.display());
                        return Err(io::Error::new(io::ErrorKind::TimedOut, what));
                    }
                    Err(TryLockError::Error(error)) => return Err(error),
                }
            }
        };
        lock_in_place(&path, |error| error, attempt).map(Self)
    }
}

/// Returns a file that `attempt` has opened and locked. Another that was put in its place meanwhile could be locked by
/// others, so `attempt` is repeated then.
///
/// # Errors
/// Those of `attempt`, or the file is replaced again and again.
pub(crate) fn lock_in_place<E>(
    path: &Path,
    fail: impl Fn(io::Error) -> E,
    mut attempt: impl FnMut() -> Result<File, E>,
) -> Result<File, E> {
    for _ in 0..ATTEMPTS {
        let file = attempt()?;
        if is_in_place(&file, path) {
            return Ok(file);
        }
    }
    Err(fail(io::Error::other(format!("{} is replaced again and again", path.display()))))
}

/// Returns true if a file is the one that others would open by this path.
pub(crate) fn is_in_place(file: &File, path: &Path) -> bool {
    let identity = |found: Metadata| (found.dev(), found.ino());
    let found = path.symlink_metadata().map(identity);
    matches!((file.metadata().map(identity), found), (Ok(ours), Ok(found)) if ours == found)
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Closing the descriptor unlocks as well.
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, metadata, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::super::{UndoEntries, UndoStore};
    use super::*;

    #[test]
    fn a_lock_that_another_process_keeps_is_given_up_at_the_deadline() {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path());
        let kept = StoreLock::acquire(&directory).unwrap();
        let refused = StoreLock::acquire_within(&directory, Duration::from_millis(5)).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        drop(kept);
        assert!(StoreLock::acquire(&directory).is_ok());
    }

    #[test]
    fn a_file_that_was_replaced_before_it_was_locked_is_opened_again() {
        let tree = tempfile::tempdir().unwrap();
        let path = tree.path().join("lock");
        let mut replaced = 0;
        let mut lock = |most: usize| {
            lock_in_place(
                &path,
                |error| error,
                || {
                    let file = File::create(&path)?;
                    file.try_lock()?;
                    if replaced < most {
                        std::fs::remove_file(&path)?;
                        File::create(&path)?;
                        replaced += 1;
                    }
                    Ok(file)
                },
            )
        };
        assert!(is_in_place(&lock(2).unwrap(), &path));
        assert!(lock(usize::MAX).unwrap_err().to_string().ends_with("is replaced again and again"));
        assert_eq!(replaced, 2 + ATTEMPTS);
    }

    /// Locks each file or directory of its arguments that it may open, says so, and waits for its end.
    const LOCK_ALL: &str = r#"
import fcntl, os, sys
held = 0
for path in sys.argv[1:]:
    try:
        fcntl.flock(os.open(path, os.O_RDONLY), fcntl.LOCK_EX)
        held += 1
    except PermissionError:
        pass
print(held, flush=True)
sys.stdin.readline()
"#;

    /// In a directory that others may open, as a kubelet makes it.
    #[test]
    fn another_user_that_locks_the_state_directory_keeps_no_change_waiting() {
        use std::io::{BufRead, BufReader};

        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can become another user");
            return;
        }
        let tree = tempfile::tempdir().unwrap();
        set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        std::fs::create_dir(directory.path()).unwrap();
        drop(StoreLock::acquire(&directory).unwrap());
        set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(metadata(directory.undo_lock()).unwrap().mode() & 0o777, 0o600);
        let mut command = Command::new("python3");
        command.args(["-c", LOCK_ALL]).arg(directory.path()).arg(directory.undo_lock());
        command.uid(65534).gid(65534).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut attacker) = command.spawn() else {
            eprintln!("there is no Python");
            return;
        };
        let mut said = String::new();
        BufReader::new(attacker.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let changed = UndoStore::new(&directory).change(|entries| {
            *entries = UndoEntries::default();
            Ok(())
        });
        drop(attacker.stdin.take());
        attacker.wait().unwrap();
        assert_eq!(said, "1\n", "it holds the directory's lock, and may not open the file");
        changed.unwrap();
    }
}
