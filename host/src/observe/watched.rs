//! A process that is read at each tick, because it has mergeable memory or is a hypervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ksmith_core::kernel::{CommandLine, KsmStat, PidStat};
use ksmith_core::reading::{Malformed, Reading};
use ksmith_core::sample::{GivenUp, ProcessId, ProcessSample};

use super::asked::{FileAnswer, SampleReader};
use super::figures::ProcessFigures;
use super::proc_dir::{ProcDir, ProcessDir, text};
use super::scratch::ReadBuffer;
use crate::hypervisor::GuestName;
use crate::proc_file::{UnansweredRead, is_given_up};
use crate::root::outcome;

/// A watched process with its id and the properties that do not change from tick to tick.
pub(super) struct WatchedProcess {
    pub(super) id: ProcessId,
    comm: String,
    name: Arc<str>,
    is_vm: bool,
    /// True if its mapping flags show mergeable memory, which the kernel's figures may not show yet.
    is_marked: bool,
    /// True if the name is stale: the program may have changed since, or the name was not read.
    is_renamed: bool,
    /// The reason why its command line is unknown; `None` if it is known.
    nameless: Option<String>,
    files: Option<WatchedFiles>,
    /// KSM figures of the newest full reading.
    figures: Option<KsmStat>,
    /// The newest successful reading.
    last: Option<ProcessSample>,
    /// True if the newest reading failed.
    is_silent: bool,
}

/// Descriptors kept for one process. They always refer to this process: after its end reads fail (`ESRCH`), even
/// if its PID is reused.
struct WatchedFiles {
    directory: ProcessDir,
    stat: OwnedFd,
    figures: ProcessFigures,
}

impl WatchedFiles {
    /// The number of descriptors kept for one process.
    const COUNT: u64 = 2;

    fn open(directory: ProcessDir) -> io::Result<Self> {
        let stat = directory.open_file("stat")?;
        Ok(Self { directory, stat, figures: ProcessFigures::default() })
    }
}

/// The outcome of reading a watched process.
#[derive(Debug)]
pub(super) enum WatchedReading {
    /// The process runs and belongs in the sample.
    Here(ProcessSample),
    /// The process runs, but has no mergeable memory and is no hypervisor.
    Uninvolved,
    /// The process has exited.
    Gone,
    /// Its figures are not readable.
    Denied,
    /// The process did not answer. Holds the last reading, if any.
    Silent(Option<ProcessSample>, UnansweredRead),
    /// The sample's time ended before its turn. Holds the last reading, if any.
    Late(Option<ProcessSample>),
    /// One of its files is malformed.
    Malformed(Malformed),
}

impl<T> From<Reading<T>> for WatchedReading {
    /// Converts a reading without a value.
    fn from(reading: Reading<T>) -> Self {
        match reading {
            Reading::Value(_) | Reading::Absent => Self::Gone,
            Reading::Denied => Self::Denied,
            Reading::Malformed(why) => Self::Malformed(why),
        }
    }
}

impl WatchedProcess {
    /// Opens the current process of this PID.
    pub(super) fn open(
        proc: &ProcDir,
        pid: u32,
        is_marked: bool,
        asked: &mut SampleReader,
        scratch: &mut ReadBuffer,
    ) -> Reading<Self> {
        let directory = match proc.process(pid) {
            Ok(directory) => directory,
            Err(error) => return outcome(&error),
        };
        let stat = directory.read("stat", scratch).and_then(PidStat::parse);
        stat.map(|stat| {
            let id = ProcessId { pid, start_ticks: stat.start_ticks };
            let told = command_line(proc, pid, asked);
            let is_renamed = told.is_none();
            let (line, nameless) = told.unwrap_or_default();
            let GuestName { name, is_vm, .. } = GuestName::from_command_line(&stat.comm, &line);
            let name = name.into();
            Self {
                id,
                comm: stat.comm,
                name,
                is_vm,
                is_marked,
                is_renamed,
                nameless,
                files: None,
                figures: None,
                last: None,
                is_silent: false,
            }
        })
    }

    /// Returns true if the program is a hypervisor, by its newest name.
    pub(super) fn is_vm(&self) -> bool {
        self.is_vm
    }

    /// Returns true if it may merge, or if that is not known.
    pub(super) fn may_merge(&self) -> bool {
        self.last.as_ref().is_none_or(ProcessSample::may_merge)
    }

    /// Opens its files and keeps them open. Returns the number of descriptors used, or 0 on failure.
    pub(super) fn keep_open(&mut self, proc: &ProcDir) -> u64 {
        let files = proc.process(self.id.pid).and_then(WatchedFiles::open).ok();
        self.files = files;
        self.descriptors()
    }

    /// Returns the number of descriptors that it uses.
    pub(super) fn descriptors(&self) -> u64 {
        if self.files.is_some() { WatchedFiles::COUNT } else { 0 }
    }

    /// Returns the number of descriptors that [`keep_open`](Self::keep_open) uses.
    pub(super) const fn descriptors_wanted() -> u64 {
        WatchedFiles::COUNT
    }

    /// Returns the newest reading, unless a change is known or likely. A hypervisor without mergeable memory will soon
    /// get some.
    pub(super) fn as_before(&self) -> Option<ProcessSample> {
        self.last.clone().filter(|last| !self.is_renamed && !self.is_silent && last.ksm.is_involved())
    }

    /// Marks the name as stale, because the process executed another program. The next reading renews it.
    pub(super) fn rename(&mut self) {
        self.is_renamed = true;
    }

    /// Returns true if its command line has yet to be read.
    pub(super) fn is_unnamed(&self) -> bool {
        self.is_renamed
    }

    /// Returns it as given up, with the reason, if its command line is unknown.
    pub(super) fn given_up(&self) -> Option<GivenUp> {
        let why = self.nameless.clone()?;
        Some(GivenUp::new(self.id.pid, Arc::clone(&self.name), why))
    }

    /// Returns its name for display.
    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns true if the next [`read`](Self::read) needs new figures. `stood_still` is true if ksmd did nothing
    /// meanwhile.
    pub(super) fn wants_figures(&self, stood_still: bool) -> bool {
        !self.figures.is_some_and(|figures| stood_still && figures.is_involved())
    }

    /// Reads the process. Figures that can't have changed are not read again, because since 6.14 the kernel walks all
    /// mappings for them. Figures of a process without mergeable memory are always read, because a new one may get
    /// some. `told` is the outcome of reading `ksm_stat`, which happens before, so that the descriptors show if it is
    /// this process's. With `None` the figures of the last reading hold.
    pub(super) fn read(
        &mut self,
        proc: &ProcDir,
        page_size: u64,
        told: Option<FileAnswer>,
        asked: &mut SampleReader,
        scratch: &mut ReadBuffer,
    ) -> WatchedReading {
        let seen = match self.files.take() {
            Some(mut files) => {
                let seen = self.read_from(&mut files, proc, page_size, told, asked, scratch);
                self.files = Some(files);
                seen
            }
            None => match proc.process(self.id.pid).and_then(WatchedFiles::open) {
                Ok(mut files) => self.read_from(&mut files, proc, page_size, told, asked, scratch),
                Err(error) => outcome::<()>(&error).into(),
            },
        };
        self.is_silent = matches!(seen, WatchedReading::Silent(..) | WatchedReading::Late(_));
        match &seen {
            WatchedReading::Here(process) => self.last = Some(process.clone()),
            WatchedReading::Silent(..) | WatchedReading::Late(_) => {}
            _ => self.last = None,
        }
        seen
    }

    /// Returns the last reading of a process that can't be read now, with unknown mergeability.
    fn last_known(&self) -> Option<ProcessSample> {
        let mut last = self.last.clone()?;
        last.ksm.mergeable = None;
        Some(last)
    }

    fn read_from(
        &mut self,
        files: &mut WatchedFiles,
        proc: &ProcDir,
        page_size: u64,
        told: Option<FileAnswer>,
        asked: &mut SampleReader,
        scratch: &mut ReadBuffer,
    ) -> WatchedReading {
        let stat = match text(Ok(&files.stat), scratch).and_then(PidStat::parse) {
            Reading::Value(stat) => stat,
            other => return other.into(),
        };
        if stat.start_ticks != self.id.start_ticks || stat.is_zombie {
            return WatchedReading::Gone;
        }
        let directory = &files.directory;
        let mut ksm = match (told, self.figures) {
            (Some(FileAnswer::Nothing(unanswered)), _) => {
                self.figures = None;
                return WatchedReading::Silent(self.last_known(), unanswered);
            }
            (Some(FileAnswer::NotAsked), _) | (None, None) => {
                self.figures = None;
                return WatchedReading::Late(self.last_known());
            }
            (None, Some(figures)) => figures,
            (Some(FileAnswer::Answer(answer)), _) => {
                let merging = || directory.bytes("ksm_merging_pages", scratch);
                match files.figures.read(answer, merging) {
                    Reading::Value(Some(figures)) => *self.figures.insert(figures),
                    other => {
                        self.figures = None;
                        return other.into();
                    }
                }
            }
        };
        if self.is_marked {
            ksm.mergeable.get_or_insert(true);
        }
        if self.is_renamed || stat.comm != self.comm {
            let told = command_line(proc, self.id.pid, asked);
            self.is_renamed = told.is_none();
            if let Some((line, nameless)) = told {
                self.nameless = nameless;
                let named = GuestName::from_command_line(&stat.comm, &line);
                (self.comm, self.name, self.is_vm) = (stat.comm, named.name.into(), named.is_vm);
            }
        }
        if !self.is_vm && !ksm.is_involved() {
            return WatchedReading::Uninvolved;
        }
        // The kernel also counts zero pages that were moved, again and again. They lie in the address space, and not in RSS.
        let rss_bytes = stat.rss_pages.map(|pages| pages.saturating_mul(page_size));
        if let Some(bytes) = stat.mapped_bytes {
            let most = bytes.saturating_sub(rss_bytes.unwrap_or(0)) / page_size.max(1);
            ksm.zero_pages = ksm.zero_pages.map(|pages| pages.min(most));
        }
        WatchedReading::Here(ProcessSample {
            id: self.id,
            name: Arc::clone(&self.name),
            is_vm: self.is_vm,
            rss_bytes,
            cpu_ticks: stat.cpu_ticks,
            minor_faults: stat.minor_faults,
            ksm,
            merge_reading: None,
            folded_bytes: None,
        })
    }
}

/// Reads the command line. On an error it is empty, which suffices for a name, and comes with the reason. `None` if the
/// next sample reads it.
fn command_line(proc: &ProcDir, pid: u32, asked: &mut SampleReader) -> Option<(CommandLine, Option<String>)> {
    Some(match asked.command_line(proc, pid)? {
        Ok(bytes) => (CommandLine::parse(&bytes), None),
        Err(error) => (CommandLine::default(), is_given_up(&error).then(|| error.to_string())),
    })
}
