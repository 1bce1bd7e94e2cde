//! Budgets for files of other processes under `/proc`, and the list of those that may block the reader.
//!
//! A process chooses the length of its command line and the number of its mappings. So each file has a budget. A
//! process that exceeds one is given up, with an error that names the process, the file and the budget. Files that take
//! a lock of the process are read by a [`crate::reader`].

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum mappings of one process. The kernel's default limit is 65,530 (`vm.max_map_count`).
pub const MAPPINGS: u64 = 1 << 17;

/// Maximum arguments of one process. Each takes some 50 bytes here, however short it is.
pub const ARGUMENTS: usize = 8192;

/// Maximum open files of one process that are checked.
pub const DESCRIPTORS: u64 = 1 << 16;

/// Maximum address space of one process that is walked, in bytes. The page map has 8 bytes for each 4 KiB.
pub const ADDRESSES: u64 = 64 << 40;

/// An error: a file or count of a process exceeds its budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of process {pid} exceeds the budget of {most} {unit}")]
pub struct OverBudget {
    /// The PID of the process.
    pub pid: u32,
    /// The file, or what is counted in it.
    pub what: String,
    /// The budget that is exceeded.
    pub most: u64,
    /// Unit of the budget.
    pub unit: &'static str,
}

impl OverBudget {
    /// Creates the error for a process with more of `what` than `most`.
    pub fn new(pid: u32, what: &str, most: u64, unit: &'static str) -> Self {
        Self { pid, what: what.to_owned(), most, unit }
    }

    /// Returns the exceeded budget behind an I/O error, if that is its cause.
    pub fn find_in(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// An error: a file of a process blocks its readers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file} of process {pid} does not answer")]
pub struct UnansweredRead {
    /// The PID of the process.
    pub pid: u32,
    /// The file that does not answer.
    pub file: String,
}

impl UnansweredRead {
    /// Creates the error for a process that blocks reads of `file`.
    pub fn new(pid: u32, file: &str) -> Self {
        Self { pid, file: file.to_owned() }
    }

    /// Returns the process and file behind an I/O error, if an unanswered read is its cause.
    pub fn find_in(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<UnansweredRead> for io::Error {
    fn from(unanswered: UnansweredRead) -> Self {
        Self::new(io::ErrorKind::TimedOut, unanswered)
    }
}

/// Returns true if an error means that the process is given up: it exceeds a budget, or does not answer.
pub fn is_given_up(error: &io::Error) -> bool {
    OverBudget::find_in(error).is_some() || UnansweredRead::find_in(error).is_some()
}

/// Returns true if a read of this file of a process may wait for a lock that the process holds: that of its memory map, or
/// the one that it holds while it executes a program.
pub fn may_wait(name: &str) -> bool {
    const EXAMINED: [&str; 8] = ["stat", "io", "exe", "cwd", "root", "ns/user", "syscall", "stack"];
    waits_for_memory(name) || EXAMINED.contains(&name)
}

/// Returns true if a read of this file of a process may wait for the lock of its memory map.
pub fn waits_for_memory(name: &str) -> bool {
    const OF_MEMORY: [&str; 10] =
        ["ksm_stat", "cmdline", "environ", "maps", "smaps", "smaps_rollup", "numa_maps", "pagemap", "mem", "auxv"];
    OF_MEMORY.contains(&name)
}

impl From<OverBudget> for io::Error {
    fn from(over: OverBudget) -> Self {
        Self::new(io::ErrorKind::FileTooLarge, over)
    }
}

/// Returns the budget of a file of `/proc/PID` in bytes, by its name.
pub fn budget(name: &str) -> u64 {
    match name {
        // A hypervisor's has some kilobytes. A process may point to as much as it likes (`PR_SET_MM_ARG_END`).
        "cmdline" | "environ" => 256 << 10,
        // Some 100 bytes for each mapping.
        "maps" => 16 << 20,
        // Some 700 bytes for each mapping: 180,000 mappings. They are never in memory as a whole.
        "smaps" | "numa_maps" => 128 << 20,
        // Files of one record, and `status`, which lists a process's groups: 65,536 at most.
        _ => 1 << 20,
    }
}

/// Returns PID, name and budget in bytes of a file under a root, if it is another process's: `proc/812/cmdline`.
pub fn budget_of_path(path: &Path) -> Option<(u32, &str, u64)> {
    let mut parts = path.components().map(|part| part.as_os_str().to_str());
    let pid = (parts.next()? == Some("proc")).then(|| parts.next())???.parse().ok()?;
    let name = parts.next_back()??;
    Some((pid, name, budget(name)))
}

/// Reads file `name` of a process, at most as much as its budget.
///
/// # Errors
/// The file can't be read, or is longer: see [`OverBudget::find_in`].
pub fn read(file: File, pid: u32, name: &str) -> io::Result<Vec<u8>> {
    let most = budget(name);
    let bytes = read_within(file, most)?.ok_or_else(|| OverBudget::new(pid, name, most, "bytes"))?;
    check_items(&bytes, pid, name)?;
    Ok(bytes)
}

/// Checks that a file's text has no more items than its budget.
///
/// # Errors
/// It has more.
pub fn check_items(bytes: &[u8], pid: u32, name: &str) -> Result<(), OverBudget> {
    let is_over = name == "cmdline" && bytes.iter().filter(|byte| **byte == 0).nth(ARGUMENTS).is_some();
    if is_over { Err(OverBudget::new(pid, name, ARGUMENTS as u64, "arguments")) } else { Ok(()) }
}

/// Reads all of `source`; `None` if that is more than `most` bytes.
///
/// # Errors
/// Those of the source.
pub fn read_within(source: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    // A file under /proc does not tell its length, and most are shorter than this: one read has them, and another the end.
    let mut bytes = Vec::with_capacity(4096);
    source.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// Converts bytes to text, without a copy if they are UTF-8 already. Invalid bytes are replaced.
pub fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An endless reader that counts the bytes taken from it.
    struct EndlessReader(u64);

    impl Read for &mut EndlessReader {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            self.0 += buffer.len() as u64;
            Ok(buffer.len())
        }
    }

    #[test]
    fn an_endless_file_costs_its_budget_and_one_byte() {
        let mut endless = EndlessReader(0);
        assert_eq!(read_within(&mut endless, 2 << 20).unwrap(), None);
        assert_eq!(endless.0, (2 << 20) + 1);
        assert_eq!(read_within(&b"four"[..], 4).unwrap().as_deref(), Some(&b"four"[..]));
    }

    #[test]
    fn the_error_names_process_file_and_budget() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(20 << 20).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        let error = read(file, 812, "cmdline").unwrap_err();
        assert_eq!(error.to_string(), "cmdline of process 812 exceeds the budget of 262144 bytes");
        assert_eq!(OverBudget::find_in(&error).unwrap().pid, 812);
        assert!(OverBudget::find_in(&io::ErrorKind::NotFound.into()).is_none());
    }

    #[test]
    fn a_command_line_of_nothing_but_ends_is_over_its_budget() {
        let read = |count: usize| {
            let mut file = tempfile::tempfile().unwrap();
            io::Write::write_all(&mut file, &vec![0; count]).unwrap();
            io::Seek::rewind(&mut file).unwrap();
            read(file, 812, "cmdline")
        };
        assert_eq!(read(ARGUMENTS).unwrap().len(), ARGUMENTS);
        let error = read(ARGUMENTS + 1).unwrap_err();
        assert_eq!(error.to_string(), "cmdline of process 812 exceeds the budget of 8192 arguments");
        assert!(is_given_up(&error));
    }

    #[test]
    fn a_process_that_does_not_answer_is_named() {
        let error = io::Error::from(UnansweredRead::new(812, "smaps"));
        assert!(error.to_string() == "smaps of process 812 does not answer", "{error}");
        assert!(is_given_up(&error) && !is_given_up(&io::ErrorKind::TimedOut.into()));
        assert_eq!((UnansweredRead::find_in(&error).unwrap().pid, OverBudget::find_in(&error)), (812, None));
    }

    #[test]
    fn only_files_of_processes_have_these_budgets() {
        let of = |path| budget_of_path(Path::new(path));
        assert_eq!(of("proc/812/cmdline"), Some((812, "cmdline", 256 << 10)));
        assert_eq!(of("proc/812/task/9/comm"), Some((812, "comm", 1 << 20)));
        assert_eq!([of("proc/meminfo"), of("proc/812"), of("sys/kernel/mm/ksm/run"), of("")], [None; 4]);
    }
}
