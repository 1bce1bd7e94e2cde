//! The process to examine, by PID or by name, and its files.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use ksmith_core::kernel::{CommandLine, PidStat};
use ksmith_core::reading::Reading;
use rustix::fs::{Mode, OFlags, open, openat};

use crate::hypervisor::GuestName;
use crate::memory::error::right;
use crate::memory::vfio::holds_vfio;
use crate::proc_file;
use crate::reader;
use crate::root::{Root, outcome};

/// The reason why a process can't be examined.
#[derive(Debug, thiserror::Error)]
pub enum ExaminationError {
    /// No process has this PID or name.
    #[error("no process has the PID or the guest name {0:?}; `ksmith guests` lists the guests")]
    Unknown(String),
    /// A kernel thread.
    #[error("process {0} is a kernel thread and has no memory of its own")]
    KernelThread(u32),
    /// This user may not read its mappings.
    #[error("the mappings of process {0} may not be read: {right}", right = right("run ksmith as root, or as the process's user"))]
    Denied(u32),
    /// A captured tree lacks one of its files.
    #[error(
        "the captured tree has no proc/{pid}/{file}, which the examination needs: capture it, or name another process"
    )]
    Uncaptured {
        /// The process.
        pid: u32,
        /// The file that is missing.
        file: String,
    },
    /// The process has ended meanwhile.
    #[error("process {0} has ended")]
    Exited(u32),
    /// A file of the process is malformed.
    #[error("process {pid}: {why}")]
    Malformed {
        /// PID of the process.
        pid: u32,
        /// The file, and the fault in it.
        why: String,
    },
}

/// A process to examine, held by its open /proc directory, so that a reused PID is never taken for it.
#[derive(Debug)]
pub struct ExaminedProcess {
    /// The process's PID.
    pub pid: u32,
    /// Its guest's name, or its program's.
    pub name: String,
    /// Clock ticks between boot and its start.
    pub start_ticks: u64,
    directory: OwnedFd,
    is_on_host: bool,
}

impl ExaminedProcess {
    fn open(root: &Root, pid: u32) -> Result<Self, ExaminationError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(root.path(format!("proc/{pid}")), flags, Mode::empty())
            .map_err(|_| ExaminationError::Unknown(pid.to_string()))?;
        let mut patient = Self { pid, name: String::new(), start_ticks: 0, directory, is_on_host: root.is_host() };
        let stat = match patient.text("stat").and_then(|text| PidStat::parse(&text)) {
            Reading::Value(stat) => stat,
            other => return Err(patient.reading_error("stat", &other)),
        };
        if stat.is_kernel_thread {
            return Err(ExaminationError::KernelThread(pid));
        }
        let line = patient.text("cmdline").map(|text| CommandLine::parse(text.as_bytes()));
        let named = GuestName::from_command_line(&stat.comm, line.value().unwrap_or(&CommandLine::default()));
        patient.name = named.name;
        patient.start_ticks = stat.start_ticks;
        Ok(patient)
    }

    /// Reads the text of one of its files.
    pub fn text(&self, name: &str) -> Reading<String> {
        let bytes = match self.is_on_host && proc_file::may_wait(name) {
            // The directory shows that what was read by PID is this process's.
            true => reader::read(self.pid, name).and_then(|bytes| self.file("stat").map(|_| bytes)),
            false => self.file(name).and_then(|file| proc_file::read(file, self.pid, name)),
        };
        match bytes {
            Ok(bytes) => Reading::Value(proc_file::lossy(bytes)),
            Err(error) => outcome(&error),
        }
    }

    /// Opens one of its files.
    ///
    /// # Errors
    /// The process is gone, or the file is not for us.
    pub fn file(&self, name: &str) -> io::Result<File> {
        Ok(File::from(openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Returns true if the process holds VFIO files, so that its memory is pinned; `None` if its descriptors can't be
    /// read.
    pub fn drives_device(&self, root: &Root) -> Option<bool> {
        holds_vfio(root, self.pid)
    }

    /// Returns the error for a file of this process that could not be read.
    pub fn reading_error<T>(&self, file: &str, reading: &Reading<T>) -> ExaminationError {
        match reading {
            Reading::Denied => ExaminationError::Denied(self.pid),
            Reading::Malformed(why) => ExaminationError::Malformed { pid: self.pid, why: format!("{file}: {why}") },
            Reading::Absent if !self.is_on_host => {
                ExaminationError::Uncaptured { pid: self.pid, file: file.to_owned() }
            }
            Reading::Absent | Reading::Value(_) => ExaminationError::Exited(self.pid),
        }
    }
}

/// Finds the processes that `name` means: one by its PID, or all of a guest or a program of that name.
///
/// # Errors
/// There is none, or it can't be examined.
pub fn find(root: &Root, name: &str) -> Result<Vec<ExaminedProcess>, ExaminationError> {
    if let Ok(pid) = name.parse() {
        match ExaminedProcess::open(root, pid) {
            // A guest may be called by a number.
            Err(ExaminationError::Unknown(_)) => {}
            other => return other.map(|patient| vec![patient]),
        }
    }
    let entries = std::fs::read_dir(root.path("proc")).into_iter().flatten().flatten();
    let own = std::process::id();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|&pid| pid != own);
    let named = pids.filter_map(|pid| ExaminedProcess::open(root, pid).ok()).filter(|patient| patient.name == name);
    let mut named: Vec<_> = named.collect();
    named.sort_by_key(|patient| patient.pid);
    if named.is_empty() { Err(ExaminationError::Unknown(name.to_owned())) } else { Ok(named) }
}
