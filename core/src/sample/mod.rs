//! One sample of the host: the input of every policy and of every view.

mod adopted_readings;
mod folded_figure;
mod merge_forecast;
mod merge_reading;
mod page_samples;
mod rest;

pub use folded_figure::FoldedFigure;
pub use merge_forecast::{ForecastState, HostForecast, MergeForecast, ProcessForecast};
pub use merge_reading::MergeReading;
pub use page_samples::{LASTING, PageSamples};
pub use rest::BoundaryPause;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::huge_worth::{SplitLosses, SplitMemory};
use crate::kernel::{HostReadings, Ksm, KsmStat, usual_huge_page_bytes};
use crate::reading::Reading;

/// The host at one moment. Each source has its own outcome: one that fails degrades the sample, no more. The figures of
/// `/proc` other than those of processes and ksmd may be a tenth of a second older.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Time since boot, suspended time included.
    pub at: Duration,
    /// The time that reading took: KSM's files were last read between `at` and `at + took`.
    pub took: Duration,
    /// The host's base page size in bytes.
    pub page_size: u64,
    /// The size of a transparent huge page in bytes, if the kernel shows it: see [`Sample::huge_page_bytes`].
    #[serde(skip)]
    pub shown_huge_page_bytes: Option<u64>,
    /// The files of `/sys/kernel/mm/ksm`.
    pub ksm: Ksm,
    /// True if KSM's settings can't be written, since `/sys` is mounted read-only here.
    #[serde(skip)]
    pub is_ksm_read_only: bool,
    /// ksmd's pause at the pass boundary, when KSM's files were read.
    #[serde(skip)]
    pub rest: BoundaryPause,
    /// CPU time that ksmd has used since boot, in nanoseconds.
    pub ksmd_cpu_ns: Reading<u64>,
    /// True if ksmd was in a batch: on a CPU, waiting for one, or for others in the kernel. False where that is not known.
    #[serde(skip)]
    pub is_ksmd_in_batch: bool,
    /// The files of `/proc` that describe the host.
    pub host: HostReadings,
    /// The shortness of the pool that guests share, from 0 (none) to 1, where it is being balanced: see
    /// [`balance::shortness`](crate::balance::shortness). A pool of the operator's may be short on a host that is not.
    pub pool_shortness: f64,
    /// Folded memory of all processes: zeros replaced by the kernel's zero page, beside those that KSM counts. `None` if
    /// nothing was examined.
    #[serde(default)]
    pub folded_bytes: Option<u64>,
    /// Processes with mergeable memory and hypervisors, whether these have any or not, in the order of their ids.
    pub processes: Vec<ProcessSample>,
    /// The loss of programs by split huge pages, on this host.
    #[serde(skip)]
    pub split_losses: SplitLosses,
    /// Processes that have just offered memory to KSM again. A policy counts all of their memory as new.
    #[serde(skip)]
    pub newly_offered: Vec<ProcessId>,
    /// Processes with KSM figures that we may not read; their savings can't be attributed.
    pub hidden_processes: u64,
    /// True if the kernel shows which processes have mergeable memory, so that all of them are in the sample: from Linux
    /// 6.14 on. Before, one that has just begun to merge may be missing.
    #[serde(skip)]
    pub shows_mergeable: bool,
    /// Processes that are given up: they do not answer, have more than is read of one process, or are more than are read
    /// of one user.
    #[serde(default)]
    pub given_up: GivenUpList,
    /// Counts of the sampled pages. Absent where no pages are sampled.
    #[serde(skip)]
    pub page_samples: Reading<PageSamples>,
    /// The forecast of merging in huge pages.
    #[serde(skip)]
    pub merge_forecast: ForecastState,
    /// The parts of the processes of which enough pages were drawn for a forecast that is known.
    #[serde(skip)]
    pub process_forecasts: Arc<[ProcessForecast]>,
    /// Zero pages that the kernel counts although no process has them. They are taken off `ksm.ksm_zero_pages`. Negative:
    /// it counts too few.
    #[serde(skip)]
    pub lost_zero_pages: i64,
}

impl Sample {
    /// Returns the time at which reading ended, by the clock of [`at`](Self::at).
    pub fn ended_at(&self) -> Duration {
        self.at.saturating_add(self.took)
    }

    /// Returns the size of a transparent huge page in bytes: the usual one where the kernel does not show it.
    pub fn huge_page_bytes(&self) -> u64 {
        self.shown_huge_page_bytes.unwrap_or_else(|| usual_huge_page_bytes(self.page_size))
    }

    /// Returns true if there are processes without figures in the sample: they may not be read, or do not answer.
    pub fn has_unknown_figures(&self) -> bool {
        self.hidden_processes > 0 || self.given_up.unknown > 0
    }

    /// Returns true if every page that a living process has merged is in the figures of a process here.
    ///
    /// ksmd is invisible from a PID namespace of one's own, and where `hidepid` hides the processes of others.
    pub fn shows_all_merged_pages(&self) -> bool {
        self.shows_mergeable && self.ksmd_cpu_ns.get().is_some() && self.merged_by_the_living().is_some()
    }

    /// Returns the pages that living processes have merged, zero pages included. `None` where one of them hides its
    /// figures or the kernel has none (before 5.19).
    ///
    /// The host's gauges go on counting a process that has ended until ksmd scans its place: with `run` = 0 for ever.
    pub fn merged_by_the_living(&self) -> Option<u64> {
        if self.has_unknown_figures() {
            return None;
        }
        self.processes.iter().filter(|process| !process.is_twin).try_fold(0_u64, |sum, process| {
            Some(sum.saturating_add(process.ksm.merging_pages?).saturating_add(process.zero_pages()))
        })
    }
}

/// A process that is given up, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GivenUp {
    /// The process's PID.
    pub pid: u32,
    /// Its name, fit for a terminal.
    pub name: Arc<str>,
    /// The reason, in one sentence that names the file.
    pub why: String,
    /// The number of other processes that share the reason and are not named.
    #[serde(default)]
    pub others: u64,
}

impl GivenUp {
    /// Creates a process with a reason of its own.
    pub fn new(pid: u32, name: Arc<str>, why: impl Into<String>) -> Self {
        Self { pid, name, why: why.into(), others: 0 }
    }
}

impl fmt::Display for GivenUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.others {
            0 => write!(f, "{} (pid {}) is given up: {}", self.name, self.pid, self.why),
            others => write!(f, "{} (pid {}) and {others} more are given up: {}", self.name, self.pid, self.why),
        }
    }
}

/// The processes that are given up. A few are named, whatever their number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GivenUpList {
    /// The first of them.
    pub named: Vec<GivenUp>,
    /// The number of processes that are given up.
    pub count: u64,
    /// The number of them for which it is unknown whether they may merge.
    pub unknown: u64,
    /// The number of them that are more than are read of one user.
    #[serde(default)]
    pub over_budget: u64,
}

impl GivenUpList {
    /// The most processes that are named.
    pub const NAMED: usize = 16;

    /// Adds a process. `is_unknown` is true if it is unknown whether it may merge.
    pub fn add(&mut self, is_unknown: bool, process: impl FnOnce() -> GivenUp) {
        self.count += 1;
        self.unknown += u64::from(is_unknown);
        self.name(process);
    }

    /// Adds a user's `count` processes beyond those that are read of one user, of which `unknown` may merge. One is
    /// named.
    pub fn add_over_budget(&mut self, count: u64, unknown: u64, process: impl FnOnce() -> GivenUp) {
        self.count += count;
        self.unknown += unknown;
        self.over_budget += count;
        self.name(|| GivenUp { others: count.saturating_sub(1), ..process() });
    }

    fn name(&mut self, process: impl FnOnce() -> GivenUp) {
        if self.named.len() < Self::NAMED {
            self.named.push(process());
        }
    }

    /// Returns the number of processes that no sentence of [`named`](Self::named) counts.
    pub fn rest(&self) -> u64 {
        let told =
            self.named.iter().fold(0_u64, |sum, process| sum.saturating_add(process.others).saturating_add(1));
        self.count.saturating_sub(told)
    }

    /// Returns a sentence for each process that is named, and one for the rest.
    pub fn sentences(&self) -> Vec<String> {
        let rest = self.rest();
        let more = (rest > 0).then(|| format!("{rest} more processes are given up"));
        self.named.iter().map(GivenUp::to_string).chain(more).collect()
    }
}

/// The identity of a process for good: the kernel reuses PIDs, but not together with a start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process's PID.
    pub pid: u32,
    /// Clock ticks between boot and the process's start.
    pub start_ticks: u64,
}

impl ProcessId {
    /// Returns the time since the process started, at a time since boot. `USER_HZ` is 100 everywhere.
    pub fn age(&self, at: Duration) -> Duration {
        at.saturating_sub(Duration::from_millis(self.start_ticks.saturating_mul(10)))
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)
    }
}

/// A process with mergeable memory, or a hypervisor. Before Linux 6.14 the kernel does not say whether memory is
/// mergeable until ksmd has been there: so a hypervisor always counts, and is told apart by `ksm.mergeable`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The process's PID and start.
    pub id: ProcessId,
    /// The name to show: a guest's own name where the command line gives one, else the program's.
    pub name: Arc<str>,
    /// True if the program is a hypervisor. All of its memory counts as a guest's.
    pub is_vm: bool,
    /// Resident bytes; merged pages count in full. `None` if the kernel shows an impossible number.
    pub rss_bytes: Option<u64>,
    /// CPU time used since its start, in clock ticks.
    pub cpu_ticks: u64,
    /// Minor faults since its start: memory obtained or copied.
    pub minor_faults: u64,
    /// KSM's figures for it.
    pub ksm: KsmStat,
    /// The newest reading of its page tables. `None`: not read yet, or not to be read here.
    #[serde(default)]
    pub merge_reading: Option<MergeReading>,
    /// Zeros in it that splits of huge pages have freed, whoever split them. `None` if it was not examined.
    #[serde(default)]
    pub folded_bytes: Option<u64>,
    /// Zeros in it that were there at the first reading: never written to, or freed by splits before it. `None` if it was not
    /// examined.
    #[serde(default)]
    pub earlier_zero_bytes: Option<u64>,
    /// Huge pages of it that merging has split. `None` if that was not examined.
    #[serde(default)]
    pub split: Option<SplitMemory>,
    /// True if it has one memory map with its parent, which is in the sample: the memory counts there. False until that
    /// was examined.
    #[serde(default)]
    pub is_twin: bool,
}

impl ProcessSample {
    /// Creates a process of which nothing else is known yet.
    pub fn new(id: ProcessId, name: Arc<str>, is_vm: bool) -> Self {
        Self {
            id,
            name,
            is_vm,
            rss_bytes: None,
            cpu_ticks: 0,
            minor_faults: 0,
            ksm: KsmStat::default(),
            merge_reading: None,
            folded_bytes: None,
            earlier_zero_bytes: None,
            split: None,
            is_twin: false,
        }
    }

    /// Returns the pages of this process that are merged, zero pages not included. 0 where the kernel does not say.
    pub fn merging_pages(&self) -> u64 {
        self.ksm.merging_pages.unwrap_or(0)
    }

    /// Returns the resident bytes, 0 if they are unknown: no evidence of memory that policies may count on.
    pub fn known_rss_bytes(&self) -> u64 {
        self.rss_bytes.unwrap_or(0)
    }

    /// Returns true if KSM is, or may be, involved with this process. A hypervisor is in the sample even where the
    /// kernel says that none of its memory is mergeable; before Linux 6.14 that is unknown.
    pub fn may_merge(&self) -> bool {
        self.ksm.is_involved() || self.ksm.mergeable.is_none()
    }

    /// Returns its folded memory with the time at which its page tables were read; the start of time if they can't be
    /// read any more.
    pub fn folded_figure(&self) -> Option<FoldedFigure> {
        let read_at = self.merge_reading.map_or(Duration::ZERO, |reading| reading.read_at);
        self.folded_bytes.map(|bytes| FoldedFigure { bytes, read_at })
    }

    /// Returns the pages of this process that map the kernel's zero page through KSM.
    pub fn zero_pages(&self) -> u64 {
        self.ksm.zero_pages.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merging(pages: Option<u64>) -> ProcessSample {
        ProcessSample {
            ksm: KsmStat { merging_pages: pages, zero_pages: Some(2), ..KsmStat::default() },
            ..ProcessSample::new(ProcessId { pid: 1, start_ticks: 1 }, "guest".into(), false)
        }
    }

    #[test]
    fn what_the_living_have_merged_is_known_only_if_all_show_it() {
        let sample = |processes| Sample { processes, ..Sample::default() };
        assert_eq!(sample(vec![]).merged_by_the_living(), Some(0));
        assert_eq!(sample(vec![merging(Some(3)), merging(Some(4))]).merged_by_the_living(), Some(11));
        assert_eq!(sample(vec![merging(Some(3)), merging(None)]).merged_by_the_living(), None);
        let mut twins = sample(vec![merging(Some(3)), merging(Some(3))]);
        twins.processes[1].is_twin = true;
        assert_eq!(twins.merged_by_the_living(), Some(5), "one memory map counts once");
        let hiding = Sample { hidden_processes: 1, ..sample(vec![merging(Some(3))]) };
        assert_eq!(hiding.merged_by_the_living(), None);
        let mut silent = sample(vec![merging(Some(3))]);
        silent.given_up.add(true, || given_up(7));
        assert_eq!(silent.merged_by_the_living(), None);
    }

    #[test]
    fn a_huge_page_has_the_size_that_the_kernel_shows_or_else_the_usual_one() {
        let on = |page_size, shown| Sample { page_size, shown_huge_page_bytes: shown, ..Sample::default() };
        let sizes = [(4096, None), (65_536, None), (65_536, Some(2 << 20))].map(|(page, shown)| on(page, shown));
        assert_eq!(sizes.map(|sample| sample.huge_page_bytes() >> 20), [2, 512, 2]);
    }

    fn given_up(pid: u32) -> GivenUp {
        GivenUp::new(pid, "evil".into(), format!("ksm_stat of process {pid} does not answer"))
    }

    #[test]
    fn however_many_are_given_up_a_few_are_named() {
        let mut list = GivenUpList::default();
        for pid in 0..100 {
            list.add(pid % 2 == 0, || given_up(pid));
        }
        assert_eq!((list.count, list.unknown, list.named.len()), (100, 50, GivenUpList::NAMED));
        let sentences = list.sentences();
        assert_eq!(sentences[0], "evil (pid 0) is given up: ksm_stat of process 0 does not answer");
        assert_eq!(sentences[GivenUpList::NAMED], "84 more processes are given up");
    }

    #[test]
    fn those_beyond_a_users_budget_are_counted_in_the_sentence_that_names_one() {
        let mut list = GivenUpList::default();
        list.add_over_budget(4000, 3000, || GivenUp::new(7, "work".into(), "1024 others are read"));
        list.add(true, || given_up(8));
        assert_eq!((list.count, list.unknown, list.over_budget, list.rest()), (4001, 3001, 4000, 0));
        let sentences = list.sentences();
        assert_eq!(sentences.len(), 2);
        assert_eq!(sentences[0], "work (pid 7) and 3999 more are given up: 1024 others are read");
    }
}
