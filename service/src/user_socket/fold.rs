//! Orders to fold: a user has all its programs fold that run libksmith for it.
//!
//! An order is a file in a directory that only root writes to, one for each user. libksmith looks once a second when it was
//! written (`preload/src/fold/auto.rs`). So the daemon opens nothing that a user has made.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The directory of the orders.
#[derive(Debug)]
pub struct FoldOrders {
    directory: PathBuf,
}

impl FoldOrders {
    /// Beside the socket, where libksmith looks for it.
    pub fn beside(socket: &Path) -> Self {
        Self { directory: socket.with_file_name("fold") }
    }

    /// Orders all programs of this user to fold, as far as they are to fold at all.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn order(&self, user: u32) -> io::Result<()> {
        match fs::DirBuilder::new().mode(0o711).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let mut options = fs::File::options();
        options.write(true).create(true).truncate(true).mode(0o644);
        let mut file = options.custom_flags(libc::O_NOFOLLOW).open(self.directory.join(user.to_string()))?;
        // An empty write would leave the time as it was.
        io::Write::write_all(&mut file, b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_is_newer_than_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let orders = FoldOrders::beside(&directory.path().join("user"));
        let written =
            || fs::metadata(directory.path().join("fold/1000")).and_then(|found| found.modified()).unwrap();
        orders.order(1000).unwrap();
        let first = written();
        std::thread::sleep(std::time::Duration::from_millis(30));
        orders.order(1000).unwrap();
        assert!(written() > first);
        assert!(!directory.path().join("fold/1001").exists(), "other users' programs are left alone");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let orders = FoldOrders::beside(&directory.path().join("user"));
        fs::create_dir(directory.path().join("fold")).unwrap();
        std::os::unix::fs::symlink(directory.path().join("other"), directory.path().join("fold/1000")).unwrap();
        assert!(orders.order(1000).is_err());
        assert!(!directory.path().join("other").exists());
    }
}
