//! Files of other processes under `/proc`, each read within a budget.
//!
//! A process chooses how long its command line is and how many mappings it has. So each file has a budget. A process
//! that exceeds one is given up, with an error that names the process, the file and the budget.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Mappings of one process that are looked at. The kernel's default limit is 65,530 (`vm.max_map_count`).
pub const MAPPINGS: u64 = 1 << 18;

/// Open files of one process that are looked at.
pub const DESCRIPTORS: u64 = 1 << 16;

/// Bytes of address space that are walked in one process. The page map has 8 bytes for each 4 KiB.
pub const ADDRESSES: u64 = 64 << 40;

/// What a process has more of than is read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of process {pid} exceeds the budget of {most} {unit}")]
pub struct OverBudget {
    /// The PID of the process.
    pub pid: u32,
    /// The file, or what is counted in it.
    pub what: String,
    /// The budget that is exceeded.
    pub most: u64,
    /// What the budget counts.
    pub unit: &'static str,
}

impl OverBudget {
    /// The process has more of `what` than `most`.
    pub fn new(pid: u32, what: &str, most: u64, unit: &'static str) -> Self {
        Self { pid, what: what.to_owned(), most, unit }
    }

    /// The budget that an error is about, if it is about one.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<OverBudget> for io::Error {
    fn from(over: OverBudget) -> Self {
        Self::new(io::ErrorKind::FileTooLarge, over)
    }
}

/// The budget in bytes of a file of `/proc/PID`, by its name.
pub fn budget(name: &str) -> u64 {
    match name {
        // The kernel passes on 2 MiB of arguments and environment at the default stack limit. A process may then
        // point to as much as it likes (`PR_SET_MM_ARG_END`).
        "cmdline" | "environ" => 2 << 20,
        // Some 100 bytes for each mapping.
        "maps" => 32 << 20,
        // Some 700 bytes for each mapping: 180,000 mappings.
        "smaps" | "numa_maps" => 128 << 20,
        // Files of one record, and `status`, which lists a process's groups: 65,536 at most.
        _ => 1 << 20,
    }
}

/// The budget in bytes of a file by its path under a root, if it is one of another process's: `proc/812/cmdline`.
pub fn budget_of_path(path: &Path) -> Option<(u32, &str, u64)> {
    let mut parts = path.components().map(|part| part.as_os_str().to_str());
    let pid = (parts.next()? == Some("proc")).then(|| parts.next())???.parse().ok()?;
    let name = parts.next_back()??;
    Some((pid, name, budget(name)))
}

/// Reads file `name` of a process, at most as much as its budget.
///
/// # Errors
/// The file can't be read, or is longer: see [`OverBudget::of`].
pub fn read(file: File, pid: u32, name: &str) -> io::Result<Vec<u8>> {
    let most = budget(name);
    read_within(file, most)?.ok_or_else(|| OverBudget::new(pid, name, most, "bytes").into())
}

/// Reads all of `source`, or `None` if that is more than `most` bytes.
///
/// # Errors
/// Those of the source.
pub fn read_within(source: impl Read, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    source.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= most).then_some(bytes))
}

/// The bytes as text, without a copy where they are UTF-8 already. Other bytes are replaced.
pub fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Whether a process holds files of VFIO: then the memory of a guest is locked in place for the device. `fds` is its
/// directory `/proc/PID/fd`. `None` if that can't be told.
pub fn holds_vfio(fds: &Path) -> Option<bool> {
    let mut entries = std::fs::read_dir(fds).ok()?.flatten();
    let targets =
        entries.by_ref().take(DESCRIPTORS as usize).filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let found = targets
        .map(|target| target.to_string_lossy().into_owned())
        .any(|target| target.starts_with("/dev/vfio/") || target.contains("[vfio") || target.contains("kvm-vfio"));
    if !found && entries.next().is_some() { None } else { Some(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Endless text that counts what is taken of it.
    struct Endless(u64);

    impl Read for &mut Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'x');
            self.0 += buffer.len() as u64;
            Ok(buffer.len())
        }
    }

    #[test]
    fn an_endless_file_costs_its_budget_and_one_byte() {
        let mut endless = Endless(0);
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
        assert_eq!(error.to_string(), "cmdline of process 812 exceeds the budget of 2097152 bytes");
        assert_eq!(OverBudget::of(&error).unwrap().pid, 812);
        assert!(OverBudget::of(&io::ErrorKind::NotFound.into()).is_none());
    }

    #[test]
    fn only_files_of_processes_have_these_budgets() {
        let of = |path| budget_of_path(Path::new(path));
        assert_eq!(of("proc/812/cmdline"), Some((812, "cmdline", 2 << 20)));
        assert_eq!(of("proc/812/task/9/comm"), Some((812, "comm", 1 << 20)));
        assert_eq!([of("proc/meminfo"), of("proc/812"), of("sys/kernel/mm/ksm/run"), of("")], [None; 4]);
    }
}
