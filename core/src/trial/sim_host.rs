//! The simulated machine as a [`KsmHost`]: what the daemon has on a live kernel, in simulated time.
//!
//! As there, page tables are read by [`MergeSchedule`], and a reading is in the next sample.

use std::time::Duration;

use crate::controller::{ApplyOutcome, KsmHost};
use crate::knobs::{Knob, KnobChange, KnobSettings};
use crate::lease::{KsmdWaker, LeaseTerms, ScanRate, SleepingKsmd, ends_lease};
use crate::merge_forecast::ForecastPlanner;
use crate::merge_schedule::{LedgerEntries, MergeReply, MergeRequest, MergeSchedule, ReadProcess};
use crate::page_sample::{PageSampleRequest, PageSampler};
use crate::reading::Reading;
use crate::sample::{BoundaryPause, Sample};
use crate::sim::{KnobRefusal, PagePlace, SimMachine};

/// Pages in a page sample.
const SAMPLED: usize = 512;

/// CPU time of reading an entry of page tables: a second for some 100 GiB of small pages.
const READ_SECONDS: f64 = 40e-9;

/// A machine with what a daemon has besides it: page samples, readings of page tables, and the lease that ksmd scans under.
#[derive(Debug)]
pub struct SimHost {
    /// The simulated machine. Guests may be started, changed and ended between two turns.
    pub machine: SimMachine,
    /// Draws pages to read, once the policy wants page samples.
    sampler: Option<PageSampler>,
    places: Vec<PagePlace>,
    planner: ForecastPlanner,
    readings: MergeSchedule,
    /// Readings that the next sample has.
    newest_readings: Option<MergeReply>,
    has_page_samples: bool,
    /// The lease in force, where ksmd scans under one.
    lease: Option<LeaseTerms>,
    is_leased: bool,
    can_rest: bool,
    pool_shortness: f64,
}

impl SimHost {
    /// Makes a host of a machine. ksmd needs no lease to scan.
    pub fn new(machine: SimMachine) -> Self {
        Self {
            machine,
            sampler: None,
            places: Vec::new(),
            planner: ForecastPlanner::default(),
            readings: MergeSchedule::new(LedgerEntries::new()),
            newest_readings: None,
            has_page_samples: true,
            lease: None,
            is_leased: false,
            can_rest: true,
            pool_shortness: 0.0,
        }
    }

    /// Puts ksmd under a lease, as on a live host: it is woken for each batch, or part of one, when it is seen
    /// asleep. That takes several times the time of a simulation without it.
    #[must_use]
    pub fn under_lease(self) -> Self {
        Self { is_leased: true, ..self }
    }

    /// Disables the rest of ksmd at the end of a pass, as where no waker makes it rest ([`BoundaryPause`]).
    #[must_use]
    pub fn without_rest(self) -> Self {
        Self { can_rest: false, ..self }
    }

    /// Keeps guests' memory from being read, as where the daemon may not read it.
    #[must_use]
    pub fn without_page_samples(self) -> Self {
        Self { has_page_samples: false, ..self }
    }

    /// Sets how short memory is for the balance policy, which samples say from now on.
    pub fn set_pool_shortness(&mut self, shortness: f64) {
        self.pool_shortness = shortness;
    }

    /// Takes a sample without reading guests' memory. Settings are as decided on: what a lease does with them is its
    /// own business. It has the newest readings of page tables.
    pub fn sample_kernel(&mut self) -> Sample {
        let mut sample = self.machine.sample();
        self.show_decided(&mut sample.ksm);
        sample.rest = match () {
            () if !self.can_rest => BoundaryPause::Unavailable,
            () if self.is_leased => self.rest(),
            () => sample.rest,
        };
        sample.pool_shortness = self.pool_shortness;
        if let Some(reply) = self.newest_readings.take() {
            self.readings.record_reply(reply);
        }
        self.readings.fill(&mut sample);
        sample.folded_bytes =
            sample.processes.iter().filter_map(|process| process.folded_bytes).reduce(u64::saturating_add);
        sample
    }

    /// Reads the page tables that are due.
    fn read_page_tables(&mut self, sample: &Sample) {
        let Some(request) = self.readings.next_request(sample) else { return };
        self.newest_readings = Some(carry_out(&self.machine, &request));
    }

    /// Advances time until `end`, or until ksmd comes to rest. Returns true if it has.
    pub fn advance_to(&mut self, end: Duration) -> bool {
        while self.machine.now() < end {
            if self.look_at_ksmd() {
                return true;
            }
            let now = self.machine.now();
            let look = self.lease.as_ref().and_then(|lease| lease.next_look(now));
            let was_resting = self.machine.rest() == BoundaryPause::Resting;
            self.machine.advance_to_rest(look.map_or(end, |look| look.min(end)).saturating_sub(now));
            if self.machine.rest() == BoundaryPause::Resting && !was_resting {
                return true;
            }
        }
        false
    }

    /// Looks at ksmd as often as that is due, and wakes it if that is. Returns true if it has come to rest.
    fn look_at_ksmd(&mut self) -> bool {
        let Self { machine, lease: Some(lease), .. } = self else { return false };
        let now = machine.now();
        let mut has_come_to_rest = false;
        while lease.next_look(now).is_some_and(|due| due <= now) {
            lease.begin_look();
            let figures = machine.figures();
            let cpu_ns = u64::try_from(figures.ksmd_cpu.as_nanos()).unwrap_or(u64::MAX);
            let ksmd = machine.is_asleep().then_some(SleepingKsmd { cpu_ns, full_scans: figures.passes });
            has_come_to_rest |= lease.end_look(now, now, ksmd, |from, to| {
                machine.knob(Knob::SleepMillisecs) == Some(from) && machine.write(Knob::SleepMillisecs, to).is_ok()
            });
        }
        has_come_to_rest
    }

    /// Fills page samples and the forecast into `sample`, where the policy wants them.
    pub fn read_memory(&mut self, sample: &mut Sample) {
        let Some(sampler) = &mut self.sampler else { return };
        let request = sampler.next_request(sample);
        if request == PageSampleRequest::Draw {
            self.places = self.machine.draw_places(SAMPLED);
        }
        let fingerprints = self.places.iter().map(|place| self.machine.print(*place));
        match request {
            PageSampleRequest::Nothing => {}
            PageSampleRequest::ReadPart(part) => {
                if sampler.read_part(part, part.select(fingerprints.clone()), sample.at) {
                    sampler.record_read(fingerprints, sample.at);
                }
            }
            PageSampleRequest::Read => sampler.record_read(fingerprints, sample.at),
            PageSampleRequest::Draw => sampler.record_drawn(fingerprints, sample.at),
        }
        sample.page_samples = sampler.page_samples().map_or(Reading::Absent, Reading::Value);
        if let Some(request) = self.planner.next_request(sample) {
            self.planner.record(Some(self.machine.forecast_merge(request.rate)));
        }
        self.planner.fill(sample);
    }
}

/// Reads the processes of a request until its CPU time is used up, one at least.
fn carry_out(machine: &SimMachine, request: &MergeRequest) -> MergeReply {
    let (mut processes, mut cpu_seconds) = (Vec::new(), 0.0);
    for &id in &request.processes {
        let tables = machine.read_page_tables(id, request.at);
        cpu_seconds += tables.map_or(0.0, |tables| tables.entries as f64 * READ_SECONDS);
        let (reading, zeros) = (tables.map(|tables| tables.merged), tables.map(|tables| tables.zeros));
        processes.push(ReadProcess { id, at: request.at, reading, zeros, twin_of: None });
        if cpu_seconds >= request.cpu_seconds {
            break;
        }
    }
    MergeReply { processes, cpu_seconds }
}

impl KsmHost for SimHost {
    fn sample(&mut self) -> Sample {
        let mut sample = self.sample_kernel();
        self.read_page_tables(&sample);
        self.read_memory(&mut sample);
        sample
    }

    fn apply(&mut self, knobs: &KnobSettings) -> ApplyOutcome {
        let (changes, errors) = self.apply_leased(knobs);
        let errors = errors.iter().map(KnobRefusal::to_string).collect();
        ApplyOutcome { changes, errors, waiting: Vec::new() }
    }

    fn enable_page_sampling(&mut self, wanted: bool) {
        if !wanted || !self.has_page_samples {
            self.sampler = None;
        } else {
            self.sampler.get_or_insert_default();
        }
    }

    fn request_forecast(&mut self) {
        self.planner.request();
    }

    fn hold(&mut self, until_next: Duration, rest_after: Option<u64>) -> Vec<String> {
        let rest_after = rest_after.filter(|_| self.can_rest);
        if self.can_rest && !self.is_leased {
            self.machine.rest_after(rest_after);
        }
        KsmdWaker::hold(self, until_next, rest_after).err().iter().map(KnobRefusal::to_string).collect()
    }
}

impl KsmdWaker for SimHost {
    type Error = KnobRefusal;

    fn may_lease(&self) -> bool {
        self.is_leased
    }

    fn get(&self, knob: Knob) -> Result<Option<u64>, KnobRefusal> {
        Ok(self.machine.knob(knob))
    }

    fn set(&mut self, knob: Knob, value: u64) -> Result<Option<KnobChange>, KnobRefusal> {
        if ends_lease(knob, value) {
            self.lease = None;
        }
        let Some(old) = self.machine.knob(knob).filter(|old| *old != value) else { return Ok(None) };
        self.machine.write(knob, value)?;
        Ok(Some(KnobChange { knob, old, new: value }))
    }

    /// One that fails does not keep the others from being set, but ksmd is not started after a failure.
    fn apply(&mut self, knobs: &KnobSettings) -> (Vec<KnobChange>, Vec<KnobRefusal>) {
        let (mut changes, mut errors) = (Vec::new(), Vec::new());
        for (knob, value) in knobs.writes() {
            if (knob, value) == (Knob::Run, 1) && !errors.is_empty() {
                continue;
            }
            match self.set(knob, value) {
                Ok(change) => changes.extend(change),
                Err(error) => errors.push(error),
            }
        }
        (changes, errors)
    }

    fn can_wake(&mut self) -> bool {
        true
    }

    fn begin_lease(&mut self, rate: ScanRate, value: u64) -> Result<(), KnobRefusal> {
        let completed = Some(self.machine.figures().passes);
        self.lease = Some(LeaseTerms::new(rate, value, completed, self.machine.now()));
        Ok(())
    }

    fn with_lease<T>(&mut self, act: impl FnOnce(&mut LeaseTerms, Duration) -> T) -> Option<T> {
        let now = self.machine.now();
        self.lease.as_mut().map(|lease| act(lease, now))
    }

    /// The simulated write to `run` lets the time of the batch pass.
    fn await_sleep(&mut self, _run: u64) -> Result<(), KnobRefusal> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::account::HostTotals;
    use crate::sim::{KhugepagedPace, PAGE_SIZE, SimConfig, UNIQUE, ZERO};

    /// Pages in a huge page.
    const HUGE: usize = 512;

    /// khugepaged looks through all memory when this is set, and then not for days.
    const AT_ONCE_AND_LONG_AFTER: KhugepagedPace =
        KhugepagedPace { pages_to_scan: 65_536, scan_sleep_millisecs: 1_000_000_000 };

    /// Guests on huge pages, with contents by page, and samples from the start on.
    fn host(guests: usize, contents: impl Fn(usize) -> u64) -> SimHost {
        let mut machine = SimMachine::new(SimConfig::default());
        for _ in 0..guests {
            let guest = machine.add_guest("guest", (0..4 * HUGE).map(&contents));
            assert!(machine.use_huge_pages(guest));
        }
        for (knob, value) in [(Knob::SmartScan, 0), (Knob::PagesToScan, 1_000_000), (Knob::SleepMillisecs, 1)] {
            machine.write(knob, value).unwrap();
        }
        machine.set_khugepaged(AT_ONCE_AND_LONG_AFTER);
        let mut host = SimHost::new(machine);
        last_of(&mut host, 8);
        host
    }

    /// The last of so many samples, each a second after the one before.
    fn last_of(host: &mut SimHost, count: u64) -> Sample {
        let mut sample = host.sample();
        for _ in 0..count {
            host.machine.advance(Duration::from_secs(1));
            sample = host.sample();
        }
        sample
    }

    /// Has ksmd scan for a while, and stops it.
    fn scan(host: &mut SimHost, millis: u64) {
        host.machine.write(Knob::Run, 1).unwrap();
        host.machine.advance(Duration::from_millis(millis));
        host.machine.write(Knob::Run, 0).unwrap();
    }

    /// Has khugepaged look through all memory, with these limits.
    fn collapse(host: &mut SimHost, max_ptes_none: u64, max_ptes_shared: u64) {
        host.machine.write(Knob::MaxPtesNone, max_ptes_none).unwrap();
        host.machine.write(Knob::MaxPtesShared, max_ptes_shared).unwrap();
        host.machine.set_khugepaged(AT_ONCE_AND_LONG_AFTER);
        host.machine.advance(Duration::from_millis(1));
    }

    fn mixed(page: usize) -> u64 {
        match page % HUGE {
            0..128 => page as u64 + 1,
            128..256 => ZERO,
            _ => UNIQUE,
        }
    }

    #[test]
    fn what_khugepaged_undoes_is_in_the_next_reading_and_in_no_counter() {
        let mut host = host(2, mixed);
        scan(&mut host, 500);
        let merged = last_of(&mut host, 8);
        let totals = HostTotals::from_sample(&merged);
        assert_eq!((totals.saved_bytes, totals.unverified_bytes), ((4 + 8) * 128 * PAGE_SIZE, 0));
        assert_eq!((totals.folded_bytes, totals.huge_bytes), (8 * 128 * PAGE_SIZE, Some(0)));
        assert_eq!(totals.split.map(|split| split.bytes), Some(16 << 20));
        collapse(&mut host, 511, 256);
        let at_once = HostTotals::from_sample(&host.sample());
        assert_eq!(at_once.saved_bytes, totals.saved_bytes, "the reading is from before");
        let undone = last_of(&mut host, 8);
        let totals = HostTotals::from_sample(&undone);
        assert_eq!((totals.saved_bytes, totals.split.map(|split| split.bytes)), (0, Some(0)));
        assert_eq!(undone.ksm.pages_sharing, merged.ksm.pages_sharing);
    }

    #[test]
    fn a_kernel_without_the_figures_has_no_readings() {
        let mut machine =
            SimMachine::new(SimConfig { kernel: crate::field::KernelVersion::new(6, 6), ..SimConfig::default() });
        machine.add_guest("guest", [7, 7]);
        let sample = last_of(&mut SimHost::new(machine), 8);
        let process = &sample.processes[0];
        assert_eq!((process.merge_reading, process.folded_bytes, process.split), (None, None, None));
        assert_eq!(sample.folded_bytes, None);
    }

    #[test]
    fn readings_of_small_pages_keep_to_the_budget() {
        // 4 GiB of small pages take 0.04 s to read: after the reserve the budget is worth 20 s of waiting for each.
        let mut machine = SimMachine::new(SimConfig { run_pages: 64, ..SimConfig::default() });
        machine.add_guest("guest", std::iter::repeat_n(UNIQUE, 16 * 1024));
        let mut host = SimHost::new(machine);
        let mut read = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            read.extend(last_of(&mut host, 1).processes[0].merge_reading.map(|reading| reading.read_at));
        }
        // One of the first budget, and then 1 s in reserve and 2 s of the 1,000, at 0.042 s.
        assert!((68..=76).contains(&read.len()), "{}", read.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// By the daemon's own account, with KSM's counters and the readings alone.
        #[test]
        fn what_the_account_says_is_saved_is_what_is_saved(
            kinds in prop::collection::vec(0_usize..4, 1..12),
            guests in 1_usize..4,
            use_zero_pages in 0_u64..2,
            rounds in prop::collection::vec((1_u64..80, 0_u64..512, 0_u64..512, any::<bool>()), 1..4),
        ) {
            let contents = |page: usize| {
                let shared = page as u64 + 1;
                [UNIQUE, ZERO, shared, (1 << 40) | (shared % 5)][kinds[page % kinds.len()]]
            };
            let mut host = host(guests, contents);
            host.machine.write(Knob::UseZeroPages, use_zero_pages).unwrap();
            let check = |host: &mut SimHost| {
                let sample = last_of(host, 8);
                let said = HostTotals::from_sample(&sample).saved_bytes;
                let truth = host.machine.truly_saved_pages() * PAGE_SIZE;
                // Each process's part is rounded to a page.
                prop_assert!(said.abs_diff(truth) <= guests as u64 * PAGE_SIZE, "{said} said, {truth} saved");
                let huge_bytes = host.machine.figures().huge_pages * HUGE as u64 * PAGE_SIZE;
                prop_assert_eq!(HostTotals::from_sample(&sample).huge_bytes, Some(huge_bytes));
                let split = HostTotals::from_sample(&sample).split.map(|split| split.bytes);
                prop_assert_eq!(split, Some((guests * 4 * HUGE) as u64 * PAGE_SIZE - huge_bytes));
                Ok(())
            };
            for (millis, max_ptes_none, max_ptes_shared, is_hurried) in rounds {
                scan(&mut host, millis);
                check(&mut host)?;
                if is_hurried {
                    collapse(&mut host, max_ptes_none, max_ptes_shared);
                    check(&mut host)?;
                }
            }
        }
    }
}
