//! The thread that samples the job's processes while they run.
//!
//! Reading PSS makes the kernel walk page tables under a lock that the program may need. So the pause between two full
//! samples grows with their cost, which stays below a hundredth of a CPU. Glances between two full samples read only
//! the merged pages, and only if KSM's count changes. So the accounting of a job that ends soon after has the newest
//! savings.
//!
//! PSS comes with what is really merged. Zeros that splits free are counted besides, in processes that had huge pages.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use ksmith_core::fold::FoldLedger;
use ksmith_core::job::{
    JobAccounting, JobMoment, JobProcess, JobTotals, OptInMethod, StartDetector, is_sparse_giant,
};
use ksmith_core::kernel::{Ksm, KsmStat, SmapsRollup, Vmstat};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{MergeReading, ProcessId};
use ksmith_core::units::CountedNoun;
use tracing::debug;

use super::launch::kernel;
use super::tree::{self, JobMember};
use crate::ksm_counts::KsmCounts;
use crate::memory::process::OpenProcess;
use crate::merge_reader::PageTableReader;
use crate::own_use::thread_cpu;
use crate::process::is_alive;
use crate::reader;
use crate::root::Root;

/// The first pause. Each next one is twice as long, up to [`SHORTEST_PAUSE`] or longer by [`SHARE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// The shortest pause between two full samples after the start of the job.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// The longest pause between two full samples: jobs of which one takes over a second and a half are read more often than by [`SHARE`].
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Full samples cost at most `1 / SHARE` of the time: ranks that spin are all delayed by it.
const SHARE: u32 = 200;

/// The least memory of a process for reporting a lost opt-in.
const WORTH_A_WORD: u64 = 1 << 20;

/// An error from starting to watch a job.
#[derive(Debug, thiserror::Error)]
#[error("the job can't be watched: {0}")]
pub struct WatchError(#[from] io::Error);

/// A notice about the running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobNotice {
    /// The memory of the job has stopped growing.
    Settled,
    /// A process maps far more than it uses, and this kernel's ksmd visits every mapped page.
    SparseGiant {
        /// PID of the process.
        pid: u32,
        /// Size of its address space.
        mapped_bytes: u64,
    },
    /// The memory of a process is not mergeable, although the job was opted in.
    OptInLost {
        /// PID of the process.
        pid: u32,
        /// Name of its program.
        name: String,
    },
}

/// The result of watching a job.
#[derive(Debug, Clone, Default)]
pub struct WatchOutcome {
    /// Accounting of the job.
    pub totals: JobTotals,
    /// Time from start to end of the job.
    pub wall: Duration,
    /// Merged pages of the whole host that were copied on a write during the job.
    pub cow_breaks: Option<u64>,
    /// Number of processes with unreadable memory figures.
    pub hidden: usize,
    /// Number of full samples taken.
    pub looks: u64,
}

/// The thread that watches a job. It ends with [`JobWatch::finish`].
#[derive(Debug)]
pub struct JobWatch {
    stop: Sender<()>,
    thread: JoinHandle<WatchOutcome>,
    notices: Receiver<JobNotice>,
}

impl JobWatch {
    /// Starts watching the descendants of this process. If this process folds them, the zeros that splits free are the
    /// folder's, and are not counted as saved by KSM.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn begin(method: OptInMethod, is_folded: bool) -> Result<Self, WatchError> {
        let (stop, stopped) = bounded(1);
        let (tell, notices) = unbounded();
        let eyes = WatchWorker { is_folded, ..WatchWorker::new(Root::host(), method, tell) };
        let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(move || eyes.watch(&stopped))?;
        Ok(Self { stop, thread, notices })
    }

    /// Returns the channel of notices about the job.
    pub fn notices(&self) -> Receiver<JobNotice> {
        self.notices.clone()
    }

    /// Ends the thread and returns the result.
    pub fn finish(self) -> WatchOutcome {
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

struct WatchWorker {
    root: Root,
    counts: KsmCounts,
    method: OptInMethod,
    own: u32,
    page_size: u64,
    tell: Sender<JobNotice>,
    started: Instant,
    cow_before: Option<u64>,
    accounting: JobAccounting,
    settled: StartDetector,
    told: BTreeSet<u32>,
    hidden: BTreeSet<u32>,
    looks: u64,
    /// Processes at the newest full sample.
    members: Vec<JobMember>,
    /// The host's merged pages at the newest full sample or glance.
    merged: Ksm,
    /// The readings of the newest full sample.
    readings: BTreeMap<ProcessId, MergeReading>,
    page_tables: PageTableReader,
    /// Zeros that splits have freed.
    ledger: FoldLedger,
    is_folded: bool,
}

impl WatchWorker {
    fn new(root: Root, method: OptInMethod, tell: Sender<JobNotice>) -> Self {
        Self {
            cow_before: cow_breaks(&root),
            counts: KsmCounts::new(&root),
            root,
            method,
            own: std::process::id(),
            page_size: rustix::param::page_size() as u64,
            tell,
            started: Instant::now(),
            accounting: JobAccounting::default(),
            settled: StartDetector::default(),
            told: BTreeSet::new(),
            hidden: BTreeSet::new(),
            looks: 0,
            members: Vec::new(),
            merged: Ksm::default(),
            readings: BTreeMap::new(),
            page_tables: PageTableReader::default(),
            ledger: FoldLedger::new(u64::MAX),
            is_folded: false,
        }
    }

    fn watch(mut self, stopped: &Receiver<()>) -> WatchOutcome {
        let mut pause = FIRST_PAUSE;
        let mut due = Instant::now() + pause;
        let mut short = SHORTEST_PAUSE;
        while stopped.recv_timeout(short.min(due.saturating_duration_since(Instant::now())))
            == Err(RecvTimeoutError::Timeout)
        {
            if Instant::now() < due {
                short = (self.glance() * SHARE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                continue;
            }
            let cost = self.take_full_sample();
            pause = pause_after(cost, pause);
            due = Instant::now() + pause;
        }
        let wall = self.started.elapsed();
        let cow_breaks = cow_breaks(&self.root).zip(self.cow_before).map(|(now, then)| now.saturating_sub(then));
        WatchOutcome {
            totals: self.accounting.finish(wall),
            wall,
            cow_breaks,
            hidden: self.hidden.len(),
            looks: self.looks,
        }
    }

    /// Takes a full sample. Returns its CPU time.
    fn take_full_sample(&mut self) -> Duration {
        let begin = spent();
        let members = tree::descendants(&self.root, self.own, self.page_size);
        let ids: BTreeSet<ProcessId> = members.iter().map(|member| member.id).collect();
        self.readings.retain(|id, _| ids.contains(id));
        self.ledger.retain(|id| ids.contains(&id));
        let host_split_bytes = self.page_tables.host_split_bytes();
        let processes = members.iter().map(|member| self.see(member, host_split_bytes)).collect();
        self.merged = self.counts.read_merged();
        let age = self.enter(processes);
        self.looks += 1;
        let rss = members.iter().map(|member| member.rss_bytes).fold(0, u64::saturating_add);
        if self.settled.record_rss(age, rss) {
            let _ = self.tell.send(JobNotice::Settled);
        }
        debug!("sampled {} of the job", CountedNoun::new(members.len(), "process"));
        self.members = members;
        spent().saturating_sub(begin)
    }

    /// Reads the merged pages of the processes from the newest full sample, if the host's count has moved.
    /// Returns its CPU time.
    fn glance(&mut self) -> Duration {
        let begin = spent();
        let merged = self.counts.read_merged();
        if merged != self.merged {
            self.merged = merged;
            let is_there = |member: &&JobMember| is_alive(&self.root, member.id);
            let seen = |member: &JobMember| self.with_readings(member, tree::ksm(&self.root, member.id.pid));
            let processes = self.members.iter().filter(is_there).map(seen).collect();
            self.enter(processes);
        }
        spent().saturating_sub(begin)
    }

    /// Adds a sample to the accounting. Returns the age of the job.
    fn enter(&mut self, processes: Vec<JobProcess>) -> Duration {
        let age = self.started.elapsed();
        self.accounting.record(&JobMoment { age, page_size: self.page_size, ksm: self.counts.read(), processes });
        age
    }

    /// Returns a process with the newest readings of its page tables.
    fn with_readings(&self, member: &JobMember, ksm: KsmStat) -> JobProcess {
        JobProcess {
            merge_reading: self.readings.get(&member.id).copied(),
            folded_bytes: self.ledger.folded_bytes(member.id),
            ..JobProcess::new(member.id, member.name.as_str().into(), ksm)
        }
    }

    fn see(&mut self, member: &JobMember, host_split_bytes: Option<u64>) -> JobProcess {
        let pid = member.id.pid;
        // The counters come first: what ksmd merges meanwhile is not missed by them later.
        let ksm = tree::ksm(&self.root, pid);
        let sums = tree::memory_sums(&self.root, pid);
        self.record_page_tables(member.id, &ksm, sums.value(), host_split_bytes);
        let held = tree::held(sums);
        if held == Reading::Denied {
            self.hidden.insert(pid);
        }
        let name = member.name.clone();
        let is_large = member.rss_bytes >= WORTH_A_WORD;
        if self.method == OptInMethod::Prctl && ksm.merge_any == Some(false) && is_large && self.told.insert(pid) {
            let _ = self.tell.send(JobNotice::OptInLost { pid, name });
        }
        let mapped = tree::mapped_bytes(&self.root, pid, self.page_size).unwrap_or(0);
        if is_sparse_giant(kernel().0, mapped, member.rss_bytes) && self.told.insert(pid) {
            let _ = self.tell.send(JobNotice::SparseGiant { pid, mapped_bytes: mapped });
        }
        JobProcess { held_bytes: held.get(), ..self.with_readings(member, ksm) }
    }

    /// Records what is merged in a process by its page tables, and the zeros that splits have freed there.
    fn record_page_tables(
        &mut self,
        id: ProcessId,
        ksm: &KsmStat,
        sums: Option<&SmapsRollup>,
        host_split_bytes: Option<u64>,
    ) {
        let reading =
            sums.and_then(|sums| MergeReading::from_figures(self.started.elapsed(), sums, ksm, self.page_size));
        let Some((sums, reading)) = sums.zip(reading) else {
            self.readings.remove(&id);
            return;
        };
        self.readings.insert(id, reading);
        // Without huge pages nothing is split, and without the opt-in ksmd splits none.
        let may_have_freed = reading.huge_bytes > 0 && ksm.is_involved() || self.ledger.folded_bytes(id).is_some();
        if self.is_folded || !may_have_freed {
            return;
        }
        let process = OpenProcess::open(id.pid).ok().filter(|process| process.start_ticks == id.start_ticks);
        let Some(process) = process else { return };
        let zeros = self.page_tables.count_zeros(&process, ksm, sums, host_split_bytes, self.page_size);
        if let Some(zeros) = zeros.filter(|_| process.is_there().is_ok()) {
            self.ledger.record_look(id, zeros);
        }
    }
}

/// Returns the pause after a full sample of this cost, which came after a pause of `last`.
fn pause_after(cost: Duration, last: Duration) -> Duration {
    (last * 2).min(SHORTEST_PAUSE).max(cost * SHARE).min(LONGEST_PAUSE)
}

/// Returns the CPU time of this thread and of the children that read for it.
fn spent() -> Duration {
    thread_cpu().saturating_add(reader::cpu())
}

fn cow_breaks(root: &Root) -> Option<u64> {
    root.text("proc/vmstat").and_then(|text| Vmstat::parse(&text)).value().and_then(|vmstat| vmstat.cow_ksm)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn dear_samples_are_rare_from_the_first_one_on() {
        let milliseconds = Duration::from_millis;
        assert_eq!(pause_after(Duration::ZERO, FIRST_PAUSE), milliseconds(20));
        assert_eq!(pause_after(Duration::ZERO, milliseconds(160)), SHORTEST_PAUSE);
        assert_eq!(pause_after(milliseconds(15), FIRST_PAUSE), milliseconds(3000));
        assert_eq!(pause_after(milliseconds(1), milliseconds(3000)), SHORTEST_PAUSE);
        assert_eq!(pause_after(milliseconds(900), milliseconds(3000)), Duration::from_mins(3));
        assert_eq!(pause_after(milliseconds(9000), milliseconds(3000)), LONGEST_PAUSE);
    }

    fn put(tree: &Path, file: &str, text: &str) {
        let path = tree.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn merged(tree: &Path, shared: u64, sharing: u64, of_job: u64) {
        put(tree, "sys/kernel/mm/ksm/pages_shared", &format!("{shared}\n"));
        put(tree, "sys/kernel/mm/ksm/pages_sharing", &format!("{sharing}\n"));
        let text = format!("ksm_rmap_items 9999\nksm_zero_pages 0\nksm_merging_pages {of_job}\n");
        put(tree, "proc/11/ksm_stat", &text);
    }

    #[test]
    fn pages_merged_between_two_samples_count_in_a_job_that_ends_before_the_next() {
        let tree = tempfile::tempdir().unwrap();
        let stat = |start: u64| format!("11 (job) S 10 1 1 0 -1 0 0 0 0 0 5 6 0 0 20 0 1 0 {start} 1000 33 0");
        put(tree.path(), "proc/11/stat", &stat(7));
        merged(tree.path(), 0, 0, 0);
        let mut eyes =
            WatchWorker { own: 10, ..WatchWorker::new(Root::at(tree.path()), OptInMethod::Prctl, unbounded().0) };
        eyes.take_full_sample();
        assert_eq!((eyes.members.len(), eyes.accounting.saved_bytes()), (1, 0));
        merged(tree.path(), 100, 300, 400);
        eyes.glance();
        assert_eq!(eyes.accounting.saved_bytes(), 300 * eyes.page_size);
        // Another process with a reused PID does not belong to the job.
        put(tree.path(), "proc/11/stat", &stat(8));
        merged(tree.path(), 100, 301, 401);
        eyes.glance();
        assert_eq!(eyes.accounting.saved_bytes(), 0);
        assert_eq!(eyes.accounting.finish(Duration::from_secs(1)).peak_saved_bytes, 300 * 4096);
    }
}
