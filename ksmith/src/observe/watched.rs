//! One process that is read each tick: because it has mergeable memory, or because it is a hypervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ksmith_core::guest_name::GuestName;
use ksmith_core::kernel::{CommandLine, KsmStat, PidStat};
use ksmith_core::reading::{Malformed, Reading};
use ksmith_core::sample::{Process, ProcessId};

use super::figures::Figures;
use super::proc_dir::{ProcDir, ProcessDir, text};
use super::scratch::{End, Scratch};
use crate::root::outcome;

/// A process by its id, with what does not change from tick to tick.
pub(super) struct Watched {
    pub(super) id: ProcessId,
    comm: String,
    name: Arc<str>,
    is_vm: bool,
    /// Its mappings' flags say that memory is mergeable; the kernel's figures may not say so yet.
    is_marked: bool,
    /// The program may have changed since the name was made.
    is_renamed: bool,
    files: Option<Files>,
    /// KSM's figures as last read.
    figures: Option<KsmStat>,
    /// What the last reading told.
    last: Option<Process>,
}

/// Descriptors kept for one process. They are that process's for good: when it is gone reads fail (`ESRCH`), also
/// when its PID is in use again.
struct Files {
    directory: ProcessDir,
    stat: OwnedFd,
    figures: Figures,
}

impl Files {
    /// How many descriptors that is at most.
    const COUNT: u64 = 2 + Figures::DESCRIPTORS;

    fn open(directory: ProcessDir) -> io::Result<Self> {
        let stat = directory.open_file("stat")?;
        Ok(Self { directory, stat, figures: Figures::default() })
    }
}

/// What came of reading a watched process.
#[derive(Debug)]
pub(super) enum Seen {
    /// It is there and belongs into the sample.
    Here(Process),
    /// It is there, has no mergeable memory any more and is no hypervisor.
    Uninvolved,
    /// It has exited.
    Gone,
    /// Its figures are not for us.
    Denied,
    /// Its files say something that they should not.
    Malformed(Malformed),
}

impl<T> From<Reading<T>> for Seen {
    /// For readings without a value.
    fn from(reading: Reading<T>) -> Self {
        match reading {
            Reading::Value(_) | Reading::Absent => Self::Gone,
            Reading::Denied => Self::Denied,
            Reading::Malformed(why) => Self::Malformed(why),
        }
    }
}

impl Watched {
    /// Takes up the process that has this PID now.
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

    /// Whether the program is a hypervisor, as of when its name was last made.
    pub(super) fn is_vm(&self) -> bool {
        self.is_vm
    }

    /// Keeps its files open from now on. Returns how many descriptors that takes: 0 where it failed.
    pub(super) fn keep_open(&mut self, proc: &ProcDir) -> u64 {
        let files = proc.process(self.id.pid).and_then(Files::open).ok();
        self.files = files;
        self.descriptors()
    }

    /// Descriptors in use for it.
    pub(super) fn descriptors(&self) -> u64 {
        if self.files.is_some() { Files::COUNT } else { 0 }
    }

    /// How many descriptors [`keep_open`](Self::keep_open) takes.
    pub(super) const fn descriptors_wanted() -> u64 {
        Files::COUNT
    }

    /// What the last reading told, if nothing is known to have changed since. A hypervisor without mergeable memory is about
    /// to get some.
    pub(super) fn as_before(&self) -> Option<Process> {
        self.last.clone().filter(|last| !self.is_renamed && last.ksm.is_involved())
    }

    /// Makes the name anew at the next reading: the process executed another program.
    pub(super) fn rename(&mut self) {
        self.is_renamed = true;
    }

    /// Reads it. Where KSM's figures can't have changed, those read last will do: from 6.14 on the kernel walks all
    /// mappings for them. Those of a process without mergeable memory may always: it is about to get some, if it is new.
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

/// The command line, or an empty one: a name can do without.
fn command_line(directory: &ProcessDir, scratch: &mut Scratch) -> CommandLine {
    let file = directory.open_file("cmdline");
    match file.and_then(|file| scratch.fill(file, End::ShortRead)) {
        Ok(()) => CommandLine::parse(scratch.bytes()),
        Err(_) => CommandLine::default(),
    }
}
