//! The work of ksmd on the machine, step by step.
//!
//! Source: `ksm_scan_thread`, `ksm_do_scan` and `scan_get_next_rmap_item` in `mm/ksm.c`.

use super::super::counters::{GuestCounters, MachineCounters, ScanStep, UnfinishedRun, VisitChange};
use super::super::guest::SimPageState;
use super::super::huge::DeadNode;
use super::super::ksmd::{KsmdActivity, WalkCursor};
use super::super::memory::VisitRules;
use super::super::search::TreeSizes;
use super::super::settings::KnobRefusal;
use super::SimMachine;
use crate::field::KernelVersion;
use crate::sample::BoundaryPause;

/// Kernels from this one on count each visit as it is made.
const COUNTS_AT_ONCE: KernelVersion = KernelVersion::new(6, 10);

impl SimMachine {
    /// Returns true if ksmd may run and has guests to scan.
    fn ksmd_should_run(&self) -> bool {
        self.settings.run == 1 && !self.ksmd.order.is_empty()
    }

    /// Returns true if ksmd sleeps: between two batches, or because it has nothing to do.
    pub fn is_asleep(&self) -> bool {
        match self.ksmd.activity {
            KsmdActivity::Waiting => !self.ksmd_should_run(),
            KsmdActivity::Sleeping { until_ns } => until_ns > self.now_ns,
            KsmdActivity::Scanning { .. } => false,
        }
    }

    /// Wakes ksmd, as a changed `sleep_millisecs` does.
    pub(in super::super) fn wake_ksmd(&mut self) {
        if let KsmdActivity::Sleeping { until_ns } = &mut self.ksmd.activity {
            *until_ns = (*until_ns).min(self.now_ns);
        }
    }

    /// Runs ksmd from the machine's time to `until_ns`, or to the end of the batch that it is in.
    pub(in super::super) fn run_ksmd(&mut self, until_ns: u64, only_batch: bool) {
        loop {
            match self.ksmd.activity {
                KsmdActivity::Waiting if self.ksmd_should_run() && !only_batch => {
                    self.ksmd.clock_ns = self.ksmd.clock_ns.max(self.now_ns);
                    if self.ksmd.clock_ns >= until_ns {
                        return;
                    }
                    self.begin_batch();
                }
                KsmdActivity::Waiting => return,
                KsmdActivity::Sleeping { until_ns: wake } => {
                    if only_batch || wake >= until_ns {
                        return;
                    }
                    self.ksmd.clock_ns = self.ksmd.clock_ns.max(wake);
                    if !self.ksmd_should_run() {
                        self.ksmd.activity = KsmdActivity::Waiting;
                    } else if self.settings.pages_to_scan == 0 {
                        self.idle_batches(until_ns);
                    } else {
                        self.begin_batch();
                    }
                }
                KsmdActivity::Scanning { left } => {
                    if !self.scan(left, until_ns) {
                        return;
                    }
                    self.end_batch();
                }
            }
        }
    }

    /// Runs ksmd to the end of its batch. Time passes meanwhile.
    pub(in super::super) fn finish_batch(&mut self) {
        while matches!(self.ksmd.activity, KsmdActivity::Scanning { .. }) {
            let event = self.next_event_ns().unwrap_or(u64::MAX);
            self.run_ksmd(event, true);
            self.now_ns = self.now_ns.max(self.ksmd.clock_ns.min(event));
            self.fire_events();
        }
    }

    fn begin_batch(&mut self) {
        self.ksmd.batch_visits = 0;
        self.ksmd.activity = KsmdActivity::Scanning { left: self.settings.pages_to_scan };
        self.ksmd.spend(self.config.costs.batch);
    }

    fn end_batch(&mut self) {
        let comes_to_rest =
            self.ksmd.is_between_passes() && self.rest_after.take_if(|at| *at == self.ksmd.full_scans).is_some();
        self.ksmd.activity = if self.ksmd_should_run() && comes_to_rest {
            self.rest = BoundaryPause::Resting;
            KsmdActivity::Sleeping { until_ns: u64::MAX }
        } else if self.ksmd_should_run() {
            let sleep_ns = self.settings.sleep_millisecs * 1_000_000;
            KsmdActivity::Sleeping { until_ns: self.ksmd.clock_ns.saturating_add(sleep_ns) }
        } else {
            KsmdActivity::Waiting
        };
    }

    /// Runs all empty batches until `until_ns` at once: with `pages_to_scan` = 0 they are equal.
    fn idle_batches(&mut self, until_ns: u64) {
        let costs = self.config.costs.batch.max(1);
        let period = costs.saturating_add(self.settings.sleep_millisecs * 1_000_000);
        let times = (until_ns.saturating_sub(self.ksmd.clock_ns)).div_ceil(period).max(1);
        self.ksmd.worked_ns += times * costs;
        self.ksmd.clock_ns += (times - 1) * period + costs;
        self.end_batch();
    }

    /// The rules of a visit now.
    pub(super) fn visit_rules(&self) -> VisitRules {
        VisitRules {
            pass: self.ksmd.pass,
            now_ns: self.ksmd.clock_ns,
            prune_ns: self.settings.stable_node_chains_prune_millisecs * 1_000_000,
            max_page_sharing: u32::try_from(self.settings.max_page_sharing).unwrap_or(u32::MAX),
            use_zero_pages: self.settings.use_zero_pages == 1,
            frees_zeros: self.splits_free_zeros(),
            run_pages: self.config.run_pages,
            checksum_first: self.config.kernel >= KernelVersion::new(6, 11),
        }
    }

    /// Continues a batch until `until_ns`, and returns true if the batch is over.
    fn scan(&mut self, mut left: u64, until_ns: u64) -> bool {
        let mut rules = self.visit_rules();
        while left > 0 {
            if self.ksmd.clock_ns >= until_ns {
                self.ksmd.activity = KsmdActivity::Scanning { left };
                return false;
            }
            if let Some(inside) = self.ksmd.inside.take() {
                left -= self.go_through(inside, left, until_ns);
                continue;
            }
            let Some(cursor) = self.ksmd.cursor else {
                self.begin_pass();
                rules.pass = self.ksmd.pass;
                continue;
            };
            let Some(&guest) = self.ksmd.order.get(cursor.guest) else {
                self.end_pass();
                return true;
            };
            rules.now_ns = self.ksmd.clock_ns;
            let unchanged = self.step_without_change(guest, cursor);
            if self.config.run_pages == 1 {
                if let Some((step, cost_ns)) = unchanged.or_else(|| self.step(guest, cursor, &rules)) {
                    self.ksmd.spend(cost_ns);
                    left -= self.count(step, 1);
                }
                continue;
            }
            if let Some((step, cost_ns)) = unchanged {
                let (run, pages) = (cursor.run, self.config.run_pages);
                let inside = UnfinishedRun { guest, run, left: pages, cost_ns, step, change: None };
                left -= self.go_through(inside, left, until_ns);
                continue;
            }
            let (before, own) =
                (MachineCounters::from_memory(&self.memory), GuestCounters::from_memory(&self.memory, guest));
            self.memory.partner = None;
            if let Some((step, cost_ns)) = self.step(guest, cursor, &rules) {
                let change = VisitChange {
                    totals: MachineCounters::from_memory(&self.memory).with(before, |after, before| after - before),
                    own: GuestCounters::from_memory(&self.memory, guest).with(own, |after, before| after - before),
                    partner: self.memory.partner.filter(|&other| other != guest),
                };
                let (run, pages) = (cursor.run, self.config.run_pages);
                let inside = UnfinishedRun { guest, run, left: pages, cost_ns, step, change: Some(change) };
                left -= self.go_through(inside, left, until_ns);
            }
        }
        if self.config.kernel < COUNTS_AT_ONCE {
            // One more than was visited: `scan_npages - npages` after a loop that ends with npages at -1.
            self.ksmd.scanned += self.ksmd.batch_visits + 1;
        }
        true
    }

    /// Goes through the pages of a run that are left, and returns the visits. The batch or the time may end inside it.
    fn go_through(&mut self, inside: UnfinishedRun, left: u64, until_ns: u64) -> u64 {
        let time = until_ns.saturating_sub(self.ksmd.clock_ns);
        let by_time = if inside.cost_ns == 0 { u64::MAX } else { time.div_ceil(inside.cost_ns) };
        let by_batch = if inside.step == ScanStep::Visited { left } else { u64::MAX };
        let pages = u64::from(inside.left).min(by_time).min(by_batch) as u32;
        self.ksmd.spend(inside.cost_ns * u64::from(pages));
        self.ksmd.inside = (pages < inside.left).then(|| UnfinishedRun { left: inside.left - pages, ..inside });
        self.count(inside.step, pages.into())
    }

    /// Counts steps over `pages` pages, and returns the visits.
    fn count(&mut self, step: ScanStep, pages: u64) -> u64 {
        match step {
            ScanStep::Visited => {
                self.ksmd.batch_visits += pages;
                self.ksmd.scanned += if self.config.kernel >= COUNTS_AT_ONCE { pages } else { 0 };
                pages
            }
            ScanStep::Skipped => {
                self.ksmd.skipped += pages;
                0
            }
            ScanStep::Passed => 0,
        }
    }

    fn begin_pass(&mut self) {
        self.ksmd.pass = self.ksmd.pass.wrapping_add(1);
        self.ksmd.cursor = Some(WalkCursor { guest: 0, run: 0 });
        self.memory.in_unstable = 0;
        self.memory.dead_node = DeadNode::default();
        self.advisor.start(self.ksmd.clock_ns);
        self.ksmd.spend(self.config.costs.pass);
    }

    fn end_pass(&mut self) {
        self.ksmd.cursor = None;
        self.ksmd.full_scans += 1;
        if self.settings.advisor_mode == 1 {
            let cpu_ns = self.config.ksmd_before_ns.saturating_add(self.ksmd.cpu_ns_at(self.ksmd.clock_ns));
            self.settings.pages_to_scan = self.advisor.stop(self.ksmd.clock_ns, cpu_ns, &self.settings);
        }
    }

    /// Passes the page at the cursor if it is as it was afterwards, and advances the cursor. `None`: that takes a
    /// [`Self::step`].
    fn step_without_change(&mut self, guest: u32, cursor: WalkCursor) -> Option<(ScanStep, u64)> {
        let page =
            self.memory.guests.get(guest as usize).filter(|guest| !guest.ended)?.pages.get(cursor.run as usize)?;
        let done = match page.state {
            SimPageState::Zero | SimPageState::Absent | SimPageState::Freed => {
                (ScanStep::Passed, self.config.costs.walk)
            }
            SimPageState::Merged => (ScanStep::Visited, self.config.costs.merged),
            _ => return None,
        };
        self.ksmd.cursor = Some(WalkCursor { run: cursor.run + 1, ..cursor });
        Some(done)
    }

    /// Handles the page at the cursor where [`Self::step_without_change`] does not, and advances the cursor. Returns
    /// the kind of step and its cost.
    fn step(&mut self, guest: u32, cursor: WalkCursor, rules: &VisitRules) -> Option<(ScanStep, u64)> {
        let costs = &self.config.costs;
        let entry = &mut self.memory.guests[guest as usize];
        if entry.ended {
            self.ksmd.spend(costs.free * entry.rmap_items * u64::from(self.config.run_pages));
            self.memory.bury(guest);
            self.ksmd.order.remove(cursor.guest);
            self.ksmd.cursor = Some(WalkCursor { guest: cursor.guest, run: 0 });
            return None;
        }
        let Some(page) = entry.pages.get_mut(cursor.run as usize) else {
            self.ksmd.cursor = Some(WalkCursor { guest: cursor.guest + 1, run: 0 });
            return None;
        };
        self.ksmd.cursor = Some(WalkCursor { run: cursor.run + 1, ..cursor });
        if matches!(
            page.state,
            SimPageState::ZeroTracked
                | SimPageState::Taken
                | SimPageState::TakenMerged
                | SimPageState::FreedTracked
                | SimPageState::FreedUnstable
        ) {
            self.memory.untrack(guest, cursor.run);
            return Some((ScanStep::Passed, costs.free));
        }
        if self.settings.smart_scan == 1 && page.is_skipped() {
            self.memory.leave_tree(guest, cursor.run);
            return Some((ScanStep::Skipped, costs.skip));
        }
        let slot = page.slot;
        self.memory.track(guest, cursor.run);
        let trees = if costs.depend_on_trees() {
            TreeSizes::from_memory(&mut self.memory, self.config.run_pages, rules.max_page_sharing)
        } else {
            TreeSizes::default()
        };
        let before = self.memory.huge_work;
        let visit = self.memory.visit(guest, cursor.run, rules);
        let cost_ns = trees.cost(visit, slot, costs);
        if self.memory.huge_work.splits != before.splits {
            self.pay_for_splits(before);
        }
        Some((ScanStep::Visited, cost_ns))
    }

    /// Unmerges all pages and frees all `rmap_item`s: the next pass is the first.
    /// Source: `unmerge_and_remove_all_rmap_items`.
    pub(in super::super) fn unmerge(&mut self) -> Result<(), KnobRefusal> {
        self.ksmd.inside = None;
        let breaks_zero_pages = self.config.kernel >= KernelVersion::new(6, 6);
        for guest in self.ksmd.order.clone() {
            if self.memory.guests[guest as usize].ended {
                self.memory.bury(guest);
                self.ksmd.order.retain(|&id| id != guest);
                continue;
            }
            for page in 0..self.memory.guests[guest as usize].pages.len() {
                let state = self.memory.guests[guest as usize].pages[page].state;
                if !state.is_private()
                    && !state.is_absent()
                    && !state.is_freed()
                    && (state == SimPageState::Merged || breaks_zero_pages)
                {
                    if !self.has_room() {
                        self.ksmd.cursor = None;
                        return Err(KnobRefusal::NoMemory);
                    }
                    self.memory.unshare(guest, page as u32);
                }
            }
            for page in 0..self.memory.guests[guest as usize].pages.len() {
                self.memory.untrack(guest, page as u32);
            }
        }
        self.ksmd.cursor = None;
        self.ksmd.full_scans = 0;
        Ok(())
    }
}
