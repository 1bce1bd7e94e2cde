//! The fleet's secret: a file that only its owner can read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::key::FleetKey;

/// Minimum length of a secret, in bytes.
const FEWEST: usize = 16;

/// Maximum length of a secret, in bytes.
const MOST: u64 = 4096;

/// Number of random bytes in a new secret.
const NEW: usize = 32;

/// The error of reading or creating a secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file can't be opened, read or created.
    #[error("can't {what} the fleet's secret {path:?}: {why}")]
    Io {
        /// The operation, as a verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        why: io::Error,
    },
    /// The file exists.
    #[error(
        "{0:?} is there already and is left as it is: a new secret makes all sketches before it useless; name another file"
    )]
    Exists(PathBuf),
    /// Other users may read the file.
    #[error("the fleet's secret {path:?} has mode {mode:03o}: others may read it; run chmod 600 {path:?}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file belongs to another user.
    #[error("the fleet's secret {path:?} belongs to user {owner}: it must be yours or root's; run chown on it")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The file is not a regular file.
    #[error(
        "the fleet's secret {0:?} is not a regular file: name one, or make it with `ksmith sketch --new-secret`"
    )]
    NoFile(PathBuf),
    /// The secret is too short or too long.
    #[error(
        "the fleet's secret {path:?} has {bytes} bytes: it takes {FEWEST} to {MOST}; make one with `ksmith sketch --new-secret`"
    )]
    Size {
        /// The file.
        path: PathBuf,
        /// Its length without surrounding white space.
        bytes: usize,
    },
}

/// Creates a file with a new secret: 32 random bytes in hexadecimal digits, readable only by its owner.
///
/// # Errors
/// The file exists or can't be written.
pub fn new_secret(path: &Path) -> Result<(), SecretError> {
    let failed = |why: io::Error| SecretError::Io { what: "make", path: path.to_owned(), why };
    let mut bytes = [0; NEW];
    let mut filled = 0;
    while filled < NEW {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty()).map_err(|why| failed(why.into()))?;
    }
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.push('\n');
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => return Err(SecretError::Exists(path.to_owned())),
        Err(why) => return Err(failed(why)),
    };
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(|why| {
        // Half a secret would be taken for a whole one.
        let _ = std::fs::remove_file(path);
        failed(why)
    })
}

/// Reads the secret, and derives the key from it. Surrounding white space is ignored.
///
/// # Errors
/// The file can't be read, others may read it, or it is no secret.
pub fn read_secret(path: &Path) -> Result<FleetKey, SecretError> {
    let failed = |why: io::Error| SecretError::Io { what: "read", path: path.to_owned(), why };
    // A pipe without a writer would hold the open up.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    check(path, &file)?;
    let mut text = Vec::new();
    Read::by_ref(&mut file).take(MOST + 1).read_to_end(&mut text).map_err(failed)?;
    let secret = text.trim_ascii();
    if secret.len() < FEWEST || text.len() as u64 > MOST {
        return Err(SecretError::Size { path: path.to_owned(), bytes: secret.len() });
    }
    Ok(FleetKey::from_secret(secret))
}

/// Returns the path of the secret that comes after this one: with `.next` at its end.
pub fn next_secret_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    PathBuf::from(name)
}

/// Reads the secret that comes after this one, if there is one.
///
/// # Errors
/// As of [`read_secret`], but for a file that is not there.
pub fn read_next_secret(path: &Path) -> Result<Option<FleetKey>, SecretError> {
    match read_secret(&next_secret_path(path)) {
        Ok(key) => Ok(Some(key)),
        Err(SecretError::Io { why, .. }) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn check(path: &Path, file: &File) -> Result<(), SecretError> {
    let found = file.metadata().map_err(|why| SecretError::Io { what: "read", path: path.to_owned(), why })?;
    let path = path.to_owned();
    if !found.is_file() {
        return Err(SecretError::NoFile(path));
    }
    if found.mode() & 0o077 != 0 {
        return Err(SecretError::Open { path, mode: found.mode() & 0o777 });
    }
    let own = rustix::process::geteuid().as_raw();
    if found.uid() != own && found.uid() != 0 {
        return Err(SecretError::Foreign { path, owner: found.uid() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_secret_is_read_back_and_is_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.key");
        new_secret(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let id = read_secret(&path).unwrap().id();
        assert!(matches!(new_secret(&path), Err(SecretError::Exists(_))));
        assert_eq!(read_secret(&path).unwrap().id(), id);
        let other = directory.path().join("other.key");
        new_secret(&other).unwrap();
        assert_ne!(read_secret(&other).unwrap().id(), id);
    }

    #[test]
    fn white_space_at_the_ends_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let id = |name: &str, text: &[u8]| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
            read_secret(&path).map(|key| key.id())
        };
        let same = [id("a", b"0123456789abcdef"), id("b", b" 0123456789abcdef\r\n")];
        assert_eq!(same[0].as_ref().unwrap(), same[1].as_ref().unwrap());
        assert!(matches!(id("c", b"0123456789abcde\n\n\n"), Err(SecretError::Size { bytes: 15, .. })));
        assert!(matches!(id("d", &[b'x'; 4097]), Err(SecretError::Size { .. })));
        assert!(matches!(id("e", b""), Err(SecretError::Size { bytes: 0, .. })));
    }

    #[test]
    fn what_others_may_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.key");
        new_secret(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read_secret(&path).unwrap_err();
            assert!(error.to_string().contains("chmod 600"), "{mode:o}: {error}");
        }
        assert!(matches!(read_secret(directory.path()), Err(SecretError::NoFile(_))));
        assert!(matches!(read_secret(&directory.path().join("none")), Err(SecretError::Io { .. })));
    }

    #[test]
    fn the_next_secret_lies_beside_the_one_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.key");
        assert!(read_next_secret(&path).unwrap().is_none());
        let next = directory.path().join("fleet.key.next");
        new_secret(&next).unwrap();
        assert_eq!(read_next_secret(&path).unwrap().unwrap().id(), read_secret(&next).unwrap().id());
        fs::set_permissions(&next, Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(read_next_secret(&path), Err(SecretError::Open { .. })));
    }

    #[test]
    fn another_users_file_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fleet.key");
        new_secret(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        assert!(matches!(read_secret(&path), Err(SecretError::Foreign { owner: 65_534, .. })));
    }
}
