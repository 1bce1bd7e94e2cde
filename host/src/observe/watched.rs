//! A process that is read at each tick, because it has mergeable memory or is a hypervisor.

use std::io;
use std::sync::Arc;

use ksmith_core::kernel::{CommandLine, KsmStat, PidStat};
use ksmith_core::reading::{Malformed, Reading};
use ksmith_core::sample::{GivenUp, ProcessId, ProcessSample};

use super::asked::SampleReader;
use super::figures::ProcessFigures;
use super::proc_dir::ProcDir;
use super::silences::FileAnswer;
use crate::hypervisor::GuestName;
use crate::proc_file::{UnansweredRead, is_given_up, lossy};
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
    /// The files with KSM figures that this kernel has.
    files: ProcessFigures,
    /// KSM figures of the newest full reading.
    figures: Option<KsmStat>,
    /// The newest successful reading.
    last: Option<ProcessSample>,
    /// True if the newest reading failed.
    is_silent: bool,
}

/// The files of a watched process that a sample reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WantedFigures {
    /// True if the figures of the last reading do not hold.
    pub(super) ksm_stat: bool,
    /// True if `ksm_stat` lacks the merged pages (before Linux 6.4), or may lack them.
    pub(super) merging_pages: bool,
}

impl WantedFigures {
    /// Those of a process of which nothing has been read yet.
    pub(super) const ALL: Self = Self { ksm_stat: true, merging_pages: true };

    /// Returns the names of the files, in the order of reading: `stat` last, so that the start in it shows that all are
    /// this process's, and not another's that has its PID now.
    pub(super) fn files(self) -> impl Iterator<Item = &'static str> {
        let merging_pages = self.ksm_stat && self.merging_pages;
        [(self.ksm_stat, KSM_STAT), (merging_pages, MERGING_PAGES), (true, STAT)]
            .into_iter()
            .filter_map(|(is_wanted, file)| is_wanted.then_some(file))
    }
}

const KSM_STAT: &str = "ksm_stat";
const MERGING_PAGES: &str = "ksm_merging_pages";
const STAT: &str = "stat";

/// The files of a watched process as one sample read them.
#[derive(Debug)]
pub(super) struct WatchedFiles {
    /// `ksm_stat`; `None` if the figures of the last reading hold.
    pub(super) ksm_stat: Option<FileAnswer>,
    /// `ksm_merging_pages`; `None` if it has nothing that `ksm_stat` lacks.
    pub(super) merging_pages: Option<FileAnswer>,
    pub(super) stat: FileAnswer,
}

impl WatchedFiles {
    /// Creates them from the answers about [`WantedFigures::files`]; `None` if there are none.
    pub(super) fn from_answers(
        wanted: WantedFigures,
        answers: &mut impl Iterator<Item = FileAnswer>,
    ) -> Option<Self> {
        let (mut ksm_stat, mut merging_pages, mut stat) = (None, None, None);
        for (file, answer) in wanted.files().zip(answers) {
            match file {
                KSM_STAT => ksm_stat = Some(answer),
                MERGING_PAGES => merging_pages = Some(answer),
                _ => stat = Some(answer),
            }
        }
        Some(Self { ksm_stat, merging_pages, stat: stat? })
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

impl WatchedReading {
    /// Adds the last reading to that of a process that could not be read.
    fn or_last(self, last: impl FnOnce() -> Option<ProcessSample>) -> Self {
        match self {
            Self::Silent(None, unanswered) => Self::Silent(last(), unanswered),
            Self::Late(None) => Self::Late(last()),
            other => other,
        }
    }
}

impl WatchedProcess {
    /// Examines the current process of this PID.
    ///
    /// # Errors
    /// The reading of a process that can't be watched now.
    pub(super) fn open(
        proc: &ProcDir,
        pid: u32,
        is_marked: bool,
        asked: &mut SampleReader,
    ) -> Result<Self, Box<WatchedReading>> {
        let told = asked.read_files(proc, &[(pid, "stat")]).pop().unwrap_or(FileAnswer::NotAsked);
        parse_stat(told).map(|stat| {
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
                files: ProcessFigures::default(),
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

    /// Returns the files for the next [`read`](Self::read). `stood_still` is true if ksmd did nothing meanwhile.
    pub(super) fn wanted_figures(&self, stood_still: bool) -> WantedFigures {
        WantedFigures {
            ksm_stat: !self.figures.is_some_and(|figures| stood_still && figures.is_involved()),
            merging_pages: self.files.want_merging_pages(),
        }
    }

    /// Reads the process. Figures that can't have changed are not read again, because since 6.14 the kernel walks all
    /// mappings for them. Figures of a process without mergeable memory are always read, because a new one may get
    /// some.
    pub(super) fn read(
        &mut self,
        proc: &ProcDir,
        page_size: u64,
        told: WatchedFiles,
        asked: &mut SampleReader,
    ) -> WatchedReading {
        let seen = self.read_from(proc, page_size, told, asked);
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
        proc: &ProcDir,
        page_size: u64,
        told: WatchedFiles,
        asked: &mut SampleReader,
    ) -> WatchedReading {
        let stat = match parse_stat(told.stat) {
            Ok(stat) => stat,
            Err(unread) => {
                self.figures = None;
                // That a process has ended can be told without its answer.
                if proc.process(self.id.pid).is_err() {
                    return WatchedReading::Gone;
                }
                return unread.or_last(|| self.last_known());
            }
        };
        if stat.start_ticks != self.id.start_ticks || stat.is_zombie {
            return WatchedReading::Gone;
        }
        let mut ksm = match (told.ksm_stat, self.figures) {
            (Some(FileAnswer::Nothing(unanswered)), _) => {
                self.figures = None;
                return WatchedReading::Silent(self.last_known(), unanswered);
            }
            (Some(FileAnswer::NotAsked | FileAnswer::HeldBack), _) | (None, None) => {
                self.figures = None;
                return WatchedReading::Late(self.last_known());
            }
            (None, Some(figures)) => figures,
            (Some(FileAnswer::Answer(answer)), _) => {
                let merging = match told.merging_pages {
                    Some(FileAnswer::Answer(answer)) => answer,
                    Some(FileAnswer::Nothing(unanswered)) => {
                        self.figures = None;
                        return WatchedReading::Silent(self.last_known(), unanswered);
                    }
                    Some(FileAnswer::NotAsked | FileAnswer::HeldBack) => {
                        self.figures = None;
                        return WatchedReading::Late(self.last_known());
                    }
                    None => Err(io::ErrorKind::NotFound.into()),
                };
                match self.files.read(answer, || merging) {
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
            rss_bytes,
            cpu_ticks: stat.cpu_ticks,
            minor_faults: stat.minor_faults,
            ksm,
            ..ProcessSample::new(self.id, Arc::clone(&self.name), self.is_vm)
        })
    }
}

/// Parses the text of `/proc/PID/stat`.
fn parse_stat(told: FileAnswer) -> Result<PidStat, Box<WatchedReading>> {
    let bytes = match told {
        FileAnswer::Answer(answer) => answer,
        FileAnswer::Nothing(unanswered) => return Err(Box::new(WatchedReading::Silent(None, unanswered))),
        FileAnswer::NotAsked | FileAnswer::HeldBack => return Err(Box::new(WatchedReading::Late(None))),
    };
    match bytes.map_or_else(|error| outcome(&error), |bytes| PidStat::parse(&lossy(bytes)).into()) {
        Reading::Value(stat) => Ok(stat),
        other => Err(Box::new(other.into())),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::Root;

    fn answer(text: &str) -> FileAnswer {
        FileAnswer::Answer(Ok(text.as_bytes().to_vec()))
    }

    fn stat(start: u64) -> String {
        format!("7 (work) S 1 1 1 0 -1 0 7 0 0 0 3 4 0 0 20 0 1 0 {start} 0 10 0\n")
    }

    /// The order of reading, by which a PID that is given out again shows: the start that `stat` tells is looked at.
    #[test]
    fn all_figures_are_read_before_the_start_that_shows_whose_they_are() {
        let files =
            |ksm_stat, merging_pages| WantedFigures { ksm_stat, merging_pages }.files().collect::<Vec<&str>>();
        assert_eq!(files(true, true), ["ksm_stat", "ksm_merging_pages", "stat"]);
        assert_eq!(files(true, false), ["ksm_stat", "stat"]);
        assert_eq!(files(false, true), ["stat"], "without new figures nothing is put together");
    }

    #[test]
    fn a_process_that_ends_once_it_was_read_has_none_of_the_figures_of_the_next_one_with_its_pid() {
        let tree = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = tree.path().join("proc/7").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::at(tree.path());
        put("stat", &stat(5));
        put("cmdline", "work\0");
        let (proc, mut asked) = (ProcDir::open(&root).unwrap(), SampleReader::new(&root));
        asked.begin(true, std::time::Duration::ZERO);
        let mut watched = WatchedProcess::open(&proc, 7, false, &mut asked).map_err(|_| "unread").unwrap();
        // As of Linux 6.1, which has the merged pages in a file of their own.
        let told = |start| WatchedFiles {
            ksm_stat: Some(answer("ksm_rmap_items 9\n")),
            merging_pages: Some(answer("3\n")),
            stat: answer(&stat(start)),
        };
        put("stat", &stat(6));
        put("ksm_merging_pages", "999\n");
        let WatchedReading::Here(process) = watched.read(&proc, 4096, told(5), &mut asked) else {
            panic!("it ran when it was read")
        };
        assert_eq!((process.ksm.rmap_items, process.merging_pages()), (Some(9), 3));
        let seen = watched.read(&proc, 4096, told(6), &mut asked);
        assert!(matches!(seen, WatchedReading::Gone), "{seen:?}");
    }
}
