//! Kernel files that are kept open: those of KSM and khugepaged, and those of `/proc` that describe the host.

use std::collections::BTreeMap;

use ksmith_core::kernel::{FIELDS, HOST_FILES, KernelFileSource, TextEnd};
use ksmith_core::reading::Reading;

use super::kept_file::KeptFile;
use super::scratch::ReadBuffer;
use crate::root::Root;

/// Kernel files by their paths, each with its own outcome.
pub(super) struct KernelFiles {
    files: BTreeMap<&'static str, KeptFile>,
}

impl KernelFiles {
    /// Creates the readers of all files of [`FIELDS`].
    pub(super) fn of_ksm(root: &Root) -> Self {
        Self::new(root, FIELDS.iter().map(|field| (field.source, TextEnd::ShortRead)))
    }

    /// Creates the readers of [`HOST_FILES`].
    pub(super) fn of_host(root: &Root) -> Self {
        Self::new(root, HOST_FILES.iter().map(|file| (file.path, file.end)))
    }

    fn new(root: &Root, files: impl Iterator<Item = (&'static str, TextEnd)>) -> Self {
        let files = files.map(|(path, end)| (path, KeptFile::new(root, path.trim_start_matches('/'), end)));
        Self { files: files.collect() }
    }

    /// Returns the files together with a buffer, for `Ksm::read` and `HostReadings::read`.
    pub(super) fn with<'a>(&'a mut self, scratch: &'a mut ReadBuffer) -> impl KernelFileSource + 'a {
        KernelFileReader { files: self, scratch }
    }
}

struct KernelFileReader<'a> {
    files: &'a mut KernelFiles,
    scratch: &'a mut ReadBuffer,
}

impl KernelFileSource for KernelFileReader<'_> {
    fn text(&mut self, path: &'static str) -> Reading<&str> {
        match self.files.files.get_mut(path) {
            Some(file) => file.read(self.scratch),
            None => Reading::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ksmith_core::kernel::Ksm;

    use super::*;

    #[test]
    fn each_file_has_its_own_outcome() {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join("sys/kernel/mm/ksm");
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("run"), "1\n").unwrap();
        fs::write(directory.join("pages_shared"), "many\n").unwrap();
        let mut files = KernelFiles::of_ksm(&Root::at(tree.path()));
        let mut scratch = ReadBuffer::new();
        let ksm = Ksm::read(&mut files.with(&mut scratch));
        assert_eq!(ksm.run, Reading::Value(1));
        assert_eq!((ksm.smart_scan, ksm.max_ptes_none), (Reading::Absent, Reading::Absent));
        assert!(matches!(ksm.pages_shared, Reading::Malformed(_)));
        fs::remove_file(directory.join("run")).unwrap();
        assert_eq!(Ksm::read(&mut files.with(&mut scratch)).run, Reading::Absent);
    }
}
