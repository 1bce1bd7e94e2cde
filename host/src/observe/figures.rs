//! The KSM figures of one process, from the files that this kernel has.
//!
//! `ksm_stat` exists since 6.1 and holds the merged pages since 6.4. `ksm_merging_pages` exists since 5.19. Older
//! kernels have only the flags of mappings.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;

use ksmith_core::kernel::{KsmStat, merging_pages, says_mergeable};
use ksmith_core::reading::Reading;

use super::proc_dir::text;
use super::scratch::Scratch;
use crate::root::outcome;

/// The KSM files of one process, opened when first needed and kept open.
#[derive(Debug, Default)]
pub(super) struct Figures {
    ksm_stat: Slot,
    merging_pages: Slot,
}

/// A file that stays open once it was opened.
#[derive(Debug, Default)]
enum Slot {
    #[default]
    Unasked,
    /// This kernel lacks the file.
    Absent,
    Open(OwnedFd),
}

impl Slot {
    /// Reads the file, after opening it by `open` if necessary. Absent only if the kernel lacks the file or the
    /// process has ended.
    fn read<'a>(
        &mut self,
        open: impl FnOnce() -> io::Result<OwnedFd>,
        scratch: &'a mut Scratch,
    ) -> Reading<&'a str> {
        if let Self::Unasked = self {
            *self = match open() {
                Ok(file) => Self::Open(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Absent,
                Err(error) => return outcome(&error),
            };
        }
        match self {
            Self::Open(file) => text(Ok(file), scratch),
            Self::Unasked | Self::Absent => Reading::Absent,
        }
    }
}

impl Figures {
    /// The most descriptors kept open.
    pub(super) const DESCRIPTORS: u64 = 2;

    /// Whether this kernel has KSM figures of processes. This is known after a reading.
    pub(super) fn are_there(&self) -> bool {
        matches!(self.ksm_stat, Slot::Open(_)) || matches!(self.merging_pages, Slot::Open(_))
    }

    /// Reads the figures; `open` opens a file of the process.
    ///
    /// `None` means a process without memory of its own (a kernel thread or a zombie), for which the kernel gives
    /// an empty text. Absent means that the process has ended. If the kernel has no such file, the figures are
    /// empty, and the caller must find out by other means whether the process runs.
    pub(super) fn read(
        &mut self,
        open: impl Fn(&str) -> io::Result<OwnedFd>,
        scratch: &mut Scratch,
    ) -> Reading<Option<KsmStat>> {
        let mut ksm = match self.ksm_stat.read(|| open("ksm_stat"), scratch) {
            Reading::Value("") => return Reading::Value(None),
            Reading::Value(text) => match KsmStat::parse(text) {
                Ok(ksm) => ksm,
                Err(why) => return Reading::Malformed(why),
            },
            Reading::Absent if matches!(self.ksm_stat, Slot::Absent) => KsmStat::default(),
            other => return other.map(|_| None),
        };
        if ksm.merging_pages.is_some() {
            return Reading::Value(Some(ksm));
        }
        match self.merging_pages.read(|| open("ksm_merging_pages"), scratch) {
            Reading::Value("") => return Reading::Value(None),
            Reading::Value(text) => match merging_pages(text) {
                Ok(pages) => ksm.merging_pages = Some(pages),
                Err(why) => return Reading::Malformed(why),
            },
            Reading::Absent if matches!(self.merging_pages, Slot::Absent) => {}
            other => return other.map(|_| None),
        }
        Reading::Value(Some(ksm))
    }
}

/// The most bytes of `smaps` that are read: some 100,000 mappings.
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

    /// Opens files from a table, like a kernel with only these files.
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
        let mut figures = Figures::default();
        let reading = figures.read(kernel(files), &mut Scratch::new());
        let again = figures.read(|_| Err(io::Error::other("opened twice")), &mut Scratch::new());
        assert_eq!(reading, again);
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
        let mut figures = Figures::default();
        let fails = |error: i32| move |_: &str| Err(io::Error::from_raw_os_error(error));
        let mut scratch = Scratch::new();
        assert_eq!(figures.read(fails(libc::EACCES), &mut scratch), Reading::Denied);
        assert_eq!(figures.read(fails(libc::ESRCH), &mut scratch), Reading::Absent);
        assert!(!figures.are_there());
        let files = kernel(&[("ksm_stat", "ksm_rmap_items 1\n")]);
        assert!(matches!(figures.read(files, &mut scratch), Reading::Value(Some(_))));
        assert!(figures.are_there());
    }

    #[test]
    fn flags_are_found_between_other_lines() {
        let file = |text| kernel(&[("smaps", text)])("smaps").unwrap();
        assert!(smaps_say_mergeable(file("7f00-7f01 rw-p\nRss: 4 kB\nVmFlags: rd mg\n7f02-7f03 rw-p\n")));
        assert!(!smaps_say_mergeable(file("7f00-7f01 rw-p\nVmFlags: rd wr\n")));
        assert!(!smaps_say_mergeable(file("")));
    }
}
