//! The table of processes: the few with mergeable memory are read each tick, the many others looked at rarely.

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::guest_name::may_be_vm;
use ksmith_core::kernel::{Ksm, PidStat, Run};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, Sample};

use super::connector::ProcessEvent;
use super::descriptors::Descriptors;
use super::discovery::Discovery;
use super::figures::{Figures, smaps_say_mergeable};
use super::plain::{PlainTable, State};
use super::proc_dir::ProcDir;
use super::schedule::{FIRST_DELAY, OLD, Schedule, delay, round, spread};
use super::scratch::Scratch;
use super::watched::{Seen, Watched};
use crate::root::Root;

/// Looks at plain processes that one sample may always take; more where so many processes need it.
const LOOKS_LEAST: usize = 200;

/// Kernels before 6.14 say only in `smaps`, which is dear, that memory is mergeable which ksmd has not seen yet:
/// how many of these a sample may read, how long after its start a process is asked, and how often again.
const FLAG_LOOKS: usize = 4;
const FLAG_DELAY: Duration = Duration::from_secs(5);
const FLAG_ROUND: Duration = Duration::from_secs(600);

/// The kernel walks the page tables for `smaps`, some 3 ms for each resident GiB. A sample reads no further `smaps`
/// after so many bytes.
const FLAG_BYTES: u64 = 1 << 30;
/// A process with more, a database say, is never asked: its memory counts from when ksmd first visits it.
const FLAG_LARGEST: u64 = 8 << 30;

/// While ksmd sleeps: in how many samples each watched process is read in full once.
const FULL_ROUND: u32 = 16;

/// While ksmd sleeps and the kernel tells who ends: so many watched processes are looked at in each sample, and of more
/// than that each in one of so many samples. The kernel takes 1.4 us to write down one process's state
/// when it is in the processor's caches, and several times that when ksmith has slept for a second.
const ALWAYS_READ: usize = 32;
const STATE_ROUND: u32 = 4;

/// Of so many programs that were executed the name is read as soon as a batch of events tells of them. The others are
/// looked at in their time.
const NAMES_READ: u32 = 16;

/// Without events: how often to see whether the PID of a kernel thread or a zombie is another's by now.
const MEMORYLESS_ROUND: Duration = Duration::from_secs(600);

/// What a look at a plain process found.
enum Look {
    /// Mergeable memory, or a program that may be a hypervisor.
    Promising,
    /// Nothing. `is_sure`: this kernel would have said so.
    Nothing {
        is_sure: bool,
    },
    Hidden,
    Memoryless,
    Gone,
}

impl<T> From<Reading<T>> for Look {
    /// For readings without a value.
    fn from(reading: Reading<T>) -> Self {
        match reading {
            Reading::Value(_) | Reading::Malformed(_) => Self::Nothing { is_sure: true },
            Reading::Absent => Self::Gone,
            Reading::Denied => Self::Hidden,
        }
    }
}

/// Every process that we know of.
pub(super) struct Processes {
    root: Root,
    proc: Option<ProcDir>,
    watched: BTreeMap<ProcessId, Watched>,
    plain: PlainTable,
    schedule: Schedule,
    /// Of these, the first two looks at each that an event told of: they do not wait for a sample.
    young: Schedule,
    flag_schedule: Schedule,
    discovery: Discovery,
    descriptors: Descriptors,
    scans: u32,
    samples: u32,
    last: Duration,
    /// KSM at the sample before.
    ksm: Ksm,
    /// Whether the next sample reads every watched process.
    is_close: bool,
    /// Whether the next sample is to look at everybody.
    is_for_all: bool,
}

impl Processes {
    pub(super) fn new(root: &Root, descriptors: Descriptors) -> Self {
        Self {
            root: root.clone(),
            proc: None,
            watched: BTreeMap::new(),
            plain: PlainTable::default(),
            schedule: Schedule::default(),
            young: Schedule::default(),
            flag_schedule: Schedule::default(),
            discovery: Discovery::new(root),
            descriptors,
            scans: 0,
            samples: 0,
            last: Duration::ZERO,
            ksm: Ksm::default(),
            is_close: false,
            is_for_all: false,
        }
    }

    /// Takes in a batch of events. Returns whether it is worth looking at once: a program was executed that may be a
    /// hypervisor, or a process that is watched has ended.
    pub(super) fn notice_all(
        &mut self,
        events: impl IntoIterator<Item = ProcessEvent>,
        now: Duration,
        scratch: &mut Scratch,
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

    /// Takes in that a process started, executed a program or exited.
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
            // Kernel threads were put aside until an event would come: begin anew.
            ProcessEvent::Ended => {
                self.discovery.set_events(false);
                self.discovery.demand();
                self.plain.clear();
                self.schedule.clear();
                self.young.clear();
                self.flag_schedule.clear();
            }
        }
    }

    /// Goes through all of `/proc` at the next sample.
    pub(super) fn refresh(&mut self) {
        self.discovery.demand();
    }

    /// Reads every watched process at the next sample, whether ksmd sleeps or not.
    pub(super) fn look_closely(&mut self) {
        self.is_close = true;
    }

    /// Looks at every process at the next sample.
    pub(super) fn look_at_all(&mut self) {
        self.is_for_all = true;
        self.discovery.demand();
    }

    /// Fills in the processes of a sample.
    pub(super) fn read(&mut self, scratch: &mut Scratch, sample: &mut Sample) {
        let now = sample.at;
        if self.proc.is_none() {
            self.proc = ProcDir::open(&self.root).ok();
        }
        let Some(proc) = self.proc.take() else { return };
        let is_first = self.scans == 0;
        if self.discovery.is_due(now, scratch) {
            self.scan(&proc, now);
        }
        let is_for_all = std::mem::take(&mut self.is_for_all);
        if is_for_all {
            self.plain.make_due(now).into_iter().for_each(|pid| self.schedule.push(now, pid));
        }
        let limit = if is_first || is_for_all { usize::MAX } else { self.looks_for(now.saturating_sub(self.last)) };
        self.look_at_due(&proc, now, limit, scratch);
        self.look_at_flags(&proc, now, sample.page_size, scratch);
        self.read_watched(&proc, scratch, sample);
        sample.hidden_processes += self.plain.hidden();
        self.proc = Some(proc);
        self.last = now;
    }

    /// Twice the looks that a round needs in `elapsed`, so that a burst of new processes is worked off.
    fn looks_for(&self, elapsed: Duration) -> usize {
        let rounds = elapsed.as_secs_f64() / round(self.plain.len()).as_secs_f64();
        LOOKS_LEAST.max((2.0 * rounds * self.plain.len() as f64) as usize)
    }

    /// Finds processes that no event told of, and drops those that are gone. It can't see that a PID changed hands.
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
    }

    fn enter(&mut self, pid: u32, looks: u8, due: Duration) {
        self.plain.enter(pid, looks, due, self.scans);
        self.schedule.push(due, pid);
    }

    fn enter_young(&mut self, pid: u32, now: Duration) {
        self.enter(pid, 0, now + FIRST_DELAY);
        self.young.push(now + FIRST_DELAY, pid);
    }

    /// When a process that an event told of is to be looked at for the first time.
    pub(super) fn next_young(&self) -> Option<Duration> {
        self.young.next()
    }

    /// Looks at those that are due. Returns whether one of them has mergeable memory, or may get some.
    pub(super) fn look_at_young(&mut self, now: Duration, scratch: &mut Scratch) -> bool {
        let Some(proc) = self.proc.take() else { return false };
        let before = self.watched.len();
        for _ in 0..LOOKS_LEAST {
            let Some((due, pid)) = self.young.pop_due(now) else { break };
            // One that a sample has looked at meanwhile is due at another time.
            if self.plain.get(pid).is_some_and(|plain| plain.due == due) {
                let found = look(&proc, pid, true, scratch);
                self.conclude(&proc, pid, now, found, scratch);
            }
        }
        self.proc = Some(proc);
        self.watched.len() > before
    }

    fn look_at_due(&mut self, proc: &ProcDir, now: Duration, limit: usize, scratch: &mut Scratch) {
        let mut looks = 0;
        while looks < limit {
            let Some((due, pid)) = self.schedule.pop_due(now) else { return };
            let Some(plain) = self.plain.get(pid).filter(|plain| plain.due == due) else { continue };
            looks += 1;
            // Events tell of a new program; without them only a look at the name does.
            let with_name = plain.looks <= OLD || !self.discovery.has_events();
            let found = look(proc, pid, with_name, scratch);
            self.conclude(proc, pid, now, found, scratch);
        }
    }

    fn conclude(&mut self, proc: &ProcDir, pid: u32, now: Duration, found: Look, scratch: &mut Scratch) {
        let is_watched = matches!(found, Look::Promising) && self.watch(proc, pid, false, scratch);
        if is_watched || matches!(found, Look::Gone) {
            self.plain.remove(pid);
            return;
        }
        let has_events = self.discovery.has_events();
        let round = round(self.plain.len());
        let state = match found {
            Look::Hidden => State::Hidden,
            Look::Memoryless => State::Memoryless,
            _ => State::Open,
        };
        self.plain.set_state(pid, state);
        let Some(plain) = self.plain.get_mut(pid) else { return };
        let is_new = plain.looks <= OLD;
        // An old process joins the round at a place of its own.
        let pause = match plain.looks {
            OLD => spread(pid, round),
            looks => delay(looks.saturating_add(1)).unwrap_or(round),
        };
        plain.looks = plain.looks.saturating_add(1);
        plain.due = match state {
            // Once and for all, as an event will tell when the PID is another's.
            State::Memoryless if has_events => return,
            State::Memoryless => now + MEMORYLESS_ROUND,
            _ => now + pause,
        };
        self.schedule.push(plain.due, pid);
        if plain.looks == 1 && has_events {
            self.young.push(plain.due, pid);
        }
        if matches!(found, Look::Nothing { is_sure: false }) && is_new && plain.flags_due.is_zero() {
            plain.flags_due = now + FLAG_DELAY;
            self.flag_schedule.push(plain.flags_due, pid);
        }
    }

    /// Looks at the flags of a few processes' mappings. Hypervisors are watched anyway and never asked: theirs is
    /// the memory in which this takes long.
    fn look_at_flags(&mut self, proc: &ProcDir, now: Duration, page_size: u64, scratch: &mut Scratch) {
        let (mut looks, mut walked) = (0, 0);
        while looks < FLAG_LOOKS && walked < FLAG_BYTES {
            let Some((due, pid)) = self.flag_schedule.pop_due(now) else { return };
            let Some(plain) = self.plain.get_mut(pid).filter(|plain| plain.flags_due == due) else { continue };
            looks += 1;
            plain.flags_due = now + FLAG_ROUND;
            self.flag_schedule.push(plain.flags_due, pid);
            let stat = proc.read(pid, "stat", scratch).and_then(PidStat::parse);
            let resident = stat.value().map(|stat| stat.rss_pages.saturating_mul(page_size));
            let Some(resident) = resident.filter(|&bytes| bytes <= FLAG_LARGEST) else { continue };
            walked += resident;
            let is_marked = proc.open_file(pid, "smaps").is_ok_and(smaps_say_mergeable);
            if is_marked && self.watch(proc, pid, true, scratch) {
                self.plain.remove(pid);
            }
        }
    }

    /// Watches a process from now on, unless its program turns out not to be a hypervisor after all and it has no
    /// mergeable memory.
    fn watch(&mut self, proc: &ProcDir, pid: u32, is_marked: bool, scratch: &mut Scratch) -> bool {
        let Reading::Value(mut watched) = Watched::open(proc, pid, is_marked, scratch) else { return false };
        let worth = watched.is_vm() || matches!(watched.read(proc, 1, false, scratch), Seen::Here(_));
        if worth {
            if self.descriptors.take(Watched::descriptors_wanted()) {
                let unused = Watched::descriptors_wanted() - watched.keep_open(proc);
                self.descriptors.give_back(unused);
            }
            self.watched.insert(watched.id, watched);
        }
        worth
    }

    fn read_watched(&mut self, proc: &ProcDir, scratch: &mut Scratch, sample: &mut Sample) {
        let mut leaving = Vec::new();
        // ksmd slept, and no page left the zero page: then no process's figures have moved. What a process offers
        // may still change, so each is read in full in one of so many samples.
        let sleeps = matches!(sample.ksm.run_state(), Some(Run::Stopped | Run::Unmerged));
        let has_slept = sleeps && sample.ksm == self.ksm;
        self.samples = self.samples.wrapping_add(1);
        let is_close = std::mem::take(&mut self.is_close);
        let spares = has_slept && !is_close && self.discovery.has_events() && self.watched.len() > ALWAYS_READ;
        for (id, watched) in &mut self.watched {
            let turn = id.pid.wrapping_add(self.samples);
            if spares
                && turn % STATE_ROUND != 0
                && let Some(process) = watched.as_before()
            {
                sample.processes.push(process);
                continue;
            }
            let stood_still = has_slept && turn % FULL_ROUND != 0;
            match watched.read(proc, sample.page_size, stood_still, scratch) {
                Seen::Here(process) => sample.processes.push(process),
                Seen::Denied => sample.hidden_processes += 1,
                Seen::Malformed(why) => tracing::debug!(pid = id.pid, %why, "a process's files make no sense"),
                Seen::Uninvolved => leaving.push((*id, FIRST_DELAY)),
                // Perhaps its PID is another's already.
                Seen::Gone => leaving.push((*id, Duration::ZERO)),
            }
        }
        for (id, pause) in leaving {
            self.forget(id.pid);
            self.enter(id.pid, 0, sample.at + pause);
        }
        self.ksm = sample.ksm.clone();
    }

    fn watched_mut(&mut self, pid: u32) -> Option<&mut Watched> {
        let all_of_pid = ProcessId { pid, start_ticks: 0 }..=ProcessId { pid, start_ticks: u64::MAX };
        self.watched.range_mut(all_of_pid).next().map(|(_, watched)| watched)
    }

    /// Drops whatever is known under this PID.
    fn forget(&mut self, pid: u32) {
        self.plain.remove(pid);
        while let Some(id) = self.watched_mut(pid).map(|watched| watched.id) {
            if let Some(watched) = self.watched.remove(&id) {
                self.descriptors.give_back(watched.descriptors());
            }
        }
    }
}

fn look(proc: &ProcDir, pid: u32, with_name: bool, scratch: &mut Scratch) -> Look {
    if with_name {
        match proc.read(pid, "stat", scratch).and_then(PidStat::parse) {
            Reading::Value(stat) if stat.is_kernel_thread || stat.is_zombie => return Look::Memoryless,
            Reading::Value(stat) if may_be_vm(&stat.comm) => return Look::Promising,
            Reading::Absent => return Look::Gone,
            _ => {}
        }
    }
    let mut figures = Figures::default();
    match figures.read(|name| proc.open_file(pid, name), scratch) {
        _ if !figures.are_there() && proc.open_file(pid, "stat").is_err() => Look::Gone,
        Reading::Value(Some(ksm)) if ksm.is_involved() => Look::Promising,
        Reading::Value(Some(ksm)) => Look::Nothing { is_sure: ksm.mergeable.is_some() },
        Reading::Value(None) => Look::Memoryless,
        other => other.into(),
    }
}
