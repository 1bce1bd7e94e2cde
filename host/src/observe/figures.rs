//! The KSM figures of one process, from the files that this kernel has.
//!
//! `ksm_stat` exists since 6.1 and holds the merged pages since 6.4. `ksm_merging_pages` exists since 5.19. Older
//! kernels have only the flags of mappings.

use std::io;
use std::ops::ControlFlow;

use ksmith_core::kernel::{KsmStat, merging_pages, says_mergeable};
use ksmith_core::reading::{Malformed, Reading};

use crate::root::outcome;

/// A reader of the KSM figures of one process.
#[derive(Debug, Default)]
pub(super) struct ProcessFigures {
    ksm_stat: FilePresence,
    merging_pages: FilePresence,
    /// True if `ksm_stat` has the merged pages too.
    has_all_in_one: bool,
}

/// A file's state: unknown, missing in this kernel, or present.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum FilePresence {
    #[default]
    Unasked,
    Absent,
    There,
}

impl FilePresence {
    /// Returns the text of the file; absent only if the kernel lacks the file or the process has ended.
    fn text(&mut self, read: impl FnOnce() -> io::Result<Vec<u8>>) -> Reading<String> {
        if *self == Self::Absent {
            return Reading::Absent;
        }
        match read() {
            Ok(bytes) => {
                *self = Self::There;
                String::from_utf8(bytes).map_err(|_| Malformed::new(1, "text", "bytes that are none")).into()
            }
            Err(error) => {
                if *self == Self::Unasked && error.kind() == io::ErrorKind::NotFound {
                    *self = Self::Absent;
                    return Reading::Absent;
                }
                outcome(&error)
            }
        }
    }
}

impl ProcessFigures {
    /// Returns true if this kernel has KSM figures of processes. Valid after a reading.
    pub(super) fn are_there(&self) -> bool {
        self.ksm_stat == FilePresence::There || self.merging_pages == FilePresence::There
    }

    /// Returns true if `ksm_merging_pages` may hold what `ksm_stat` lacks.
    pub(super) fn want_merging_pages(&self) -> bool {
        !self.has_all_in_one && self.merging_pages != FilePresence::Absent
    }

    /// Parses the figures from the text of `ksm_stat`. `merging` is that of `ksm_merging_pages`, which takes no lock of the
    /// process.
    ///
    /// `None` means a process without memory of its own (a kernel thread or a zombie), for which the kernel shows an
    /// empty text. Absent means that the process has ended. If the kernel has no such file, the figures are empty, and
    /// the caller must check by other means that the process runs.
    pub(super) fn read(
        &mut self,
        ksm_stat: io::Result<Vec<u8>>,
        merging: impl FnOnce() -> io::Result<Vec<u8>>,
    ) -> Reading<Option<KsmStat>> {
        let mut ksm = match self.ksm_stat.text(|| ksm_stat) {
            Reading::Value(text) if text.is_empty() => return Reading::Value(None),
            Reading::Value(text) => match KsmStat::parse(&text) {
                Ok(ksm) => ksm,
                Err(why) => return Reading::Malformed(why),
            },
            Reading::Absent if self.ksm_stat == FilePresence::Absent => KsmStat::default(),
            other => return other.map(|_| None),
        };
        if ksm.merging_pages.is_some() {
            self.has_all_in_one = true;
            return Reading::Value(Some(ksm));
        }
        match self.merging_pages.text(merging) {
            Reading::Value(text) if text.is_empty() => return Reading::Value(None),
            Reading::Value(text) => match merging_pages(&text) {
                Ok(pages) => ksm.merging_pages = Some(pages),
                Err(why) if ksm == KsmStat::default() => return Reading::Malformed(why),
                Err(_) => {}
            },
            Reading::Absent if self.merging_pages == FilePresence::Absent => {}
            other => return other.map(|_| None),
        }
        Reading::Value(Some(ksm))
    }
}

/// A search for mergeable memory among the flags of an `smaps`, piece by piece.
#[derive(Debug, Default)]
pub(super) struct MergeableFlags {
    /// The beginning of a line that continues in the next piece.
    line: Vec<u8>,
    /// True if a flag marks mergeable memory.
    pub(super) are_mergeable: bool,
}

impl MergeableFlags {
    /// Searches the next piece. Breaks once mergeable memory is found.
    pub(super) fn search_piece(&mut self, piece: &[u8]) -> ControlFlow<()> {
        let mut lines = piece.split(|byte| *byte == b'\n');
        let last = lines.next_back().unwrap_or_default();
        for line in lines {
            self.line.extend_from_slice(line);
            self.are_mergeable |= std::str::from_utf8(&self.line).is_ok_and(says_mergeable);
            self.line.clear();
        }
        self.line.extend_from_slice(last);
        if self.are_mergeable { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the figures from a kernel with only these files.
    fn read(files: &[(&'static str, &'static str)]) -> Reading<Option<KsmStat>> {
        let give = |name: &str| {
            let file = files.iter().find(|(file, _)| *file == name);
            file.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let mut figures = ProcessFigures::default();
        let reading = figures.read(give("ksm_stat"), || give("ksm_merging_pages"));
        assert_eq!(reading, figures.read(give("ksm_stat"), || give("ksm_merging_pages")));
        reading
    }

    #[test]
    fn each_kernels_files_are_put_together() {
        let stat_of_6_4 = ("ksm_stat", "ksm_rmap_items 7\nksm_merging_pages 2\n");
        let stat_of_6_1 = ("ksm_stat", "ksm_rmap_items 7\n");
        let merging = ("ksm_merging_pages", "3\n");
        let found = |files: &[_]| {
            let ksm = read(files).get().flatten().unwrap();
            (ksm.rmap_items, ksm.merging_pages)
        };
        assert_eq!(found(&[stat_of_6_4, merging]), (Some(7), Some(2)));
        assert_eq!(found(&[stat_of_6_1, merging]), (Some(7), Some(3)));
        assert_eq!(found(&[stat_of_6_1]), (Some(7), None));
        assert_eq!(found(&[merging]), (None, Some(3)));
        assert_eq!(found(&[]), (None, None));
        assert_eq!(found(&[stat_of_6_1, ("ksm_merging_pages", "18446744073709551615\n")]), (Some(7), None));
    }

    #[test]
    fn an_empty_text_is_a_process_without_memory() {
        assert_eq!(read(&[("ksm_stat", ""), ("ksm_merging_pages", "")]), Reading::Value(None));
        assert_eq!(read(&[("ksm_merging_pages", "")]), Reading::Value(None));
        assert!(matches!(read(&[("ksm_merging_pages", "x")]), Reading::Malformed(_)));
        assert!(matches!(read(&[("ksm_stat", "ksm_rmap_items x\n")]), Reading::Malformed(_)));
    }

    #[test]
    fn what_is_denied_or_gone_is_told_and_asked_again() {
        let mut figures = ProcessFigures::default();
        let fails = |error: i32| Err(io::Error::from_raw_os_error(error));
        let none = || Err(io::ErrorKind::NotFound.into());
        assert_eq!(figures.read(fails(libc::EACCES), none), Reading::Denied);
        assert_eq!(figures.read(fails(libc::ESRCH), none), Reading::Absent);
        assert!(!figures.are_there());
        assert!(matches!(figures.read(Ok(b"ksm_rmap_items 1\n".to_vec()), none), Reading::Value(Some(_))));
        assert!(figures.are_there());
    }

    #[test]
    fn flags_are_found_between_other_lines_and_across_pieces() {
        let say = |text: &str, width: usize| {
            let mut flags = MergeableFlags::default();
            let _ = text.as_bytes().chunks(width).try_for_each(|piece| flags.search_piece(piece));
            flags.are_mergeable
        };
        for width in [1, 7, 4096] {
            assert!(say("7f00-7f01 rw-p\nRss: 4 kB\nVmFlags: rd mg\n7f02-7f03 rw-p\n", width));
            assert!(!say("7f00-7f01 rw-p\nVmFlags: rd wr\n", width));
            assert!(!say("", width));
        }
    }
}
