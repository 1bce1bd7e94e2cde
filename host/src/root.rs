//! The place of the kernel's files: the live host, or a captured tree.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ksmith_core::kernel::{self, PageSizeEvidence};
use ksmith_core::reading::{Malformed, Reading};

use crate::proc_file::{self, is_given_up, lossy};
use crate::reader;

/// The directory that holds `proc` and `sys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

/// The most processes of a captured tree that are searched for a page size.
const PROCESSES_SEARCHED: usize = 64;

/// The file with the bytes in a transparent huge page.
const HUGE_PAGE_SIZE: &str = "sys/kernel/mm/transparent_hugepage/hpage_pmd_size";

/// The reason why the page size of a captured tree is unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PageSizeError {
    /// No file of the tree shows it.
    #[error(
        "{missing}, so figures in pages can't be converted to bytes: capture both files, or proc/cpuinfo of x86"
    )]
    Unknown {
        /// The part of the tree that would show it.
        missing: &'static str,
    },
    /// Its files show different sizes.
    #[error("proc/meminfo and proc/vmstat do not agree on a page size: capture both at the same time")]
    Contradiction,
}

/// The longest file that is read. Files of processes have budgets of their own: see [`proc_file::budget`].
const LONGEST_FILE: u64 = 16 << 20;

impl Root {
    /// Returns the root of the running host.
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Returns the root of a captured tree, such as `testdata/linux-6.18`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Returns true for the running host, the only one with settings to write.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the base page size in bytes: the kernel's own, or the one that a captured tree shows by its memory in kB
    /// and in pages, by a process, or by its processor.
    ///
    /// # Errors
    /// The tree does not show it, or shows several.
    pub fn page_size(&self) -> Result<u64, PageSizeError> {
        if self.is_host() {
            return Ok(rustix::param::page_size() as u64);
        }
        let text = |file: &str| self.text(file).value().cloned();
        let (meminfo, vmstat) = (text("proc/meminfo"), text("proc/vmstat"));
        let mut of_host = PageSizeEvidence::default();
        of_host.add_host(meminfo.as_deref().unwrap_or_default(), vmstat.as_deref().unwrap_or_default());
        let shown = of_host.size();
        if let Ok(Some(size)) = shown {
            return Ok(size);
        }
        let of_cpu = || kernel::page_size_of_cpuinfo(&text("proc/cpuinfo")?);
        if let Some(size) = self.page_size_of_processes().or_else(of_cpu) {
            return Ok(size);
        }
        let missing = match (&meminfo, &vmstat) {
            _ if shown.is_err() => return Err(PageSizeError::Contradiction),
            (None, None) => "proc/meminfo and proc/vmstat are missing",
            (None, Some(_)) => "proc/meminfo is missing",
            (Some(_), None) => "proc/vmstat is missing",
            (Some(_), Some(_)) => {
                "proc/meminfo and proc/vmstat have no line in common, such as MemFree and nr_free_pages"
            }
        };
        Err(PageSizeError::Unknown { missing })
    }

    /// Returns the size of a transparent huge page in bytes. `None` if the kernel does not show it.
    pub fn shown_huge_page_bytes(&self) -> Option<u64> {
        let bytes = kernel::number(self.text(HUGE_PAGE_SIZE).value()?).ok()?;
        bytes.is_power_of_two().then_some(bytes)
    }

    /// Returns the page size that processes of a captured tree show.
    fn page_size_of_processes(&self) -> Option<u64> {
        let entries = std::fs::read_dir(self.path("proc")).ok()?.flatten();
        let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        pids.sort_unstable();
        let mut evidence = PageSizeEvidence::default();
        for pid in pids.into_iter().take(PROCESSES_SEARCHED) {
            let text = |file: &str| self.text(format!("proc/{pid}/{file}")).value().cloned();
            let auxv =
                open(&self.path(format!("proc/{pid}/auxv"))).and_then(|file| proc_file::read_within(file, 4096));
            let of_auxv = auxv.ok().flatten().and_then(|bytes| kernel::page_size_of_auxv(&bytes));
            if let Some(size) = of_auxv.or_else(|| kernel::page_size_of_smaps(&text("smaps")?)) {
                return Some(size);
            }
            evidence.add_process(&text("status").unwrap_or_default(), &text("statm").unwrap_or_default());
        }
        evidence.size().ok().flatten()
    }

    /// Returns the path of `relative`, such as `proc/meminfo`.
    pub fn path(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.0.join(relative)
    }

    /// Reads the whole text of a file. Bytes that are not UTF-8 are replaced. A file over its budget, or one of a
    /// process that does not answer, is malformed.
    pub fn text(&self, relative: impl AsRef<Path>) -> Reading<String> {
        let relative = relative.as_ref();
        let is_direct = relative.components().count() == 3;
        let bytes = match proc_file::budget_of_path(relative) {
            // This process itself holds no lock that it waits for.
            Some((pid, name, _))
                if self.is_host() && is_direct && proc_file::may_wait(name) && pid != std::process::id() =>
            {
                reader::read(pid, name)
            }
            _ => open(&self.path(relative)).and_then(|file| read(file, relative)),
        };
        match bytes {
            Ok(bytes) => Reading::Value(lossy(bytes)),
            Err(error) => outcome(&error),
        }
    }

    /// Reads a small file of each of these processes, in their order. On the live host a single child reads all of
    /// them.
    pub fn texts_of(&self, pids: &[u32], file: &str) -> Vec<Reading<String>> {
        // One process is waited for longer.
        if pids.len() < 2 || !self.is_host() || !proc_file::may_wait(file) {
            return pids.iter().map(|pid| self.text(format!("proc/{pid}/{file}"))).collect();
        }
        let mut answers: BTreeMap<u32, _> = reader::read_each(pids, file).into_iter().collect();
        let text = |pid: &u32| match answers.remove(pid) {
            Some(Ok(bytes)) => Reading::Value(lossy(bytes)),
            Some(Err(error)) => outcome(&error),
            None => Reading::Absent,
        };
        pids.iter().map(text).collect()
    }
}

/// Opens a file to read it, without blocking: a user may have put a FIFO in its place.
fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)
}

fn read(file: File, relative: &Path) -> io::Result<Vec<u8>> {
    if let Some((pid, name, _)) = proc_file::budget_of_path(relative) {
        return proc_file::read(file, pid, name);
    }
    proc_file::read_within(file, LONGEST_FILE)?.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
}

/// Converts an error to one of three outcomes. A process that has ended and a source that is off (PSI answers
/// `EOPNOTSUPP`) are absent. A file over its budget, one that does not answer, and an undocumented error are malformed.
pub fn outcome<T>(error: &io::Error) -> Reading<T> {
    const ABSENT: [i32; 5] = [libc::ENOENT, libc::ENOTDIR, libc::ESRCH, libc::EOPNOTSUPP, libc::ENODEV];
    match error.raw_os_error() {
        Some(code) if ABSENT.contains(&code) => Reading::Absent,
        Some(libc::EACCES | libc::EPERM) => Reading::Denied,
        _ if let Some(why) = error.get_ref().and_then(|why| why.downcast_ref::<Malformed>()) => {
            Reading::Malformed(why.clone())
        }
        _ if is_given_up(error) => {
            Reading::Malformed(Malformed::new(1, "a file within its budget that answers", &error.to_string()))
        }
        _ => Reading::Malformed(Malformed::new(1, "readable text", &error.to_string())),
    }
}

/// Writes a file of a test's tree, and makes the folders above it.
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends by panicking")]
pub(crate) fn put_file(tree: &Path, path: &str, text: &str) {
    let path = tree.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
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
    fn a_process_with_an_enormous_command_line_is_given_up_and_named() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("proc/812")).unwrap();
        let file = File::create(tree.path().join("proc/812/cmdline")).unwrap();
        file.set_len(20 << 20).unwrap();
        let Reading::Malformed(why) = Root::at(tree.path()).text("proc/812/cmdline") else { panic!("it is read") };
        assert!(why.to_string().contains("cmdline of process 812"), "{why}");
    }

    #[test]
    fn a_fifo_in_the_place_of_a_file_is_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};

        let tree = tempfile::tempdir().unwrap();
        mknodat(CWD, tree.path().join("pid"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(Root::at(tree.path()).text("pid"), Reading::Value(String::new()));
    }

    #[test]
    fn the_page_size_is_that_of_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        let missing = |root: &Root| root.page_size().unwrap_err().to_string();
        assert!(missing(&root).starts_with("proc/meminfo and proc/vmstat are missing"), "{}", missing(&root));
        put_file(tree.path(), "proc/meminfo", "MemTotal: 66895104 kB\nMemFree: 33447552 kB\n");
        assert!(missing(&root).starts_with("proc/vmstat is missing"), "{}", missing(&root));
        put_file(tree.path(), "proc/vmstat", "pgfault 7\n");
        assert!(missing(&root).contains("no line in common"), "{}", missing(&root));
        put_file(tree.path(), "proc/vmstat", "nr_free_pages 522618\n");
        assert_eq!(root.page_size(), Ok(65_536));
        put_file(tree.path(), "proc/vmstat", "nr_free_pages 5\n");
        assert_eq!(root.page_size(), Err(PageSizeError::Contradiction));
        assert_eq!(Root::host().page_size(), Ok(rustix::param::page_size() as u64));
    }

    #[test]
    fn the_size_of_a_huge_page_is_that_of_the_tree() {
        let tree = tempfile::tempdir().unwrap();
        let root = Root::at(tree.path());
        assert_eq!(root.shown_huge_page_bytes(), None);
        for (text, bytes) in [("33554432\n", Some(32 << 20)), ("0\n", None), ("much\n", None)] {
            put_file(tree.path(), HUGE_PAGE_SIZE, text);
            assert_eq!(root.shown_huge_page_bytes(), bytes, "{text}");
        }
    }

    #[test]
    fn a_tree_without_vmstat_has_the_page_size_of_its_processes_or_its_processor() {
        let auxv: Vec<u8> = [6_u64, 16_384].into_iter().flat_map(u64::to_le_bytes).collect();
        for (file, bytes, expected) in [
            ("proc/7/auxv", auxv.as_slice(), 16_384),
            ("proc/7/smaps", b"1000-2000 rw-p 0 0:0 0\nKernelPageSize: 64 kB\n", 65_536),
            ("proc/7/status", b"VmSize: 6400 kB\nVmRSS: 640 kB\n", 65_536),
            ("proc/cpuinfo", b"vendor_id : GenuineIntel\n", 4096),
        ] {
            let tree = tempfile::tempdir().unwrap();
            put_file(tree.path(), "proc/meminfo", "MemTotal: 100 kB\nMemFree: 40 kB\n");
            put_file(tree.path(), "proc/7/statm", "100 10 3 1 0 5 0\n");
            put_file(tree.path(), file, "");
            std::fs::write(tree.path().join(file), bytes).unwrap();
            assert_eq!(Root::at(tree.path()).page_size(), Ok(expected), "{file}");
        }
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
