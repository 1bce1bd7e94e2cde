//! A process that is read at each tick, because it has mergeable memory or is a hypervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ksmith_core::kernel::{CommandLine, KsmStat, PidStat};
use ksmith_core::reading::{Malformed, Reading};
use ksmith_core::sample::{Process, ProcessId};

use super::figures::Figures;
use super::proc_dir::{ProcDir, ProcessDir, text};
use super::scratch::{End, Scratch};
use crate::hypervisor::GuestName;
use crate::root::outcome;

/// A watched process with its id and the facts that do not change from tick to tick.
pub(super) struct Watched {
    pub(super) id: ProcessId,
    comm: String,
    name: Arc<str>,
    is_vm: bool,
    /// Whether its mapping flags show mergeable memory, which the kernel's figures may not show yet.
    is_marked: bool,
    /// Whether the program may have changed since the name was read.
    is_renamed: bool,
    files: Option<Files>,
    /// KSM figures of the newest full reading.
    figures: Option<KsmStat>,
    /// Outcome of the newest reading.
    last: Option<Process>,
}

/// Descriptors kept for one process. They always refer to this process: after its end reads fail (`ESRCH`), even
/// if its PID is reused.
struct Files {
    directory: ProcessDir,
    stat: OwnedFd,
    figures: Figures,
}

impl Files {
    /// The most descriptors kept for one process.
    const COUNT: u64 = 2 + Figures::DESCRIPTORS;

    fn open(directory: ProcessDir) -> io::Result<Self> {
        let stat = directory.open_file("stat")?;
        Ok(Self { directory, stat, figures: Figures::default() })
    }
}

/// The outcome of reading a watched process.
#[derive(Debug)]
pub(super) enum Seen {
    /// The process runs and belongs in the sample.
    Here(Process),
    /// The process runs, but has no mergeable memory any more and is no hypervisor.
    Uninvolved,
    /// The process has exited.
    Gone,
    /// Its figures are not readable.
    Denied,
    /// One of its files is malformed.
    Malformed(Malformed),
}

impl<T> From<Reading<T>> for Seen {
    /// Converts a reading without a value.
    fn from(reading: Reading<T>) -> Self {
        match reading {
            Reading::Value(_) | Reading::Absent => Self::Gone,
            Reading::Denied => Self::Denied,
            Reading::Malformed(why) => Self::Malformed(why),
        }
    }
}

impl Watched {
    /// Opens the process that has this PID now.
    pub(super) fn open(proc: &ProcDir, pid: u32, is_marked: bool, scratch: &mut Scratch) -> Reading<Self> {
        let directory = match proc.process(pid) {
            Ok(directory) => directory,
            Err(error) => return outcome(&error),
        };
        let stat = directory.read("stat", scratch).and_then(PidStat::parse);
        stat.map(|stat| {
            let id = ProcessId { pid, start_ticks: stat.start_ticks };
            let GuestName { name, is_vm } = GuestName::of(&stat.comm, &command_line(&directory, scratch));
            let name = name.into();
            Self {
                id,
                comm: stat.comm,
                name,
                is_vm,
                is_marked,
                is_renamed: false,
                files: None,
                figures: None,
                last: None,
            }
        })
    }

    /// Whether the program is a hypervisor, by its newest name.
    pub(super) fn is_vm(&self) -> bool {
        self.is_vm
    }

    /// Keeps its files open from now on. Returns the number of descriptors used, or 0 on failure.
    pub(super) fn keep_open(&mut self, proc: &ProcDir) -> u64 {
        let files = proc.process(self.id.pid).and_then(Files::open).ok();
        self.files = files;
        self.descriptors()
    }

    /// Number of descriptors that it uses.
    pub(super) fn descriptors(&self) -> u64 {
        if self.files.is_some() { Files::COUNT } else { 0 }
    }

    /// Number of descriptors that [`keep_open`](Self::keep_open) uses.
    pub(super) const fn descriptors_wanted() -> u64 {
        Files::COUNT
    }

    /// The newest reading, unless a change is known or likely. A hypervisor without mergeable memory will soon
    /// get some.
    pub(super) fn as_before(&self) -> Option<Process> {
        self.last.clone().filter(|last| !self.is_renamed && last.ksm.is_involved())
    }

    /// Renews the name at the next reading, because the process executed another program.
    pub(super) fn rename(&mut self) {
        self.is_renamed = true;
    }

    /// Reads the process. Figures that can't have changed are not read again, because since 6.14 the kernel walks
    /// all mappings for them. Figures of a process without mergeable memory are always read, because a new one
    /// may get some.
    pub(super) fn read(
        &mut self,
        proc: &ProcDir,
        page_size: u64,
        stood_still: bool,
        scratch: &mut Scratch,
    ) -> Seen {
        self.figures = self.figures.filter(|figures| stood_still && figures.is_involved());
        let seen = match self.files.take() {
            Some(mut files) => {
                let seen = self.read_from(&mut files, page_size, scratch);
                self.files = Some(files);
                seen
            }
            None => match proc.process(self.id.pid).and_then(Files::open) {
                Ok(mut files) => self.read_from(&mut files, page_size, scratch),
                Err(error) => outcome::<()>(&error).into(),
            },
        };
        self.last = if let Seen::Here(process) = &seen { Some(process.clone()) } else { None };
        seen
    }

    fn read_from(&mut self, files: &mut Files, page_size: u64, scratch: &mut Scratch) -> Seen {
        let stat = match text(Ok(&files.stat), scratch).and_then(PidStat::parse) {
            Reading::Value(stat) => stat,
            other => return other.into(),
        };
        if stat.start_ticks != self.id.start_ticks || stat.is_zombie {
            return Seen::Gone;
        }
        let directory = &files.directory;
        let mut ksm = match self.figures {
            Some(figures) => figures,
            None => match files.figures.read(|name| directory.open_file(name), scratch) {
                Reading::Value(Some(figures)) => *self.figures.insert(figures),
                other => return other.into(),
            },
        };
        if self.is_marked {
            ksm.mergeable.get_or_insert(true);
        }
        if self.is_renamed || stat.comm != self.comm {
            self.is_renamed = false;
            let named = GuestName::of(&stat.comm, &command_line(directory, scratch));
            (self.comm, self.name, self.is_vm) = (stat.comm, named.name.into(), named.is_vm);
        }
        if !self.is_vm && !ksm.is_involved() {
            return Seen::Uninvolved;
        }
        Seen::Here(Process {
            id: self.id,
            name: Arc::clone(&self.name),
            is_vm: self.is_vm,
            rss_bytes: stat.rss_pages.saturating_mul(page_size),
            cpu_ticks: stat.cpu_ticks,
            minor_faults: stat.minor_faults,
            ksm,
        })
    }
}

/// The command line, or an empty one, with which a name can still be made.
fn command_line(directory: &ProcessDir, scratch: &mut Scratch) -> CommandLine {
    let file = directory.open_file("cmdline");
    match file.and_then(|file| scratch.fill(file, End::ShortRead)) {
        Ok(()) => CommandLine::parse(scratch.bytes()),
        Err(_) => CommandLine::default(),
    }
}
