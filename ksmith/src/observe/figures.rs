//! What KSM does for one process, from whichever file this kernel has.
//!
//! `ksm_stat` since 6.1, before that `ksm_merging_pages` since 5.19, before that nothing but the mappings' flags.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;

use ksmith_core::kernel::{KsmStat, number, says_mergeable};
use ksmith_core::reading::Reading;

use super::proc_dir::text;
use super::scratch::Scratch;

/// The file that a process's figures were found in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// `ksm_stat`.
    KsmStat,
    /// `ksm_merging_pages`: one number.
    MergingPages,
}

impl Format {
    const ALL: [(Self, &str); 2] = [(Self::KsmStat, "ksm_stat"), (Self::MergingPages, "ksm_merging_pages")];

    /// Reads an open file. `None`: the process has no memory of its own (a kernel thread or a zombie), for which
    /// the kernel gives an empty text.
    pub(super) fn read(self, file: &OwnedFd, scratch: &mut Scratch) -> Reading<Option<KsmStat>> {
        text(Ok(file), scratch).and_then(|text| match self {
            _ if text.is_empty() => Ok(None),
            Self::KsmStat => KsmStat::parse(text).map(Some),
            Self::MergingPages => {
                number(text).map(|pages| Some(KsmStat { merging_pages: Some(pages), ..KsmStat::default() }))
            }
        })
    }
}

/// Opens the best file that this kernel has. `None`: it has none of them, and the process is still there.
///
/// # Errors
/// The process is gone (`ENOENT`, `ESRCH`) or its figures are not for us.
pub(super) fn open(open: impl Fn(&str) -> io::Result<OwnedFd>) -> io::Result<Option<(Format, OwnedFd)>> {
    for (format, name) in Format::ALL {
        match open(name) {
            Ok(file) => return Ok(Some((format, file))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    open("stat").map(|_| None)
}

/// More of `smaps` than this is not read: some 100,000 mappings.
const LONGEST_SMAPS: u64 = 128 << 20;

/// Whether the flags in an open `smaps` name mergeable memory.
pub(super) fn smaps_say_mergeable(smaps: OwnedFd) -> bool {
    let lines = BufReader::with_capacity(64 << 10, File::from(smaps).take(LONGEST_SMAPS)).split(b'\n');
    lines.map_while(Result::ok).any(|line| std::str::from_utf8(&line).is_ok_and(says_mergeable))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::{Seek, Write};
    use std::os::fd::OwnedFd;

    use super::*;

    /// Opens files from a table, as a kernel with just these would.
    fn kernel(files: &[(&'static str, &'static str)]) -> impl Fn(&str) -> io::Result<OwnedFd> {
        let files: HashMap<_, _> = files.iter().copied().collect();
        move |name| {
            let text = files.get(name).ok_or(io::ErrorKind::NotFound)?;
            let mut file = tempfile::tempfile()?;
            file.write_all(text.as_bytes())?;
            file.rewind()?;
            Ok(file.into())
        }
    }

    fn read(files: &[(&'static str, &'static str)]) -> Reading<Option<KsmStat>> {
        let (format, file) = open(kernel(files)).unwrap().unwrap();
        format.read(&file, &mut Scratch::new())
    }

    #[test]
    fn the_newest_file_wins() {
        let both = [("ksm_stat", "ksm_rmap_items 7\n"), ("ksm_merging_pages", "3\n")];
        assert_eq!(read(&both).value().unwrap().unwrap().rmap_items, Some(7));
        assert_eq!(read(&both[1..]).value().unwrap().unwrap().merging_pages, Some(3));
    }

    #[test]
    fn an_empty_text_is_a_process_without_memory() {
        assert_eq!(read(&[("ksm_stat", "")]), Reading::Value(None));
        assert_eq!(read(&[("ksm_merging_pages", "")]), Reading::Value(None));
        assert!(matches!(read(&[("ksm_merging_pages", "x")]), Reading::Malformed(_)));
    }

    #[test]
    fn an_old_kernel_is_told_from_a_process_that_is_gone() {
        assert!(open(kernel(&[("stat", "")])).unwrap().is_none());
        assert_eq!(open(kernel(&[])).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn flags_are_found_between_other_lines() {
        let file = |text| kernel(&[("smaps", text)])("smaps").unwrap();
        assert!(smaps_say_mergeable(file("7f00-7f01 rw-p\nRss: 4 kB\nVmFlags: rd mg\n7f02-7f03 rw-p\n")));
        assert!(!smaps_say_mergeable(file("7f00-7f01 rw-p\nVmFlags: rd wr\n")));
        assert!(!smaps_say_mergeable(file("")));
    }
}
