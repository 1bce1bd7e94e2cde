//! The processes to read next, and the newest readings.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cpu_use::CpuUse;
use crate::fold::{FoldEntry, FoldLedger};
use crate::huge_worth::SplitMemory;
use crate::sample::{MergeReading, ProcessId, ProcessSample, Sample};
use crate::token_bucket::TokenBucket;

use super::message::{LedgerEntries, MergeReply, MergeRequest, ReadProcess};

/// CPU time per second for readings: 0.2 % of a CPU.
const CPU_SHARE: f64 = 0.002;

/// CPU time per second for first readings: 1 % of a CPU, in the long run. Few are expensive: a new guest has few pages, or
/// huge ones.
const FIRST_CPU_SHARE: f64 = 0.01;

/// Seconds of CPU time in reserve for each, as for the processes that are there at the start: some 100 GiB of small pages.
const RESERVE: f64 = 1.0;

/// Seconds of CPU time after which the figures of a renewal are shown, before it goes on.
const RENEWAL_CPU_SECONDS: f64 = 0.5;

/// The shortest time between two readings of one process.
const PAUSE: Duration = Duration::from_secs(5);

/// The shortest time between two readings of one process while huge pages are split: no counter has the zeros that come free,
/// and a burst is judged by them.
const SPLITTING_PAUSE: Duration = Duration::from_secs(1);

/// The time over which the CPU use of processes is averaged.
const CPU_USE_MEMORY: Duration = Duration::from_secs(60);

/// The time for which an earlier reader's accounts wait for their processes: not all are found at once.
const KEPT: Duration = Duration::from_secs(600);

/// Changes of an account that need not be written, in bytes.
const WRITE_GRANULARITY: u64 = 1 << 20;

/// The newest readings, and the order of the next.
#[derive(Debug)]
pub struct MergeSchedule {
    readings: BTreeMap<ProcessId, MergeReading>,
    /// Time of the last attempt.
    attempts: BTreeMap<ProcessId, Duration>,
    /// The parents of processes that have one memory map with them.
    twins: BTreeMap<ProcessId, u32>,
    ledger: FoldLedger,
    /// The CPUs that processes use: what their splits cost depends on it.
    cpu_use: CpuUse,
    /// Accounts of an earlier reader, of processes that were in no sample yet.
    kept: LedgerEntries,
    /// Time from which on they are dropped.
    kept_until: Option<Duration>,
    /// The accounts as they were last written.
    written: LedgerEntries,
    bucket: TokenBucket,
    /// The budget of first readings, which no others use up: what splits free before the first reading is never known.
    first_bucket: TokenBucket,
    state: ReaderState,
    renewal: ReadingRenewal,
    /// The newest count of split huge pages, and the time when it was first seen.
    splits: Option<(u64, Duration)>,
}

/// A request to read all processes anew, whatever the budget: a person waits for what a scan has saved.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ReadingRenewal {
    None,
    /// A renewal for the processes in the next sample.
    Requested,
    /// A renewal for these processes, where the last attempt was before this time. Processes that start meanwhile go by the budget.
    Since(Duration, BTreeSet<ProcessId>),
}

/// The work of the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReaderState {
    Idle,
    /// It reads processes that were never read.
    ReadsFirst,
    Reads,
    /// It reads for a renewal, which the budget does not pay for.
    Renews,
}

impl MergeSchedule {
    /// Creates a schedule with the accounts of an earlier reader.
    pub fn new(kept: LedgerEntries) -> Self {
        Self {
            readings: BTreeMap::new(),
            attempts: BTreeMap::new(),
            twins: BTreeMap::new(),
            ledger: FoldLedger::new(u64::MAX),
            cpu_use: CpuUse::over(CPU_USE_MEMORY),
            written: kept.clone(),
            kept,
            kept_until: None,
            bucket: TokenBucket::new(RESERVE, CPU_SHARE),
            first_bucket: TokenBucket::new(RESERVE, FIRST_CPU_SHARE),
            state: ReaderState::Idle,
            renewal: ReadingRenewal::None,
            splits: None,
        }
    }

    /// Records what the reader has read. A process that can't be read has no reading any more.
    pub fn record_reply(&mut self, reply: MergeReply) {
        match self.state {
            ReaderState::ReadsFirst => self.first_bucket.charge(reply.cpu_seconds),
            ReaderState::Renews => {}
            ReaderState::Idle | ReaderState::Reads => self.bucket.charge(reply.cpu_seconds),
        }
        self.state = ReaderState::Idle;
        for ReadProcess { id, at, reading, zeros, twin_of } in reply.processes {
            self.attempts.insert(id, at);
            match twin_of {
                Some(parent) => drop(self.twins.insert(id, parent)),
                None => drop(self.twins.remove(&id)),
            }
            match reading {
                Some(reading) => drop(self.readings.insert(id, reading)),
                None => drop(self.readings.remove(&id)),
            }
            // Without a new count the last one stays: a first look would take all freed zeros for a program's own.
            if let Some(zeros) = zeros {
                self.ledger.record_look(id, zeros);
            }
        }
    }

    /// Fills the readings into a sample, and drops those of processes that are not in it.
    pub fn fill(&mut self, sample: &mut Sample) {
        let mut ids: Vec<ProcessId> = sample.processes.iter().map(|process| process.id).collect();
        ids.sort_unstable();
        let is_there = |id: &ProcessId| ids.binary_search(id).is_ok();
        self.readings.retain(|id, _| is_there(id));
        self.attempts.retain(|id, _| is_there(id));
        self.twins.retain(|id, _| is_there(id));
        let kept_until = *self.kept_until.get_or_insert(sample.at.saturating_add(KEPT));
        for (id, entry) in self.kept.extract_if(.., |id, _| is_there(id)) {
            self.ledger.restore(id, entry);
        }
        if sample.at >= kept_until {
            self.kept.clear();
        }
        self.ledger.retain(|id| is_there(&id));
        if let Some(total) = sample.host.memory.value().and_then(|memory| memory.total) {
            self.ledger.set_host_bytes(total);
        }
        if let Some(splits) = sample.host.vmstat.value().and_then(|vmstat| vmstat.thp_split_page) {
            let known = self.splits.get_or_insert((splits, Duration::ZERO));
            if known.0 != splits {
                *known = (splits, sample.at);
            }
        }
        self.cpu_use.record(sample.at, sample.processes.iter().map(|process| (process.id, process.cpu_ticks)));
        let losses = sample.split_losses;
        for process in &mut sample.processes {
            // A parent that is not in the sample has no figures there.
            let parent = self.twins.get(&process.id);
            process.is_twin = parent.is_some_and(|parent| ids.binary_search_by_key(parent, |id| id.pid).is_ok());
            if process.is_twin {
                continue;
            }
            process.merge_reading = self.readings.get(&process.id).copied();
            process.folded_bytes = self.ledger.folded_bytes(process.id);
            let split = |entry: &FoldEntry| {
                SplitMemory::new(entry.split_bytes(), entry.huge_bytes(), self.cpu_use.cpus(process.id), &losses)
            };
            process.earlier_zero_bytes = self.ledger.entry(process.id).map(FoldEntry::earlier_zero_bytes);
            process.split = self.ledger.entry(process.id).map(split);
        }
    }

    /// Returns the next request; `None` if the reader is busy, the budget used up, or nothing due. New processes come
    /// first, for zeros that are there at the first reading count as never written.
    pub fn next_request(&mut self, sample: &Sample) -> Option<MergeRequest> {
        self.bucket.refill(sample.at);
        self.first_bucket.refill(sample.at);
        if self.state != ReaderState::Idle {
            return None;
        }
        if let Some(processes) = self.renewals(sample) {
            self.state = ReaderState::Renews;
            return Some(self.request_of(processes, RENEWAL_CPU_SECONDS, sample));
        }
        let is_due = |last: Duration| {
            // One reading follows the last split.
            let is_splitting = self.splits.is_some_and(|(_, since)| last < since.saturating_add(SPLITTING_PAUSE));
            sample.at.saturating_sub(last) >= if is_splitting { SPLITTING_PAUSE } else { PAUSE }
        };
        let mut due: Vec<(Option<Duration>, ProcessId)> = self
            .candidates(sample)
            .map(|process| (self.attempts.get(&process.id).copied(), process.id))
            .filter(|(last, _)| last.is_none_or(is_due))
            .collect();
        due.sort_unstable();
        let mut processes: Vec<ProcessId> = due.iter().map(|(_, id)| *id).collect();
        let new = due.partition_point(|(last, _)| last.is_none());
        let cpu_seconds = if new > 0 && self.first_bucket.tokens() > 0.0 {
            processes.truncate(new);
            self.state = ReaderState::ReadsFirst;
            self.first_bucket.tokens()
        } else if !processes.is_empty() && self.bucket.tokens() > 0.0 {
            self.state = ReaderState::Reads;
            self.bucket.tokens()
        } else {
            return None;
        };
        Some(self.request_of(processes, cpu_seconds, sample))
    }

    fn request_of(&mut self, processes: Vec<ProcessId>, cpu_seconds: f64, sample: &Sample) -> MergeRequest {
        let (at, page_size, account) = (sample.at, sample.page_size, self.account_to_write());
        MergeRequest { processes, at, cpu_seconds, page_size, account }
    }

    /// Has all processes read anew.
    pub fn renew(&mut self) {
        self.renewal = ReadingRenewal::Requested;
    }

    /// Ends what [`Self::renew`] has begun: readings go by the budget again.
    pub fn cancel_renewal(&mut self) {
        self.renewal = ReadingRenewal::None;
    }

    /// Returns true until all processes were read that [`Self::renew`] is about.
    pub fn is_renewing(&self) -> bool {
        self.renewal != ReadingRenewal::None
    }

    /// Returns the processes that are to be read anew, the one that was read longest ago first. `None`: the renewal is done,
    /// or there is none.
    fn renewals(&mut self, sample: &Sample) -> Option<Vec<ProcessId>> {
        let (since, ids) = match std::mem::replace(&mut self.renewal, ReadingRenewal::None) {
            ReadingRenewal::None => return None,
            ReadingRenewal::Requested => (sample.at, self.candidates(sample).map(|process| process.id).collect()),
            ReadingRenewal::Since(since, ids) => (since, ids),
        };
        let mut due: Vec<(Option<Duration>, ProcessId)> = self
            .candidates(sample)
            .filter(|process| ids.contains(&process.id))
            .map(|process| (self.attempts.get(&process.id).copied(), process.id))
            .filter(|(last, _)| last.is_none_or(|last| last < since))
            .collect();
        due.sort_unstable();
        if due.is_empty() {
            return None;
        }
        self.renewal = ReadingRenewal::Since(since, ids);
        Some(due.into_iter().map(|(_, id)| id).collect())
    }

    /// Returns the processes that are worth a reading. What was read stays true only if it is read again, also where merging
    /// was switched off since: a write and a collapse end what splits have freed.
    pub fn candidates<'a>(&'a self, sample: &'a Sample) -> impl Iterator<Item = &'a ProcessSample> {
        let is_worth_it =
            move |process: &&ProcessSample| process.may_merge() || self.ledger.folded_bytes(process.id).is_some();
        sample.processes.iter().filter(is_worth_it)
    }

    /// Returns the accounts of all processes, if they have changed since they were last written.
    pub fn account_to_write(&mut self) -> Option<LedgerEntries> {
        let mut now = self.kept.clone();
        now.extend(self.ledger.entries());
        let is_written = now.len() == self.written.len()
            && now.iter().all(|(id, entry)| {
                self.written.get(id).is_some_and(|written| written.is_within(WRITE_GRANULARITY, entry))
            });
        if is_written {
            return None;
        }
        self.written.clone_from(&now);
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use crate::fold::ZeroReading;
    use crate::kernel::{HostReadings, KsmStat, Vmstat};
    use crate::reading::Reading;

    use super::*;

    fn id(pid: u32) -> ProcessId {
        ProcessId { pid, start_ticks: 1 }
    }

    fn sample(seconds: u64, pids: &[u32]) -> Sample {
        let process = |pid: &u32| ProcessSample {
            ksm: KsmStat { mergeable: Some(true), ..KsmStat::default() },
            ..ProcessSample::new(id(*pid), "guest".into(), true)
        };
        Sample {
            at: Duration::from_secs(seconds),
            page_size: 4096,
            processes: pids.iter().map(process).collect(),
            ..Sample::default()
        }
    }

    fn reply(seconds: u64, pids: &[u32], cpu_seconds: f64) -> MergeReply {
        let read = |pid: &u32| ReadProcess {
            id: id(*pid),
            at: Duration::from_secs(seconds),
            reading: Some(MergeReading { saved_pages: u64::from(*pid), ..MergeReading::default() }),
            zeros: Some(ZeroReading { huge_bytes: 4 << 20, ..ZeroReading::default() }),
            twin_of: None,
        };
        MergeReply { processes: pids.iter().map(read).collect(), cpu_seconds }
    }

    fn next(schedule: &mut MergeSchedule, sample: &Sample) -> Option<Vec<u32>> {
        schedule.next_request(sample).map(|request| request.processes.iter().map(|id| id.pid).collect())
    }

    #[test]
    fn a_renewal_is_of_the_processes_that_were_there_and_ends() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        schedule.renew();
        assert_eq!(next(&mut schedule, &sample(1, &[1])), Some(vec![1]));
        schedule.record_reply(reply(1, &[1], 0.0));
        // A user starts another process at each turn.
        let mut pids = vec![1];
        for pid in 2..9 {
            pids.push(pid);
            next(&mut schedule, &sample(1, &pids));
            assert!(!schedule.is_renewing(), "{pid}");
            schedule.record_reply(reply(1, &pids[1..], 0.0));
        }
        schedule.renew();
        assert_eq!(next(&mut schedule, &sample(2, &[1])), Some(vec![1]), "long before it is due");
        schedule.cancel_renewal();
        schedule.record_reply(MergeReply { processes: Vec::new(), cpu_seconds: 0.0 });
        assert_eq!(next(&mut schedule, &sample(2, &[1])), None);
    }

    #[test]
    fn processes_are_read_more_often_while_huge_pages_are_split() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        let at = |seconds: u64, splits: u64| {
            let vmstat = Vmstat { thp_split_page: Some(splits), ..Vmstat::default() };
            let host = HostReadings { vmstat: Reading::Value(vmstat), ..HostReadings::default() };
            Sample { host, ..sample(seconds, &[1]) }
        };
        let reads = |schedule: &mut MergeSchedule, seconds: u64, splits: u64| {
            let mut now = at(seconds, splits);
            schedule.fill(&mut now);
            let is_read = schedule.next_request(&now).is_some();
            if is_read {
                schedule.record_reply(reply(seconds, &[1], 0.0));
            }
            is_read
        };
        // The first splits are those since boot.
        let seen: Vec<u64> = (10..25)
            .filter(|second| {
                reads(
                    &mut schedule,
                    *second,
                    7 + u64::from((13..15).contains(second)) + 2 * u64::from(*second >= 15),
                )
            })
            .collect();
        assert_eq!(seen, [10, 13, 14, 15, 16, 21]);
    }

    #[test]
    fn new_processes_are_read_first_and_then_the_one_that_was_read_longest_ago() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        assert_eq!(next(&mut schedule, &sample(100, &[1, 2])), Some(vec![1, 2]));
        assert_eq!(next(&mut schedule, &sample(101, &[1, 2])), None, "the reader is busy");
        schedule.record_reply(reply(101, &[2], 0.01));
        assert_eq!(next(&mut schedule, &sample(101, &[1, 2])), Some(vec![1]), "its turn did not come");
        schedule.record_reply(reply(102, &[1], 0.01));
        assert_eq!(next(&mut schedule, &sample(103, &[1, 2])), None, "both were read a moment ago");
        assert_eq!(next(&mut schedule, &sample(110, &[1, 2, 3])), Some(vec![3]));
        schedule.record_reply(reply(110, &[3], 0.01));
        assert_eq!(next(&mut schedule, &sample(111, &[1, 2, 3])), Some(vec![2, 1]));
    }

    #[test]
    fn readings_take_no_more_than_their_share_of_a_cpu() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        schedule.record_reply(reply(90, &[1], 0.0));
        assert!(next(&mut schedule, &sample(100, &[1])).is_some());
        schedule.record_reply(reply(100, &[1], RESERVE + 0.2));
        assert_eq!(next(&mut schedule, &sample(199, &[1])), None);
        assert_eq!(next(&mut schedule, &sample(201, &[1])), Some(vec![1]));
    }

    #[test]
    fn a_renewal_reads_all_at_once_and_what_it_takes_is_not_missed_later() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        schedule.record_reply(reply(90, &[1, 2], 0.0));
        assert!(next(&mut schedule, &sample(100, &[1, 2])).is_some());
        schedule.renew();
        assert_eq!(next(&mut schedule, &sample(101, &[1, 2])), None, "the thread is busy");
        schedule.record_reply(reply(100, &[1, 2], RESERVE + 0.2));
        assert_eq!(next(&mut schedule, &sample(102, &[1, 2])), Some(vec![1, 2]), "they were read before it");
        schedule.record_reply(reply(102, &[1], 99.0));
        assert!(schedule.is_renewing());
        assert_eq!(next(&mut schedule, &sample(103, &[1, 2])), Some(vec![2]));
        schedule.record_reply(reply(103, &[2], 99.0));
        assert_eq!((next(&mut schedule, &sample(104, &[1, 2])), schedule.is_renewing()), (None, false));
        assert_eq!(next(&mut schedule, &sample(205, &[1, 2])), Some(vec![1, 2]), "as if there had been none");
    }

    #[test]
    fn a_new_process_waits_for_no_others_readings_but_for_those_of_new_ones() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        schedule.record_reply(reply(90, &[1], 0.0));
        assert!(next(&mut schedule, &sample(100, &[1])).is_some());
        schedule.record_reply(reply(100, &[1], RESERVE + 0.5));
        assert_eq!(
            next(&mut schedule, &sample(110, &[1, 2])),
            Some(vec![2]),
            "the budget of the others is used up"
        );
        schedule.record_reply(reply(110, &[2], RESERVE + 0.2));
        assert_eq!(next(&mut schedule, &sample(120, &[1, 2, 3])), None);
        assert_eq!(next(&mut schedule, &sample(131, &[1, 2, 3])), Some(vec![3]));
    }

    #[test]
    fn a_guest_whose_merging_was_switched_off_is_still_read() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        schedule.record_reply(reply(90, &[1], 0.0));
        let mut off = sample(100, &[1, 2]);
        for process in &mut off.processes {
            process.ksm.mergeable = Some(false);
        }
        assert_eq!(next(&mut schedule, &off), Some(vec![1]), "process 2 never merged");
    }

    #[test]
    fn zeros_that_a_split_freed_are_filled_in_and_those_of_the_first_reading_are_not() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        let read = |zero_mapped_bytes, huge_bytes| {
            let mut reply = reply(1, &[1], 0.0);
            let zeros =
                ZeroReading { zero_mapped_bytes, ksm_zero_bytes: 4096, huge_bytes, ..ZeroReading::default() };
            reply.processes[0].zeros = Some(zeros);
            reply
        };
        let mut filled = sample(1, &[1, 2]);
        schedule.record_reply(read(3 * 4096, 4 << 20));
        schedule.fill(&mut filled);
        assert_eq!(filled.processes[0].folded_bytes, Some(0));
        schedule.record_reply(read(5 * 4096, 2 << 20));
        schedule.fill(&mut filled);
        assert_eq!(filled.processes[0].folded_bytes, Some(2 * 4096));
        assert_eq!(filled.processes[0].earlier_zero_bytes, Some(2 * 4096));
        assert_eq!(filled.processes[0].merge_reading.unwrap().saved_pages, 1);
        assert_eq!((filled.processes[1].merge_reading, filled.processes[1].folded_bytes), (None, None));
    }

    #[test]
    fn huge_pages_that_ksmd_split_cost_what_their_process_is_busy_also_after_a_restart() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        let read = |huge_mib: u64| {
            let mut reply = reply(1, &[1, 2], 0.0);
            for process in &mut reply.processes {
                process.zeros = Some(ZeroReading {
                    huge_bytes: huge_mib << 20,
                    small_bytes: Some((1024 - huge_mib) << 20),
                    is_tracked: true,
                    ..ZeroReading::default()
                });
            }
            reply
        };
        // Process 1 has used a CPU since boot, and process 2 none.
        let busy = |seconds: u64| {
            let mut sample = sample(seconds, &[1, 2]);
            sample.processes[0].cpu_ticks = seconds * 100;
            sample
        };
        let split = |schedule: &mut MergeSchedule, seconds| {
            let mut filled = busy(seconds);
            schedule.fill(&mut filled);
            let figures = |split: SplitMemory| (split.bytes >> 20, split.cost.as_millis());
            filled.processes.iter().map(|process| process.split.map(figures)).collect::<Vec<_>>()
        };
        assert_eq!(split(&mut schedule, 999), [None, None], "nothing was read");
        schedule.record_reply(read(1024));
        assert_eq!(split(&mut schedule, 1000), [Some((0, 0)); 2]);
        schedule.record_reply(read(512));
        let half = [Some((512, 125)), Some((512, 0))];
        assert_eq!(split(&mut schedule, 1000), half, "a quarter of the CPU time of half the accesses");
        let mut dear = Sample { split_losses: [0.5; 3].try_into().unwrap(), ..busy(1000) };
        schedule.fill(&mut dear);
        assert_eq!(dear.processes[0].split.unwrap().cost.as_millis(), 250, "by this host's losses");
        let written = schedule.next_request(&busy(1001)).unwrap().account.unwrap();
        assert_eq!(split(&mut MergeSchedule::new(written), 1002), half);
    }

    #[test]
    fn a_restart_knows_the_zeros_that_were_freed_before_it() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        let read = |zero_mib: u64, huge_mib: u64| {
            let mut reply = reply(1, &[1, 2], 0.0);
            let zeros = ZeroReading {
                zero_mapped_bytes: zero_mib << 20,
                huge_bytes: huge_mib << 20,
                ..ZeroReading::default()
            };
            reply.processes[0].zeros = Some(zeros);
            reply
        };
        schedule.record_reply(read(0, 100));
        schedule.record_reply(read(60, 20));
        schedule.fill(&mut sample(1, &[1, 2]));
        let account = |schedule: &mut MergeSchedule, seconds| {
            schedule.next_request(&sample(seconds, &[1, 2])).unwrap().account
        };
        let written = account(&mut schedule, 10).unwrap();
        schedule.record_reply(read(60, 20));
        assert_eq!(account(&mut schedule, 20), None, "nothing has changed");
        let mut next = MergeSchedule::new(written.clone());
        let mut filled = sample(30, &[1]);
        next.fill(&mut filled);
        assert_eq!(filled.processes[0].folded_bytes, Some(60 << 20), "before anything is read");
        // Process 2 is found later.
        next.fill(&mut sample(31, &[1, 2]));
        assert_eq!(account(&mut next, 32), None);
        let mut late = MergeSchedule::new(written);
        late.fill(&mut sample(30, &[2]));
        late.fill(&mut sample(630, &[2]));
        let mut filled = sample(631, &[1, 2]);
        late.fill(&mut filled);
        let folded: Vec<_> = filled.processes.iter().map(|process| process.folded_bytes).collect();
        assert_eq!(folded, [None, Some(0)], "it was gone for too long");
    }

    #[test]
    fn a_process_with_the_memory_map_of_its_parent_has_no_figures_of_its_own() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        let mut read = reply(1, &[1, 2, 3], 0.0);
        for (n, parent) in [(1, 1), (2, 77)] {
            let process = &mut read.processes[n];
            (process.reading, process.zeros, process.twin_of) = (None, None, Some(parent));
        }
        schedule.record_reply(read);
        let mut filled = sample(1, &[1, 2, 3]);
        schedule.fill(&mut filled);
        let twins: Vec<bool> = filled.processes.iter().map(|process| process.is_twin).collect();
        assert_eq!(twins, [false, true, false], "the parent of process 3 is not in the sample");
        assert_eq!((filled.processes[1].merge_reading, filled.processes[1].folded_bytes), (None, None));
        // Its parent has ended, or it has executed another program.
        schedule.record_reply(reply(2, &[2], 0.0));
        schedule.fill(&mut filled);
        assert!(!filled.processes[1].is_twin && filled.processes[1].folded_bytes.is_some());
    }

    #[test]
    fn a_process_that_can_not_be_read_any_more_has_no_reading() {
        let mut schedule = MergeSchedule::new(LedgerEntries::new());
        schedule.record_reply(reply(1, &[1, 2], 0.0));
        let mut unread = reply(2, &[1], 0.0);
        (unread.processes[0].reading, unread.processes[0].zeros) = (None, None);
        schedule.record_reply(unread);
        let mut filled = sample(3, &[1]);
        schedule.fill(&mut filled);
        // The zeros that were freed still are: a new first look would take them for the program's own.
        assert_eq!((filled.processes[0].merge_reading, filled.processes[0].folded_bytes), (None, Some(0)));
        assert!(schedule.readings.is_empty(), "process 2 has ended");
    }
}
