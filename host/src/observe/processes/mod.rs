//! The table of processes. The few with mergeable memory are read at each tick, the many others rarely.

mod flags;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ksmith_core::kernel::{Ksm, RunState};
use ksmith_core::sample::{GivenUp, ProcessId, Sample};

use self::flags::FLAG_DELAY;
use super::asked::{LINES_EVERY, SampleReader};
use super::connector::ProcessEvent;
use super::discovery::ProcessDiscovery;
use super::look::{PlainReading, look_at_figures, look_at_name};
use super::plain::{PlainState, PlainTable};
use super::proc_dir::ProcDir;
use super::schedule::{FIRST_DELAY, OLD, ReadSchedule, delay, round, spread};
use super::scratch::ReadBuffer;
use super::watch_budget::{CountedProcess, CountedProcesses, WatchAdmission, WatchBudget};
use super::watched::{WantedFigures, WatchedFiles, WatchedProcess, WatchedReading};
use crate::hypervisor::{may_be_vm, printable};
use crate::proc_file::UnansweredRead;
use crate::root::Root;

/// Plain processes that one sample may always read. On a host with many processes it may read more.
const LOOKS_LEAST: usize = 200;

/// While ksmd sleeps, each watched process is read in full once in this many samples.
const FULL_ROUND: u32 = 16;

/// Watched processes that each sample reads while ksmd sleeps and the kernel reports exits. Of more processes each is
/// read once in this many samples. The kernel takes 1.4 us to write the state of one process in the CPU's caches, and
/// several times as long after ksmith has slept for a second.
const ALWAYS_READ: usize = 32;
const STATE_ROUND: u32 = 4;

/// Executed programs of one batch of events whose names are read at once. The others wait for their schedule.
const NAMES_READ: u32 = 16;

/// Interval of reading the PID of a kernel thread or a zombie without events, because it may be reused.
const MEMORYLESS_ROUND: Duration = Duration::from_secs(600);

/// A delay that makes a process due at the next sample, however soon that comes, and not in this one.
const NEXT: Duration = Duration::from_nanos(1);

/// Processes that one batch reads.
const AT_ONCE: usize = 128;

/// The outcome of starting to watch a process.
enum WatchStart {
    Begun,
    /// It has no mergeable memory and is no hypervisor.
    NotWorth,
    /// The process did not answer.
    Silent(UnansweredRead),
    /// The sample's time ended before its turn.
    Late,
    /// Its command line is deferred, and it may be a hypervisor.
    Unnamed,
    /// Its user has as many watched processes as one user may have.
    OverBudget(CountedProcess),
}

/// The table of known processes.
pub(super) struct ProcessTable {
    root: Root,
    proc: Option<ProcDir>,
    watched: BTreeMap<ProcessId, WatchedProcess>,
    plain: PlainTable,
    schedule: ReadSchedule,
    /// The first two readings of processes that an event reported, which do not wait for a sample.
    young: ReadSchedule,
    flag_schedule: ReadSchedule,
    discovery: ProcessDiscovery,
    pub(super) asked: SampleReader,
    pub(super) budget: WatchBudget,
    /// Plain processes beyond their users' budgets.
    counted: CountedProcesses,
    /// Plain processes that did not answer.
    silent: BTreeMap<u32, UnansweredRead>,
    /// Processes that this sample began to watch.
    new: Vec<ProcessId>,
    scans: u32,
    samples: u32,
    last: Duration,
    page_size: u64,
    /// KSM at the previous sample.
    ksm: Ksm,
    /// True if the next sample reads every watched process.
    is_close: bool,
    /// True if the next sample reads every process.
    is_for_all: bool,
}

impl ProcessTable {
    pub(super) fn new(root: &Root) -> Self {
        Self {
            root: root.clone(),
            proc: None,
            watched: BTreeMap::new(),
            plain: PlainTable::default(),
            schedule: ReadSchedule::default(),
            young: ReadSchedule::default(),
            flag_schedule: ReadSchedule::default(),
            discovery: ProcessDiscovery::new(root),
            asked: SampleReader::new(root),
            budget: WatchBudget::default(),
            counted: CountedProcesses::default(),
            silent: BTreeMap::new(),
            new: Vec::new(),
            scans: 0,
            samples: 0,
            last: Duration::ZERO,
            page_size: 1,
            ksm: Ksm::default(),
            is_close: false,
            is_for_all: false,
        }
    }

    /// Handles a batch of events. Returns true if a sample should be taken at once, because a possible hypervisor was
    /// executed or a watched process has ended.
    pub(super) fn notice_all(
        &mut self,
        events: impl IntoIterator<Item = ProcessEvent>,
        now: Duration,
        scratch: &mut ReadBuffer,
    ) -> bool {
        let (mut names, mut is_urgent) = (0, false);
        for event in events {
            let is_watched = matches!(event, ProcessEvent::Exited(pid) if self.watched_mut(pid).is_some());
            self.notice(event, now);
            let mut is_machine = false;
            if let ProcessEvent::Exec(pid) = event
                && names < NAMES_READ
                && let Some(proc) = &self.proc
            {
                names += 1;
                is_machine = proc.read(pid, "comm", scratch).value().is_some_and(|comm| may_be_vm(comm.trim_end()));
                if is_machine && self.watched_mut(pid).is_none() {
                    self.enter(pid, 0, now);
                }
            }
            is_urgent |= is_watched || is_machine;
        }
        is_urgent
    }

    /// Handles the start, exec or exit of a process.
    pub(super) fn notice(&mut self, event: ProcessEvent, now: Duration) {
        match event {
            ProcessEvent::Started(pid) => {
                self.forget(pid);
                self.enter_young(pid, now);
            }
            ProcessEvent::Exec(pid) => match self.watched_mut(pid) {
                Some(watched) => watched.rename(),
                None => self.enter_young(pid, now),
            },
            ProcessEvent::Exited(pid) => self.forget(pid),
            ProcessEvent::Lost => {
                self.discovery.set_events(true);
                self.discovery.demand();
                self.plain.drop_memoryless();
            }
            // Kernel threads wait for an event, and no event will come: drop them.
            ProcessEvent::Ended => {
                self.discovery.set_events(false);
                self.discovery.demand();
                self.plain.clear();
                self.silent.clear();
                self.counted = CountedProcesses::default();
                self.schedule.clear();
                self.young.clear();
                self.flag_schedule.clear();
            }
        }
    }

    /// Makes the next sample scan all of `/proc`.
    pub(super) fn refresh(&mut self) {
        self.discovery.demand();
    }

    /// Makes the next sample read every watched process, whether ksmd sleeps or not.
    pub(super) fn look_closely(&mut self) {
        self.is_close = true;
    }

    /// Makes the next sample read every process.
    pub(super) fn look_at_all(&mut self) {
        self.is_for_all = true;
        self.discovery.demand();
    }

    /// Fills in the processes of a sample.
    pub(super) fn read(&mut self, scratch: &mut ReadBuffer, sample: &mut Sample) {
        let now = sample.at;
        self.page_size = sample.page_size;
        if self.proc.is_none() {
            self.proc = ProcDir::open(&self.root).ok();
        }
        let Some(proc) = self.proc.take() else { return };
        let is_first = self.scans == 0;
        self.asked.begin(is_first, now);
        if self.discovery.is_due(now, scratch) {
            self.scan(&proc, now);
        }
        let is_for_all = std::mem::take(&mut self.is_for_all);
        if is_for_all {
            self.plain.make_due(now).into_iter().for_each(|pid| self.schedule.push(now, pid));
        }
        let limit = if is_first || is_for_all { usize::MAX } else { self.looks_for(now.saturating_sub(self.last)) };
        self.last = now;
        // What is known to merge comes before what might.
        self.read_watched(&proc, sample);
        self.look_at_due(&proc, now, limit, scratch);
        self.look_at_flags(&proc, now, scratch);
        self.read_new(&proc, sample);
        for (pid, unanswered) in &self.silent {
            sample.given_up.add(true, || GivenUp::new(*pid, name_of(&proc, *pid, scratch), unanswered.to_string()));
        }
        for over in self.counted.counts() {
            sample.given_up.add_over_budget(over.count, over.merging, || {
                GivenUp::new(over.first, name_of(&proc, over.first, scratch), self.budget.refusal(over.user))
            });
        }
        sample.hidden_processes += self.plain.hidden();
        self.proc = Some(proc);
    }

    /// Returns twice the readings that a round needs in `elapsed`, so that a burst of new processes is worked off.
    fn looks_for(&self, elapsed: Duration) -> usize {
        let rounds = elapsed.as_secs_f64() / round(self.plain.len()).as_secs_f64();
        LOOKS_LEAST.max((2.0 * rounds * self.plain.len() as f64) as usize)
    }

    /// Finds processes that no event reported, and drops those that have ended. It can't see that a PID was
    /// reused.
    fn scan(&mut self, proc: &ProcDir, now: Duration) {
        let Ok(pids) = proc.pids() else { return };
        let looks = if self.scans == 0 { OLD } else { 0 };
        self.scans = self.scans.wrapping_add(1);
        for pid in pids {
            if self.watched_mut(pid).is_some() {
                continue;
            }
            match self.plain.get_mut(pid) {
                Some(plain) => plain.scan = self.scans,
                None => self.enter(pid, looks, now),
            }
        }
        self.plain.keep_found_by(self.scans);
        let plain = &self.plain;
        self.silent.retain(|pid, _| plain.get(*pid).is_some());
        self.counted.keep(|pid| plain.get(pid).is_some());
    }

    fn enter(&mut self, pid: u32, looks: u8, due: Duration) {
        self.plain.enter(pid, looks, due, self.scans);
        self.schedule.push(due, pid);
    }

    fn enter_young(&mut self, pid: u32, now: Duration) {
        self.enter(pid, 0, now + FIRST_DELAY);
        self.young.push(now + FIRST_DELAY, pid);
    }

    /// Returns the time of the first reading of a process that an event reported.
    pub(super) fn next_young(&self) -> Option<Duration> {
        self.young.next()
    }

    /// Reads the new processes that are due. Returns true if one of them has mergeable memory or may get some.
    pub(super) fn look_at_young(&mut self, now: Duration, scratch: &mut ReadBuffer) -> bool {
        let Some(proc) = self.proc.take() else { return false };
        self.asked.begin(false, now);
        self.new.clear();
        let mut due_now = Vec::new();
        while due_now.len() < LOOKS_LEAST {
            let Some((due, pid)) = self.young.pop_due(now) else { break };
            // A process that a sample has read meanwhile is due at another time.
            if self.plain.get(pid).is_some_and(|plain| plain.due == due) {
                due_now.push((pid, true));
            }
        }
        self.look_at(&proc, now, &due_now, scratch);
        self.proc = Some(proc);
        !self.new.is_empty()
    }

    fn look_at_due(&mut self, proc: &ProcDir, now: Duration, limit: usize, scratch: &mut ReadBuffer) {
        let mut looks = 0;
        while looks < limit && !self.asked.is_late() {
            let mut due_now = Vec::new();
            while due_now.len() < AT_ONCE.min(limit - looks) {
                let Some((due, pid)) = self.schedule.pop_due(now) else { break };
                let Some(plain) = self.plain.get(pid).filter(|plain| plain.due == due) else { continue };
                // Events report a new program. Without events only the name shows it.
                due_now.push((pid, plain.looks <= OLD || !self.discovery.has_events()));
            }
            if due_now.is_empty() {
                return;
            }
            looks += due_now.len();
            self.look_at(proc, now, &due_now, scratch);
        }
    }

    /// Reads plain processes, for those with `true` their names first.
    fn look_at(&mut self, proc: &ProcDir, now: Duration, pids: &[(u32, bool)], scratch: &mut ReadBuffer) {
        let mut found: BTreeMap<u32, PlainReading> = BTreeMap::new();
        for (pid, _) in pids.iter().filter(|(_, with_name)| *with_name) {
            found.extend(look_at_name(proc, *pid, scratch).map(|look| (*pid, look)));
        }
        let rest: Vec<u32> = pids.iter().map(|(pid, _)| *pid).filter(|pid| !found.contains_key(pid)).collect();
        let wants: Vec<(u32, &str)> = rest.iter().map(|pid| (*pid, "ksm_stat")).collect();
        for (pid, told) in rest.into_iter().zip(self.asked.read_files(proc, &wants)) {
            found.insert(pid, look_at_figures(proc, pid, told, scratch));
        }
        for (pid, _) in pids {
            if let Some(found) = found.remove(pid) {
                self.conclude(proc, *pid, now, found);
            }
        }
    }

    fn conclude(&mut self, proc: &ProcDir, pid: u32, now: Duration, mut found: PlainReading) {
        let mut over_budget = None;
        if let PlainReading::Promising = found {
            match self.watch(proc, pid, false) {
                WatchStart::Begun => return self.drop_plain(pid),
                WatchStart::NotWorth => {}
                WatchStart::OverBudget(process) => over_budget = Some(process),
                WatchStart::Silent(unanswered) => found = PlainReading::Silent(unanswered),
                WatchStart::Late => found = PlainReading::Late,
                WatchStart::Unnamed => found = PlainReading::Unnamed,
            }
        }
        match &found {
            PlainReading::Gone => return self.drop_plain(pid),
            PlainReading::Silent(unanswered) => {
                self.silent.insert(pid, unanswered.clone());
                self.counted.remove(pid);
                return self.look_again(pid, now + SampleReader::rest(pid).max(FIRST_DELAY));
            }
            PlainReading::Late => return self.look_again(pid, now + NEXT),
            PlainReading::HeldBack => {
                return self.look_again(pid, now + NEXT.max(self.asked.held_back_pause(pid)));
            }
            PlainReading::Unnamed => return self.look_again(pid, now + LINES_EVERY),
            _ => {}
        }
        self.silent.remove(&pid);
        match over_budget {
            Some(process) => self.counted.insert(pid, process),
            None => self.counted.remove(pid),
        }
        let has_events = self.discovery.has_events();
        let round = round(self.plain.len());
        let state = match found {
            PlainReading::Hidden => PlainState::Hidden,
            PlainReading::Memoryless => PlainState::Memoryless,
            _ => PlainState::Open,
        };
        self.plain.set_state(pid, state);
        let Some(plain) = self.plain.get_mut(pid) else { return };
        let is_new = plain.looks <= OLD;
        // Spreads old processes over the round.
        let pause = match plain.looks {
            OLD => spread(pid, round),
            looks => delay(looks.saturating_add(1)).unwrap_or(round),
        };
        plain.looks = plain.looks.saturating_add(1);
        plain.due = match state {
            // An event will report the reuse of the PID.
            PlainState::Memoryless if has_events => return,
            PlainState::Memoryless => now + MEMORYLESS_ROUND,
            _ => now + pause,
        };
        self.schedule.push(plain.due, pid);
        if plain.looks == 1 && has_events {
            self.young.push(plain.due, pid);
        }
        if matches!(found, PlainReading::Nothing { is_sure: false }) && is_new && plain.flags_due.is_zero() {
            plain.flags_due = now + FLAG_DELAY;
            self.flag_schedule.push(plain.flags_due, pid);
        }
    }

    /// Schedules another reading of a plain process, as if it had not been read this time.
    fn look_again(&mut self, pid: u32, due: Duration) {
        let Some(plain) = self.plain.get_mut(pid) else { return };
        plain.due = due;
        self.schedule.push(due, pid);
        if plain.looks <= 1 && self.discovery.has_events() {
            self.young.push(due, pid);
        }
    }

    /// Starts watching a process, unless it has no mergeable memory and its program is no hypervisor after all.
    fn watch(&mut self, proc: &ProcDir, pid: u32, is_marked: bool) -> WatchStart {
        let mut watched =
            match WatchedProcess::open(proc, pid, is_marked, &mut self.asked).map_err(|unread| *unread) {
                Ok(watched) => watched,
                Err(WatchedReading::Silent(_, unanswered)) => return WatchStart::Silent(unanswered),
                Err(WatchedReading::Late(_)) => return WatchStart::Late,
                Err(_) => return WatchStart::NotWorth,
            };
        let Some(told) = self.read_files(proc, [(pid, WantedFigures::ALL)]).pop() else { return WatchStart::Late };
        // One that does not tell may.
        let (mut may_merge, mut bytes) = (true, 0);
        match watched.read(proc, self.page_size, told, &mut self.asked) {
            WatchedReading::Here(process) => (may_merge, bytes) = (process.may_merge(), process.known_rss_bytes()),
            WatchedReading::Silent(_, unanswered) => return WatchStart::Silent(unanswered),
            WatchedReading::Late(_) => return WatchStart::Late,
            _ if watched.is_vm() => {}
            // Only its command line tells whether it is a hypervisor.
            _ if watched.is_unnamed() => return WatchStart::Unnamed,
            _ => return WatchStart::NotWorth,
        }
        let user = proc.process(pid).ok().and_then(|directory| directory.accountable_uid());
        match self.budget.request_place(user, watched.id, bytes) {
            WatchAdmission::Granted => {}
            WatchAdmission::GrantedInPlaceOf(least) => self.count_only(least, user),
            WatchAdmission::Refused => return WatchStart::OverBudget(CountedProcess { user, may_merge }),
        }
        self.new.push(watched.id);
        self.watched.insert(watched.id, watched);
        WatchStart::Begun
    }

    /// Watches a process no more, for another of its user.
    fn count_only(&mut self, id: ProcessId, user: Option<u32>) {
        let may_merge = self.watched.get(&id).is_some_and(WatchedProcess::may_merge);
        self.forget(id.pid);
        self.enter(id.pid, OLD, self.last + round(self.plain.len()));
        self.counted.insert(id.pid, CountedProcess { user, may_merge });
    }

    /// Reads the processes that this sample began to watch.
    fn read_new(&mut self, proc: &ProcDir, sample: &mut Sample) {
        let new = std::mem::take(&mut self.new);
        if !new.is_empty() {
            self.read_these(proc, new.into_iter().map(|id| (id, false)).collect(), sample);
            sample.processes.sort_unstable_by_key(|process| process.id);
        }
    }

    fn read_watched(&mut self, proc: &ProcDir, sample: &mut Sample) {
        // Those that a look between two samples has found are watched already.
        self.new.clear();
        // If ksmd slept and no process left the zero page, no figure of a process has changed. The memory that a
        // process offers may still change, so each is read in full once in `FULL_ROUND` samples.
        let sleeps = matches!(sample.ksm.run_state(), Some(RunState::Stopped | RunState::Unmerged));
        let has_slept = sleeps && sample.ksm == self.ksm;
        self.samples = self.samples.wrapping_add(1);
        let is_close = std::mem::take(&mut self.is_close);
        let spares = has_slept && !is_close && self.discovery.has_events() && self.watched.len() > ALWAYS_READ;
        let mut to_read = Vec::with_capacity(self.watched.len());
        for (id, watched) in &self.watched {
            let turn = id.pid.wrapping_add(self.samples);
            match watched.as_before().filter(|_| spares && turn % STATE_ROUND != 0) {
                Some(process) => sample.processes.push(process),
                None => to_read.push((*id, has_slept && turn % FULL_ROUND != 0)),
            }
        }
        self.read_these(proc, to_read, sample);
        sample.processes.sort_unstable_by_key(|process| process.id);
        self.ksm = sample.ksm.clone();
    }

    /// Reads watched processes, for those with `true` without figures that can't have changed.
    fn read_these(&mut self, proc: &ProcDir, ids: Vec<(ProcessId, bool)>, sample: &mut Sample) {
        let wanted = |(id, stood_still): &(ProcessId, bool)| {
            let known = self.watched.get(id).map(|watched| watched.wanted_figures(*stood_still));
            (id.pid, known.unwrap_or(WantedFigures::ALL))
        };
        let wants: Vec<(u32, WantedFigures)> = ids.iter().map(wanted).collect();
        let told = self.read_files(proc, wants);
        let mut leaving = Vec::new();
        for ((id, _), told) in ids.into_iter().zip(told) {
            let Some(watched) = self.watched.get_mut(&id) else { continue };
            let seen = watched.read(proc, sample.page_size, told, &mut self.asked);
            if let Some(given_up) = watched.given_up() {
                sample.given_up.add(false, || given_up);
            }
            match seen {
                WatchedReading::Here(process) => {
                    self.budget.update(id, process.known_rss_bytes());
                    sample.processes.push(process);
                }
                WatchedReading::Denied => sample.hidden_processes += 1,
                WatchedReading::Malformed(why) => {
                    let (name, why) = (watched.name(), format!("its files make no sense: {why}"));
                    sample.given_up.add(true, || GivenUp::new(id.pid, name, why));
                }
                WatchedReading::Uninvolved => leaving.push((id, FIRST_DELAY)),
                // The PID may be reused already.
                WatchedReading::Gone => leaving.push((id, NEXT)),
                WatchedReading::Silent(last, unanswered) => {
                    let (name, why) = (watched.name(), unanswered.to_string());
                    sample.given_up.add(true, || GivenUp::new(id.pid, name, why));
                    sample.processes.extend(last);
                }
                WatchedReading::Late(Some(last)) => sample.processes.push(last),
                WatchedReading::Late(None) => {
                    let (name, why) = (watched.name(), "the time of this sample ran out before its turn");
                    sample.given_up.add(true, || GivenUp::new(id.pid, name, why));
                }
            }
        }
        for (id, pause) in leaving {
            self.forget(id.pid);
            self.enter(id.pid, 0, sample.at + pause);
        }
    }

    /// Reads the files of processes.
    fn read_files(
        &mut self,
        proc: &ProcDir,
        pids: impl IntoIterator<Item = (u32, WantedFigures)>,
    ) -> Vec<WatchedFiles> {
        let pids: Vec<(u32, WantedFigures)> = pids.into_iter().collect();
        let wants: Vec<(u32, &'static str)> =
            pids.iter().flat_map(|(pid, wanted)| wanted.files().map(|file| (*pid, file))).collect();
        let mut answers = self.asked.read_files(proc, &wants).into_iter();
        pids.iter().filter_map(|(_, wanted)| WatchedFiles::from_answers(*wanted, &mut answers)).collect()
    }

    fn watched_mut(&mut self, pid: u32) -> Option<&mut WatchedProcess> {
        let all_of_pid = ProcessId { pid, start_ticks: 0 }..=ProcessId { pid, start_ticks: u64::MAX };
        self.watched.range_mut(all_of_pid).next().map(|(_, watched)| watched)
    }

    /// Drops the entry of this PID.
    fn forget(&mut self, pid: u32) {
        self.drop_plain(pid);
        while let Some(id) = self.watched_mut(pid).map(|watched| watched.id) {
            self.watched.remove(&id);
            self.budget.release(id);
        }
    }

    /// Drops the plain entry of this PID.
    fn drop_plain(&mut self, pid: u32) {
        self.plain.remove(pid);
        self.silent.remove(&pid);
        self.counted.remove(pid);
    }
}

/// Returns the name of a process from `/proc/PID/comm`.
fn name_of(proc: &ProcDir, pid: u32, scratch: &mut ReadBuffer) -> Arc<str> {
    proc.read(pid, "comm", scratch).value().map_or_else(|| "?".into(), |comm| printable(comm).into())
}
