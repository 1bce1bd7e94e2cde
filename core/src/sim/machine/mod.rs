//! The machine: guests, ksmd and the time they share.

mod khugepaged;
mod scan;
mod write;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

pub use self::khugepaged::KhugepagedPace;
use self::khugepaged::SimKhugepaged;
use super::advisor::SimAdvisor;
use super::config::SimConfig;
use super::content::UNIQUE;
use super::counters::{GuestCounters, MachineCounters, UnfinishedRun};
use super::guest::{MachineGuest, SimGuestId, SimPage, SimPageState};
use super::huge::HugeRanges;
use super::ksmd::SimKsmd;
use super::memory::MergeableMemory;
use super::plan::GuestPlan;
use super::settings::KnobValues;
use super::{PAGE_SIZE, plan};
use crate::kernel::RMAP_ITEM_BYTES;
use crate::sample::BoundaryPause;

/// A simulated host with KSM, as after boot: `run` is 0 and there are no guests.
#[derive(Debug, Clone)]
pub struct SimMachine {
    pub(super) config: SimConfig,
    pub(super) settings: KnobValues,
    pub(super) memory: MergeableMemory,
    pub(super) ksmd: SimKsmd,
    pub(super) advisor: SimAdvisor,
    pub(super) now_ns: u64,
    /// Passes that ksmd will have completed when it is to rest, and whether it does.
    pub(super) rest_after: Option<u64>,
    pub(super) rest: BoundaryPause,
    /// The CPU time of ended guests.
    pub(super) ended_cpu_ns: u64,
    khugepaged: SimKhugepaged,
    events: BinaryHeap<Reverse<(u64, u64, MachineEvent)>>,
    /// Orders events of the same moment.
    event_count: u64,
    waiting: Vec<GuestPlan>,
    sweeps: Vec<WriteSweep>,
    settling: Vec<SettlingPart>,
    growing: Vec<GrowingPart>,
}

/// An event at a known time. Indices are into the machine's own lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MachineEvent {
    Start(usize),
    Stop(u32),
    Sweep(usize),
    Settle(usize),
    Grow(usize),
    Khugepaged(u32),
}

/// A part of a guest's memory that the guest writes to over and over, from its first page to its last.
#[derive(Debug, Clone, Copy)]
struct WriteSweep {
    guest: u32,
    first: u32,
    runs: u32,
    /// The duration of one round.
    every_ns: u64,
    started_ns: u64,
    written: u64,
}

/// A part of a guest's memory that gets its lasting content at some time.
#[derive(Debug, Clone, Copy)]
struct SettlingPart {
    guest: u32,
    first: u32,
    runs: u32,
    label: u16,
}

/// Memory that a guest takes run by run.
#[derive(Debug, Clone, Copy)]
struct GrowingPart {
    guest: u32,
    runs: u32,
    label: u16,
    over_ns: u64,
    started_ns: u64,
    there: u32,
}

impl SimMachine {
    /// Creates a machine as after boot.
    pub fn new(config: SimConfig) -> Self {
        let costs = config.costs.stretched(config.ksmd_share_permille);
        let config = SimConfig { run_pages: config.run_pages.max(1), costs, ..config };
        let settings = KnobValues::new(config.kernel);
        let mut memory = MergeableMemory::new();
        memory.contents.set_limit(settings.max_page_sharing);
        Self {
            settings,
            ksmd: SimKsmd::new(config.ksmd_share_permille),
            config,
            memory,
            advisor: SimAdvisor::default(),
            now_ns: 0,
            rest_after: None,
            rest: BoundaryPause::Unavailable,
            ended_cpu_ns: 0,
            khugepaged: SimKhugepaged::default(),
            events: BinaryHeap::new(),
            event_count: 0,
            waiting: Vec::new(),
            sweeps: Vec::new(),
            settling: Vec::new(),
            growing: Vec::new(),
        }
    }

    /// Sets the number of completed passes at which ksmd rests, as a lease does ([`BoundaryPause`]). A rest ends here.
    pub fn rest_after(&mut self, full_scans: Option<u64>) {
        self.rest_after = full_scans;
        if std::mem::replace(&mut self.rest, BoundaryPause::Possible) == BoundaryPause::Resting {
            self.wake_ksmd();
        }
    }

    /// The state of ksmd's rest at the end of a pass.
    pub fn rest(&self) -> BoundaryPause {
        self.rest
    }

    /// Time since boot.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns)
    }

    /// Starts a guest with these contents, page by page: [`ZERO`](super::ZERO), [`UNIQUE`], or any other number, which
    /// pages of the same content share.
    ///
    /// Each content is that of a run if the machine keeps runs of pages: page `n` of a run is equal to page `n` of
    /// another run with the same content, and to no other page.
    pub fn add_guest(&mut self, name: &str, pages: impl IntoIterator<Item = u64>) -> SimGuestId {
        let id = self.memory.guests.len() as u32;
        let pages: Vec<SimPage> =
            pages.into_iter().map(|content| SimPage::new(self.memory.contents.acquire(content))).collect();
        self.memory.private += pages.len() as u64;
        if !pages.is_empty() {
            self.ksmd.enlist(id);
        }
        let guest = MachineGuest {
            name: name.into(),
            minor_faults: pages.len() as u64,
            write_ns: pages.len() as u64 * self.write_cost_ns(),
            pages,
            started_ns: self.now_ns,
            ended: false,
            load_permille: 0,
            rmap_items: 0,
            merging: 0,
            zero: 0,
            absent: 0,
            freed: 0,
            huge: HugeRanges::default(),
        };
        self.memory.living.add(id, &guest);
        self.memory.guests.push(guest);
        SimGuestId(id)
    }

    /// Adds memory with these contents to a guest, and returns true if there is such a guest.
    pub fn grow_guest(&mut self, guest: SimGuestId, pages: impl IntoIterator<Item = u64>) -> bool {
        let Some(entry) = self.memory.guests.get_mut(guest.0 as usize).filter(|entry| !entry.ended) else {
            return false;
        };
        let before = entry.pages.len();
        entry.pages.extend(pages.into_iter().map(|content| SimPage::new(self.memory.contents.acquire(content))));
        let added = (entry.pages.len() - before) as u64;
        entry.huge.extend(entry.pages.len(), true);
        entry.minor_faults += added;
        let cost_ns = added * self.config.costs.write * u64::from(self.config.run_pages);
        entry.write_ns += cost_ns;
        self.memory.living.write(cost_ns);
        self.memory.living.grow(added);
        self.memory.private += added;
        if before == 0 && added > 0 {
            self.ksmd.enlist(guest.0);
        }
        true
    }

    /// Adds `runs` pages, or runs of them, that a guest may touch but has not, and returns the number of the first. A
    /// write makes one be there, and [`take_page`](Self::take_page) takes it back.
    pub fn reserve_pages(&mut self, guest: SimGuestId, runs: usize) -> Option<usize> {
        let entry = self.memory.guests.get_mut(guest.0 as usize).filter(|entry| !entry.ended)?;
        let first = entry.pages.len();
        entry.absent += runs as u64;
        for _ in 0..runs {
            let page =
                SimPage { state: SimPageState::Absent, ..SimPage::new(self.memory.contents.acquire(UNIQUE)) };
            entry.pages.push(page);
        }
        entry.huge.extend(entry.pages.len(), false);
        if first == 0 && runs > 0 {
            self.ksmd.enlist(guest.0);
        }
        Some(first)
    }

    /// Takes page number `page`, or the run with that number, from a guest, as its balloon does. Its memory is free at
    /// once. Returns whether there is one.
    pub fn take_page(&mut self, guest: SimGuestId, page: usize) -> bool {
        let entry = self.memory.guests.get(guest.0 as usize).filter(|entry| !entry.ended);
        let has_page = entry.is_some_and(|entry| page < entry.pages.len());
        if has_page {
            self.settle(|inside| inside.guest == guest.0 && inside.run == page as u32);
            self.memory.take_page(guest.0, page as u32);
        }
        has_page
    }

    /// Splits the huge page of page number `page` from outside, as folding does: its zeros are freed. Returns true if there is
    /// one.
    #[cfg(test)]
    pub fn split_page(&mut self, guest: SimGuestId, page: usize) -> bool {
        let before = self.memory.huge_work.splits;
        let rules = self.visit_rules();
        self.memory.split(guest.0, page as u32, &rules);
        self.memory.huge_work.splits > before
    }

    /// The merged pages of a guest, as the kernel counts them, the empty ones included.
    pub fn merged_pages(&self, guest: SimGuestId) -> u64 {
        let is_there = self.memory.guests.get(guest.0 as usize).is_some_and(|entry| !entry.ended);
        if !is_there {
            return 0;
        }
        let own = self.own(guest.0);
        (own.merging + own.zero).cast_unsigned()
    }

    /// Ends a guest, and returns true if there was one.
    ///
    /// Its memory is free at once. KSM's counters keep its pages until ksmd's next visit, as in the kernel.
    pub fn remove_guest(&mut self, guest: SimGuestId) -> bool {
        let Some(entry) = self.memory.guests.get(guest.0 as usize).filter(|entry| !entry.ended) else {
            return false;
        };
        self.ended_cpu_ns += entry.cpu_ns(self.now_ns);
        self.settle(|inside| inside.guest == guest.0);
        let Some(entry) = self.memory.guests.get(guest.0 as usize) else { return false };
        let tracked = entry.rmap_items > 0;
        self.memory.end(guest.0);
        if self.ksmd.retire(guest.0, tracked) {
            self.memory.bury(guest.0);
        }
        true
    }

    /// Returns true if ksmd has ended a pass and not started the next.
    pub fn is_between_passes(&self) -> bool {
        self.ksmd.is_between_passes()
    }

    /// Writes `content` to page number `page` of a guest, or to the run with that number, and returns true if there is
    /// one.
    pub fn write_page(&mut self, guest: SimGuestId, page: usize, content: u64) -> bool {
        let has_page =
            self.memory.guests.get(guest.0 as usize).is_some_and(|entry| !entry.ended && page < entry.pages.len());
        if has_page {
            self.write_run(guest.0, page as u32, content);
        }
        has_page
    }

    fn write_run(&mut self, guest: u32, run: u32, content: u64) {
        self.settle(|inside| inside.guest == guest && inside.run == run);
        self.memory.write(guest, run, content, self.write_cost_ns());
    }

    /// A guest's CPU time for writing a page.
    pub fn write_time(&self) -> Duration {
        Duration::from_nanos(self.config.costs.write)
    }

    /// A guest's CPU time for writing a run of pages.
    fn write_cost_ns(&self) -> u64 {
        self.config.costs.write * u64::from(self.config.run_pages)
    }

    /// Completes the visit to the run that ksmd is inside of, if that is the run that is meant.
    fn settle(&mut self, is_meant: impl Fn(&UnfinishedRun) -> bool) {
        if let Some(inside) = &mut self.ksmd.inside
            && is_meant(inside)
        {
            inside.change = None;
        }
    }

    /// The machine's counters in pages.
    pub(super) fn totals(&self) -> MachineCounters {
        let pages = i64::from(self.config.run_pages);
        let all = MachineCounters::from_memory(&self.memory);
        match self.ksmd.inside {
            Some(UnfinishedRun { left, change: Some(change), .. }) => {
                all.with(change.totals, |all, change| (all * pages - change * i64::from(left)).max(0))
            }
            _ => all.with(all, |all, _| all * pages),
        }
    }

    /// A guest's counters in pages.
    pub(super) fn own(&self, guest: u32) -> GuestCounters {
        let pages = i64::from(self.config.run_pages);
        let all = GuestCounters::from_memory(&self.memory, guest);
        let change = match self.ksmd.inside {
            Some(UnfinishedRun { guest: id, left, change: Some(change), .. }) if id == guest => {
                Some((left, change.own))
            }
            Some(UnfinishedRun { left, change: Some(change), .. }) if change.partner == Some(guest) => {
                Some((left, GuestCounters { merging: 1, ..GuestCounters::default() }))
            }
            _ => None,
        };
        match change {
            Some((left, change)) => all.with(change, |all, change| (all * pages - change * i64::from(left)).max(0)),
            None => all.with(all, |all, _| all * pages),
        }
    }

    /// Starts, runs and ends a guest as planned. A start in the past is now.
    pub fn start(&mut self, plan: GuestPlan) {
        let at = nanos(plan.starts).max(self.now_ns);
        self.waiting.push(plan);
        self.schedule(at, MachineEvent::Start(self.waiting.len() - 1));
        self.fire_events();
    }

    /// Advances time, while ksmd and the guests work.
    pub fn advance(&mut self, by: Duration) {
        self.advance_until(by, false);
    }

    /// Advances time until ksmd rests at the end of a pass ([`Self::rest_after`]), or for that long if it does not.
    pub fn advance_to_rest(&mut self, by: Duration) {
        self.advance_until(by, self.rest == BoundaryPause::Possible);
    }

    fn advance_until(&mut self, by: Duration, stops_with_rest: bool) {
        let target = self.now_ns.saturating_add(nanos(by));
        loop {
            let event = self.next_event_ns().filter(|&at| at <= target);
            let stop = event.unwrap_or(target);
            self.run_ksmd(stop, false);
            if stops_with_rest && self.rest == BoundaryPause::Resting {
                self.now_ns = self.ksmd.clock_ns.clamp(self.now_ns, stop);
                return;
            }
            self.now_ns = stop;
            if event.is_none() {
                return;
            }
            self.fire_events();
        }
    }

    /// The number of pages that KSM could save of what guests hold now.
    ///
    /// Of `c` equal pages it saves `c - ceil(c / max_page_sharing)`; with `use_zero_pages` all empty pages.
    pub fn attainable_pages(&self) -> u64 {
        self.memory.contents.savable(self.settings.use_zero_pages == 1) * u64::from(self.config.run_pages)
    }

    /// The number of pages that KSM could save with `use_zero_pages`, whatever that is now.
    pub fn most_attainable_pages(&self) -> u64 {
        self.memory.contents.savable(true) * u64::from(self.config.run_pages)
    }

    /// The number of pages that KSM saves now: pages that guests hold less the frames used for them.
    ///
    /// Unlike this, the kernel's gauges count pages that were written to, and ended guests, until ksmd's next visit.
    pub fn truly_saved_pages(&self) -> u64 {
        let held = self.memory.living.runs * u64::from(self.config.run_pages);
        held.saturating_sub(self.frames())
    }

    /// Memory of the host, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.config.total_bytes
    }

    /// Memory in use, in bytes: by others, by guests and for KSM's own metadata. More than the machine has is swapped
    /// out.
    pub fn used_bytes(&self) -> u64 {
        let totals = self.totals();
        let frames = (totals.private + totals.frames).cast_unsigned();
        self.config.other_bytes + frames * PAGE_SIZE + totals.rmap_items.cast_unsigned() * RMAP_ITEM_BYTES
    }

    /// Frames in use by guests, in pages.
    pub(super) fn frames(&self) -> u64 {
        let totals = self.totals();
        (totals.private + totals.frames).cast_unsigned()
    }

    /// Returns true if another page fits.
    pub(super) fn has_room(&self) -> bool {
        self.used_bytes() + PAGE_SIZE * u64::from(self.config.run_pages)
            <= self.config.total_bytes.saturating_add(self.config.swap_bytes)
    }

    fn schedule(&mut self, at_ns: u64, event: MachineEvent) {
        self.event_count += 1;
        self.events.push(Reverse((at_ns, self.event_count, event)));
    }

    /// The time of the next planned event.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    /// Handles all planned events until now.
    pub(super) fn fire_events(&mut self) {
        while let Some(&Reverse((at, _, event))) = self.events.peek()
            && at <= self.now_ns
        {
            let again = match event {
                MachineEvent::Start(index) => {
                    self.launch(index);
                    None
                }
                MachineEvent::Stop(guest) => {
                    self.remove_guest(SimGuestId(guest));
                    None
                }
                MachineEvent::Sweep(index) => self.sweep(index, at),
                MachineEvent::Settle(index) => {
                    self.settle_part(index);
                    None
                }
                MachineEvent::Grow(index) => self.grow_part(index, at),
                MachineEvent::Khugepaged(alarm) => self.run_khugepaged(alarm, at),
            };
            // The event is the first still: what it has planned comes later.
            match again {
                Some(at_ns) => {
                    self.event_count += 1;
                    if let Some(mut first) = self.events.peek_mut() {
                        *first = Reverse((at_ns, self.event_count, event));
                    }
                }
                None => drop(self.events.pop()),
            }
        }
    }

    fn launch(&mut self, index: usize) {
        let plan = std::mem::take(&mut self.waiting[index]);
        self.start_now(&plan);
    }

    /// Starts a guest at once, whatever start the plan has.
    pub fn start_now(&mut self, plan: &GuestPlan) -> SimGuestId {
        let guest = self.add_guest(&plan.name, plan.contents(self.config.run_pages));
        self.memory.guests[guest.0 as usize].load_permille = plan.load_permille;
        self.memory.living.load(plan.load_permille, self.now_ns);
        if plan.is_huge {
            self.use_huge_pages(guest);
        }
        if let Some(stops) = plan.stops {
            self.schedule(nanos(stops).max(self.now_ns), MachineEvent::Stop(guest.0));
        }
        for plan::RewrittenPart { first, runs, every } in plan.rewritten_parts(self.config.run_pages) {
            let every_ns = nanos(every).max(1);
            let started_ns = self.now_ns;
            self.add_sweep(WriteSweep { guest: guest.0, first, runs, every_ns, started_ns, written: 0 });
        }
        for later in plan.later_parts(self.config.run_pages) {
            match later {
                plan::LaterPart::Settles { first, runs, label, after } => {
                    self.settling.push(SettlingPart { guest: guest.0, first, runs, label });
                    let at = self.now_ns.saturating_add(nanos(after));
                    self.schedule(at, MachineEvent::Settle(self.settling.len() - 1));
                }
                plan::LaterPart::Grows { runs, label, over } => {
                    let (over_ns, started_ns) = (nanos(over).max(1), self.now_ns);
                    self.growing.push(GrowingPart { guest: guest.0, runs, label, over_ns, started_ns, there: 0 });
                    self.schedule(started_ns, MachineEvent::Grow(self.growing.len() - 1));
                }
            }
        }
        guest
    }

    fn add_sweep(&mut self, sweep: WriteSweep) {
        self.sweeps.push(sweep);
        self.schedule(sweep.started_ns, MachineEvent::Sweep(self.sweeps.len() - 1));
    }

    /// Has a guest rewrite `runs` pages, or runs of them, from number `first` on, once in `every`; `None` ends it. It
    /// takes the place of rewriting that began at the same page.
    pub fn set_rewriting(&mut self, guest: SimGuestId, first: usize, runs: usize, every: Option<Duration>) {
        let (first, runs) = (first as u32, runs as u32);
        // A sweep without runs is scheduled no more.
        let before = self.sweeps.iter_mut().filter(|sweep| sweep.guest == guest.0 && sweep.first == first);
        before.for_each(|sweep| sweep.runs = 0);
        if let Some(every) = every {
            let (every_ns, started_ns) = (nanos(every).max(1), self.now_ns);
            self.add_sweep(WriteSweep { guest: guest.0, first, runs, every_ns, started_ns, written: 0 });
        }
    }

    fn settle_part(&mut self, index: usize) {
        let SettlingPart { guest, first, runs, label } = self.settling[index];
        if !self.memory.guests[guest as usize].ended {
            (0..runs).for_each(|run| self.write_run(guest, first + run, plan::equal_content(label, run)));
        }
    }

    /// Adds the runs of a growing part that are due at `at_ns`, and returns when the next are.
    fn grow_part(&mut self, index: usize, at_ns: u64) -> Option<u64> {
        let GrowingPart { guest, runs, label, over_ns, started_ns, there } = self.growing[index];
        let due = u128::from(runs) * u128::from(at_ns - started_ns) / u128::from(over_ns);
        let due = u32::try_from(due).unwrap_or(u32::MAX).min(runs);
        let is_alive = self.grow_guest(SimGuestId(guest), (there..due).map(|run| plan::equal_content(label, run)));
        self.growing[index].there = due;
        (is_alive && due < runs).then(|| {
            let step = (over_ns / u64::from(runs)).max(GROW_STEP_NS);
            at_ns.saturating_add(step)
        })
    }

    /// The time in which guests have rewritten at the day's pace.
    fn active_ns(&self, at_ns: u64) -> u128 {
        const HALF_DAY: u64 = 12 * 3600 * 1_000_000_000;
        let permille = u128::from(self.config.night_permille);
        if permille == 1000 {
            return at_ns.into();
        }
        let (days, rest) = (at_ns / (2 * HALF_DAY), at_ns % (2 * HALF_DAY));
        let night = |ns: u64| u128::from(ns) * permille / 1000;
        let whole = u128::from(days) * (u128::from(HALF_DAY) + night(HALF_DAY));
        whole + u128::from(rest.min(HALF_DAY)) + night(rest.saturating_sub(HALF_DAY))
    }

    /// Writes the pages of a sweep that are due at `at_ns`, each at most once, and returns when the next are.
    fn sweep(&mut self, index: usize, at_ns: u64) -> Option<u64> {
        let sweep = self.sweeps[index];
        if self.memory.guests[sweep.guest as usize].ended || sweep.runs == 0 {
            return None;
        }
        let elapsed = self.active_ns(at_ns) - self.active_ns(sweep.started_ns);
        let due = elapsed * u128::from(sweep.runs) / u128::from(sweep.every_ns);
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        for turn in sweep.written.max(due.saturating_sub(sweep.runs.into()))..due {
            let run = sweep.first + (turn % u64::from(sweep.runs)) as u32;
            self.write_run(sweep.guest, run, UNIQUE);
        }
        self.sweeps[index].written = due;
        let step = (sweep.every_ns / u64::from(sweep.runs)).max(SWEEP_STEP_NS);
        Some(at_ns.saturating_add(step))
    }
}

/// The number of pages that KSM can save while all of `plans` run, as [`SimMachine::attainable_pages`] returns it then.
pub fn mergeable_pages(plans: &[GuestPlan], max_page_sharing: u64, use_zero_pages: bool) -> u64 {
    let mut machine = SimMachine::new(SimConfig::default());
    machine.settings.max_page_sharing = max_page_sharing.max(2);
    machine.memory.contents.set_limit(machine.settings.max_page_sharing);
    machine.settings.use_zero_pages = use_zero_pages.into();
    for plan in plans {
        machine.add_guest(&plan.name, plan.contents(1));
    }
    machine.attainable_pages()
}

/// The shortest time between two events of a sweep: several writes are made at once where more are due.
const SWEEP_STEP_NS: u64 = 10_000_000;

/// The shortest time between two steps of growing.
const GROW_STEP_NS: u64 = 1_000_000_000;

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
