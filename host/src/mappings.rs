//! A streaming parser of a process's mappings: the whole text is never in memory.

use std::io;
use std::ops::ControlFlow;

use ksmith_core::kernel::ProcessMapping;
use ksmith_core::reading::{Malformed, Reading};

use crate::proc_file::{MAPPINGS, OverBudget};
use crate::reader;
use crate::root::{Root, outcome};

/// Calls `visit` with each mapping that `file` (`maps` or `smaps`) of a process shows.
///
/// # Errors
/// The file can't be read, is over its budget, does not answer, or is malformed.
pub fn visit_mappings(root: &Root, pid: u32, file: &str, visit: impl FnMut(ProcessMapping)) -> io::Result<()> {
    let mut cutter = MappingParser { text: Vec::new(), count: 0, failed: None, visit };
    if root.is_host() {
        reader::each_piece(pid, file, |piece| cutter.push_piece(piece))?;
    } else {
        let bytes = std::fs::read(root.path(format!("proc/{pid}/{file}")))?;
        let _ = cutter.push_piece(&bytes);
    }
    cutter.finish().map_err(|failed| match failed {
        MappingsError::TooMany => OverBudget::new(pid, file, MAPPINGS, "mappings").into(),
        MappingsError::Malformed(why) => io::Error::new(io::ErrorKind::InvalidData, why),
    })
}

/// Does the same as [`each`] for callers that need an outcome.
pub fn read(root: &Root, pid: u32, file: &str, visit: impl FnMut(ProcessMapping)) -> Reading<()> {
    match visit_mappings(root, pid, file, visit) {
        Ok(()) => Reading::Value(()),
        Err(error) => outcome(&error),
    }
}

enum MappingsError {
    TooMany,
    Malformed(Malformed),
}

/// An incremental parser that assembles whole mappings from pieces of text.
struct MappingParser<F> {
    /// An incomplete mapping at the end of the last piece.
    text: Vec<u8>,
    count: u64,
    failed: Option<MappingsError>,
    visit: F,
}

impl<F: FnMut(ProcessMapping)> MappingParser<F> {
    fn push_piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        self.text.extend_from_slice(piece);
        // A line that begins with a capital letter is a figure of the mapping before it.
        let is_heading = |at: &usize| self.text.get(at + 1).is_some_and(|byte| !byte.is_ascii_uppercase());
        let ends = (0..self.text.len()).rev().filter(|at| self.text.get(*at) == Some(&b'\n'));
        if let Some(end) = { ends }.find(is_heading) {
            let rest = self.text.split_off(end + 1);
            let whole = std::mem::replace(&mut self.text, rest);
            self.parse(&whole);
        }
        if self.failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn finish(mut self) -> Result<(), MappingsError> {
        if self.failed.is_none() {
            let rest = std::mem::take(&mut self.text);
            self.parse(&rest);
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn parse(&mut self, text: &[u8]) {
        match ProcessMapping::parse_all(&String::from_utf8_lossy(text)) {
            Ok(mappings) => {
                self.count += mappings.len() as u64;
                if self.count > MAPPINGS {
                    self.failed = Some(MappingsError::TooMany);
                    return;
                }
                mappings.into_iter().for_each(&mut self.visit);
            }
            Err(why) => self.failed = Some(MappingsError::Malformed(why)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SMAPS: &str = "1000-2000 rw-p 0 0:0 0 \nRss: 4 kB\nVmFlags: rd mg\n3000-5000 rw-p 0 0:0 7 /a file\n\
                         Rss: 8 kB\nVmFlags: rd\n6000-7000 ---p 0 0:0 0\n";

    fn cut(text: &str, width: usize) -> (Vec<ProcessMapping>, bool) {
        let mut found = Vec::new();
        let mut cutter = MappingParser { text: Vec::new(), count: 0, failed: None, visit: |it| found.push(it) };
        let _ = text.as_bytes().chunks(width).try_for_each(|piece| cutter.push_piece(piece));
        let is_good = cutter.finish().is_ok();
        (found, is_good)
    }

    #[test]
    fn more_mappings_than_the_budget_are_given_up() {
        let text = "1000-2000 rw-p 0 0:0 0\n".repeat(MAPPINGS as usize + 1);
        let (found, is_good) = cut(&text, 4096);
        assert!(!is_good && found.len() as u64 <= MAPPINGS);
        assert!(!cut("Rss: 4 kB\n", 4096).1);
    }

    #[test]
    fn a_tree_is_read_and_what_it_lacks_is_absent() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(read(&root, 9, "smaps", |_| ()), Reading::Absent);
        std::fs::create_dir_all(tree.path().join("proc/9")).unwrap();
        std::fs::write(tree.path().join("proc/9/smaps"), SMAPS).unwrap();
        let mut bytes = 0;
        assert_eq!(read(&root, 9, "smaps", |it| bytes += it.end - it.start), Reading::Value(()));
        assert_eq!(bytes, 4 * 4096);
        std::fs::write(tree.path().join("proc/9/smaps"), "nonsense\n").unwrap();
        assert!(matches!(read(&root, 9, "smaps", |_| ()), Reading::Malformed(_)));
    }

    proptest! {
        #[test]
        fn where_the_text_is_cut_does_not_matter(width in 1_usize..200) {
            prop_assert_eq!(cut(SMAPS, width), (ProcessMapping::parse_all(SMAPS).unwrap(), true));
        }
    }
}
