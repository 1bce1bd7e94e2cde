//! The files of KSM and khugepaged, kept open.

use std::collections::BTreeMap;

use ksmith_core::kernel::{FIELDS, KsmFileSource};
use ksmith_core::reading::Reading;

use super::kept_file::KeptFile;
use super::scratch::{ReadBuffer, TextEnd};
use crate::root::Root;

/// Every file of [`FIELDS`], each with its own outcome.
pub(super) struct KsmDir {
    files: BTreeMap<&'static str, KeptFile>,
}

impl KsmDir {
    pub(super) fn new(root: &Root) -> Self {
        let kept =
            |path: &'static str| (path, KeptFile::new(root, path.trim_start_matches('/'), TextEnd::ShortRead));
        Self { files: FIELDS.iter().map(|field| kept(field.source)).collect() }
    }

    /// Returns the directory together with a buffer, for `Ksm::read`.
    pub(super) fn with<'a>(&'a mut self, scratch: &'a mut ReadBuffer) -> impl KsmFileSource + 'a {
        KsmDirReader { directory: self, scratch }
    }
}

struct KsmDirReader<'a> {
    directory: &'a mut KsmDir,
    scratch: &'a mut ReadBuffer,
}

impl KsmFileSource for KsmDirReader<'_> {
    fn text(&mut self, path: &'static str) -> Reading<&str> {
        match self.directory.files.get_mut(path) {
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
        let mut ksm_dir = KsmDir::new(&Root::at(tree.path()));
        let mut scratch = ReadBuffer::new();
        let ksm = Ksm::read(&mut ksm_dir.with(&mut scratch));
        assert_eq!(ksm.run, Reading::Value(1));
        assert_eq!((ksm.smart_scan, ksm.max_ptes_none), (Reading::Absent, Reading::Absent));
        assert!(matches!(ksm.pages_shared, Reading::Malformed(_)));
        fs::remove_file(directory.join("run")).unwrap();
        assert_eq!(Ksm::read(&mut ksm_dir.with(&mut scratch)).run, Reading::Absent);
    }
}
