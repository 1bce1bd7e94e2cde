//! Where the kernel's files are: the live host, or a captured tree that looks like one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ksmith_core::reading::{Malformed, Reading};

/// The directory that holds `proc` and `sys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

/// More than any file we read holds; a captured tree may hold anything.
const LONGEST_FILE: u64 = 16 << 20;

impl Root {
    /// The running host.
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A captured tree: `testdata/linux-6.18`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Whether this is the running host, the only one that can be acted upon.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// The path of `relative`, such as `proc/meminfo`.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.0.join(relative)
    }

    /// The whole text of a file. Bytes that are not UTF-8 are replaced.
    pub fn text(&self, relative: impl AsRef<Path>) -> Reading<String> {
        let mut bytes = Vec::new();
        match File::open(self.path(relative)).and_then(|file| file.take(LONGEST_FILE).read_to_end(&mut bytes)) {
            Ok(_) => Reading::Value(lossy(bytes)),
            Err(error) => outcome(&error),
        }
    }
}

/// The bytes as text, without a copy where they are UTF-8 already.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Which of the three outcomes an error is. A process that is gone and a source that is switched off (PSI
/// answers `EOPNOTSUPP`) are absent; an error that no documentation promises counts as malformed.
pub fn outcome<T>(error: &io::Error) -> Reading<T> {
    const ABSENT: [i32; 5] = [libc::ENOENT, libc::ENOTDIR, libc::ESRCH, libc::EOPNOTSUPP, libc::ENODEV];
    match error.raw_os_error() {
        Some(code) if ABSENT.contains(&code) => Reading::Absent,
        Some(libc::EACCES | libc::EPERM) => Reading::Denied,
        _ => Reading::Malformed(Malformed::new(1, "readable text", &error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_outcome() {
        let of = |code| outcome::<u64>(&io::Error::from_raw_os_error(code));
        assert_eq!(of(libc::ENOENT), Reading::Absent);
        assert_eq!(of(libc::ESRCH), Reading::Absent);
        assert_eq!(of(libc::EACCES), Reading::Denied);
        assert!(matches!(of(libc::EIO), Reading::Malformed(_)));
    }

    #[test]
    fn a_tree_is_read_and_what_it_lacks_is_absent() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("run"), b"1\xff\n").unwrap();
        let root = Root::at(tree.path());
        assert_eq!(root.text("run"), Reading::Value("1\u{fffd}\n".to_owned()));
        assert_eq!(root.text("proc/meminfo"), Reading::Absent);
        assert!(!root.is_host() && Root::host().is_host());
    }
}
