//! The state directory, for what must outlive the process: the undo store and the lock.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, openat};

use crate::root::Root;

/// Rights of others to list the directory. They may have to pass through it to the sockets.
const READABLE_BY_OTHERS: u32 = 0o044;

/// `/run/ksmith`, or a test's directory. A reboot empties it and resets the settings that it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Returns `run/ksmith` under `root`.
    pub fn from_root(root: &Root) -> Self {
        Self(root.path("run/ksmith"))
    }

    /// Returns the state directory at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the undo store.
    pub fn undo(&self) -> PathBuf {
        self.0.join("undo.json")
    }

    /// Returns the path of the lock of the undo store.
    pub(super) fn undo_lock(&self) -> PathBuf {
        self.0.join("undo.lock")
    }

    /// Returns the path of the lock.
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Creates the directory, accessible to its owner only. An existing one is made unreadable for others, and must not
    /// be writable by them: write access to the undo store decides what root writes to KSM, and which processes it
    /// continues.
    ///
    /// # Errors
    /// It can't be created, or others may write to it.
    pub fn make(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        // By descriptor: what is judged is the directory itself, and no link to another.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = fstat(openat(CWD, &self.0, flags, Mode::empty())?)?;
        let ours = rustix::process::geteuid().as_raw();
        if found.st_uid != ours && found.st_uid != 0 || found.st_mode & 0o022 != 0 {
            let what =
                format!("it can be written by others (owner {}, mode {:o})", found.st_uid, found.st_mode & 0o7777);
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        if found.st_uid == ours && found.st_mode & READABLE_BY_OTHERS != 0 {
            // A kubelet makes it so. Where that can't be changed the files' own modes protect them.
            let _ = self.close_to_others(found.st_mode);
        }
        Ok(())
    }

    fn close_to_others(&self, mode: u32) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, &self.0, flags, Mode::empty())?;
        Ok(fchmod(directory, Mode::from_raw_mode(mode & 0o7777 & !READABLE_BY_OTHERS))?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn it_is_made_for_its_owner_only() {
        let tree = tempfile::tempdir().unwrap();
        let dir = StateDir::from_root(&Root::at(tree.path()));
        dir.make().unwrap();
        dir.make().unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().mode() & 0o7777, 0o700);
    }

    #[test]
    fn one_that_others_may_list_is_closed_to_them_but_for_the_way_to_the_sockets() {
        let tree = tempfile::tempdir().unwrap();
        fs::set_permissions(tree.path(), Permissions::from_mode(0o755)).unwrap();
        StateDir::at(tree.path()).make().unwrap();
        assert_eq!(fs::metadata(tree.path()).unwrap().mode() & 0o7777, 0o711);
        // A group that new files inherit, and a restriction to their owners, stay.
        fs::set_permissions(tree.path(), Permissions::from_mode(0o3755)).unwrap();
        StateDir::at(tree.path()).make().unwrap();
        assert_eq!(fs::metadata(tree.path()).unwrap().mode() & 0o7777, 0o3711);
    }

    #[test]
    fn a_link_is_refused() {
        let tree = tempfile::tempdir().unwrap();
        let link = tree.path().join("link");
        std::os::unix::fs::symlink(tree.path(), &link).unwrap();
        assert!(StateDir::at(link).make().is_err());
    }

    #[test]
    fn one_that_others_can_write_is_refused() {
        let tree = tempfile::tempdir().unwrap();
        fs::set_permissions(tree.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(StateDir::at(tree.path()).make().unwrap_err().to_string().contains("mode 777"));
    }
}
