//! The simulated ksmd against the real one: the same guests, the same writes, pass by pass, and the same figures.
//!
//! ksmd is led through single passes: its batch is larger than any pass, so that it sleeps after each, and a
//! changed `sleep_millisecs` wakes it for the next.

use crate::support;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::huge_pages::{HUGE_PAGES, huge_memory, rollup};
use crate::support::{KernelLock, ksm, number, skipped, wait_until, zero_pages, zero_pages_at_first};
use ksmith_core::field::{FigureKind, KernelVersion};
use ksmith_core::kernel::{KsmStat, KsmValue};
use ksmith_core::knobs::Knob;
use ksmith_core::sim::{KhugepagedPace, SimConfig, SimGuestId, SimMachine, ZERO};
use ksmith_host::root::Root;
use ksmith_lab::{MemoryGuest, MemoryPart};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// Long enough that ksmd never wakes by itself. Only a change wakes it, and no value comes twice: a ksmd that has not yet
/// run since it was woken would find the value that it sleeps for, and sleep on.
fn next_sleep() -> u64 {
    static SLEEP_MS: AtomicU64 = AtomicU64::new(600_000);
    SLEEP_MS.fetch_add(1, Ordering::Relaxed)
}

/// Every counter by its kernel name, and each guest's `ksm_stat`.
type Figures = (BTreeMap<&'static str, u64>, Vec<[u64; 3]>);

/// The same guests on the kernel and in the simulator.
struct KernelAndSimulator {
    kernel: Vec<Option<MemoryGuest>>,
    machine: SimMachine,
    /// Each part with how often it was rewritten since it held its first content.
    ids: Vec<(SimGuestId, Vec<(MemoryPart, u64)>)>,
    /// The anonymous memory of each guest in huge pages before the first pass.
    anonymous_at_first: BTreeMap<usize, u64>,
    before: Figures,
    passes: u64,
    log: String,
    ksmd: Option<u32>,
}

/// Returns true if ksmd sleeps, or can't be seen.
fn is_asleep(ksmd: Option<u32>) -> bool {
    ksmd.is_none_or(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") S "))
}

impl KernelAndSimulator {
    /// Counters start at zero on both sides: `run` = 2 has ksmd forget everything.
    fn new() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let kernel = KernelVersion::parse(&release).unwrap();
        support::write("run", "2");
        let machine = SimMachine::new(SimConfig { kernel, ..SimConfig::default() });
        let mut both = Self {
            kernel: Vec::new(),
            machine,
            ids: Vec::new(),
            anonymous_at_first: BTreeMap::new(),
            before: <_>::default(),
            passes: 0,
            log: String::new(),
            ksmd: ksmith_host::ksmd::pid(&Root::host()),
        };
        for (knob, value) in [
            (Knob::SmartScan, 0),
            (Knob::UseZeroPages, 0),
            (Knob::MaxPageSharing, 256),
            (Knob::PagesToScan, 1_000_000),
        ] {
            both.write(knob, value);
        }
        both.before = both.on_kernel();
        both
    }

    fn write(&mut self, knob: Knob, value: u64) {
        let file = fs::write(format!("{}/{}", support::KSM, knob.name()), knob.text(value));
        let simulated = self.machine.write(knob, value);
        assert_eq!(file.is_ok(), simulated.is_ok(), "{knob}={value}: kernel {file:?}, simulated {simulated:?}");
        self.log.push_str(&format!("; {knob}={value}"));
    }

    fn add(&mut self, parts: &[MemoryPart]) -> usize {
        self.kernel.push(Some(support::guest(parts)));
        let guest = self.ids.len();
        let parts: Vec<_> = parts.iter().map(|&part| (part, 0)).collect();
        let pages = parts.iter().enumerate().flat_map(|(index, &part)| contents(guest, index, part));
        self.ids.push((self.machine.add_guest("guest", pages), parts.clone()));
        self.log.push_str(&format!("; add {parts:?}"));
        guest
    }

    /// Has khugepaged sleep on both sides. The lock puts its settings back.
    fn hold_off_khugepaged(&mut self) {
        let pace = KhugepagedPace { pages_to_scan: 1, scan_sleep_millisecs: 1_000_000_000 };
        self.machine.set_khugepaged(pace);
        for (name, value) in
            [("pages_to_scan", pace.pages_to_scan), ("scan_sleep_millisecs", pace.scan_sleep_millisecs)]
        {
            fs::write(format!("{HUGE_PAGES}/khugepaged/{name}"), value.to_string()).unwrap();
        }
    }

    /// Adds a guest in huge pages, of which those with a byte hold nothing else. Returns `None`, said loudly, where the
    /// machine gives no huge pages.
    fn add_huge(&mut self, seed: u64, pages: usize, byte: impl Fn(usize) -> Option<u8>) -> Option<usize> {
        let part = MemoryPart::Huge { seed, pages };
        let process = support::guest(&[part]);
        if rollup(&process, "AnonHugePages") != (pages * 4096) as u64 {
            skipped("this machine gave no transparent huge pages");
            return None;
        }
        let memory = File::options().write(true).open(format!("/proc/{}/mem", process.pid())).unwrap();
        let first = huge_memory(&process);
        for (page, byte) in (0..pages).filter_map(|page| Some((page, byte(page)?))) {
            memory.write_all_at(&[byte; 4096], first + page as u64 * 4096).unwrap();
        }
        let guest = self.ids.len();
        let held = contents(guest, 0, (part, 0)).enumerate().map(|(page, content)| match byte(page) {
            Some(0) => ZERO,
            Some(byte) => 1 << 61 | u64::from(byte),
            None => content,
        });
        let id = self.machine.add_guest("guest", held);
        assert!(self.machine.use_huge_pages(id));
        self.anonymous_at_first.insert(guest, rollup(&process, "Anonymous"));
        self.kernel.push(Some(process));
        self.ids.push((id, vec![(part, 0)]));
        self.log.push_str(&format!("; add {part:?}"));
        Some(guest)
    }

    fn remove(&mut self, guest: usize) {
        self.kernel[guest] = None;
        assert!(self.machine.remove_guest(self.ids[guest].0));
        self.log.push_str(&format!("; remove {guest}"));
    }

    /// Rewrites a part with new content, or with what it held at first.
    fn rewrite(&mut self, guest: usize, part: usize, refill: bool) {
        let process = self.kernel[guest].as_mut().unwrap();
        if refill { process.refill(part) } else { process.rewrite(part) }.unwrap();
        let (id, parts) = &mut self.ids[guest];
        let generation = &mut parts[part].1;
        *generation = if refill { 0 } else { *generation + 1 };
        let first: usize = parts[..part].iter().map(|(part, _)| part.pages()).sum();
        for (page, new) in contents(guest, part, parts[part]).enumerate() {
            assert!(self.machine.write_page(*id, first + page, new));
        }
        self.log.push_str(&format!("; rewrite {guest}.{part} {refill}"));
    }

    /// Makes one more pass on both sides, and compares all figures.
    fn passes(&mut self, count: u64) {
        for _ in 0..count {
            let before = number("full_scans");
            let simulated = self.simulated_scans();
            // ksmd counts the pass, and then reads how long it is to sleep: a value written in between does not wake it.
            wait_until("ksmd sleeps", || is_asleep(self.ksmd));
            self.write(Knob::SleepMillisecs, next_sleep());
            // `run` itself does not wake ksmd from the sleep that it may still be in.
            if ksm("run") != "1" {
                self.write(Knob::Run, 1);
            }
            wait_until("the pass is over", || number("full_scans") > before);
            self.machine.advance(std::time::Duration::from_secs(30));
            assert_eq!((number("full_scans"), self.simulated_scans()), (before + 1, simulated + 1));
            self.passes += 1;
            self.compare();
        }
    }

    /// Makes one more batch on both sides, and compares all figures.
    fn batch(&mut self) {
        let before = number("pages_scanned");
        wait_until("ksmd sleeps", || is_asleep(self.ksmd));
        self.write(Knob::SleepMillisecs, next_sleep());
        if ksm("run") != "1" {
            self.write(Knob::Run, 1);
        }
        wait_until("the batch is over", || number("pages_scanned") > before && is_asleep(self.ksmd));
        self.machine.advance(std::time::Duration::from_secs(30));
        self.compare();
    }

    fn simulated_scans(&self) -> u64 {
        self.machine.sample().ksm.full_scans.get().unwrap()
    }

    fn compare(&self) {
        let (mut kernel, kernel_guests) = self.on_kernel();
        for name in ["pages_scanned", "pages_skipped", "cow_ksm"] {
            if let Some(value) = kernel.get_mut(name) {
                *value -= self.before.0[name];
            }
        }
        let (simulated, simulated_guests) = self.on_machine();
        assert_eq!(kernel, simulated, "kernel, simulated after pass {}{}", self.passes, self.log);
        assert_eq!(kernel_guests, simulated_guests, "after pass {}{}", self.passes, self.log);
    }

    fn on_kernel(&self) -> Figures {
        let sample = self.machine.sample();
        let names = sample.ksm.entries().filter(|(field, reading)| {
            field.kind != FigureKind::State && field.name != "general_profit" && reading.value().is_some()
        });
        let mut figures: BTreeMap<_, _> = names.map(|(field, _)| (field.name, number(field.name))).collect();
        let profit = ksm("general_profit").parse::<i64>().unwrap() - zero_pages_at_first() * 4096;
        figures.insert("profit", profit.cast_unsigned());
        figures.entry("ksm_zero_pages").and_modify(|pages| *pages = zero_pages());
        figures.insert("cow_ksm", support::vmstat("cow_ksm"));
        let (mut huge_pages, mut emptied_pages) = (0, 0);
        for (guest, at_first) in &self.anonymous_at_first {
            if let Some(process) = &self.kernel[*guest] {
                huge_pages += rollup(process, "AnonHugePages") >> 21;
                emptied_pages += at_first.saturating_sub(rollup(process, "Anonymous")) / 4096;
            }
        }
        figures.extend([("huge_pages", huge_pages), ("emptied_pages", emptied_pages)]);
        let guests = self.kernel.iter().flatten().map(|guest| {
            let text = fs::read_to_string(format!("/proc/{}/ksm_stat", guest.pid())).unwrap();
            three(KsmStat::parse(&text).unwrap())
        });
        (figures, guests.collect())
    }

    fn on_machine(&self) -> Figures {
        let sample = self.machine.sample();
        let mut figures = BTreeMap::new();
        for (field, reading) in sample.ksm.entries() {
            let value = match reading.value() {
                Some(KsmValue::Unsigned(value)) if field.kind != FigureKind::State => *value,
                Some(KsmValue::Signed(value)) if field.name != "general_profit" => value.cast_unsigned(),
                _ => continue,
            };
            figures.insert(field.name, value);
        }
        figures.insert("profit", sample.ksm.general_profit.get().unwrap() as u64);
        figures.insert("cow_ksm", sample.host.vmstat.value().unwrap().cow_ksm.unwrap());
        let alive = (0..self.kernel.len()).filter(|&guest| self.kernel[guest].is_some());
        let emptied =
            alive.zip(&sample.processes).map(|(guest, process)| match self.anonymous_at_first.get(&guest) {
                Some(_) => self.ids[guest].1[0].0.pages() as u64 - process.known_rss_bytes() / 4096,
                None => 0,
            });
        figures.extend([("huge_pages", self.machine.figures().huge_pages), ("emptied_pages", emptied.sum())]);
        (figures, sample.processes.iter().map(|process| three(process.ksm)).collect())
    }
}

fn three(stat: KsmStat) -> [u64; 3] {
    [stat.rmap_items, stat.merging_pages, stat.zero_pages].map(|figure| figure.unwrap())
}

/// A number for each page's content, equal where the guests' own contents are.
fn contents(guest: usize, index: usize, (part, generation): (MemoryPart, u64)) -> impl Iterator<Item = u64> {
    let own = 1 << 62 | (guest as u64) << 48 | (index as u64) << 40 | generation << 20;
    (0..part.pages() as u64).map(move |page| match part {
        MemoryPart::Equal { seed, .. } | MemoryPart::Huge { seed, .. } if generation == 0 => {
            1 << 60 | seed << 32 | page
        }
        MemoryPart::Zero { .. } if generation == 0 => ZERO,
        _ => own | page,
    })
}

fn equal(seed: u64, pages: usize) -> MemoryPart {
    MemoryPart::Equal { seed, pages }
}

#[test]
fn clean_passes_give_the_same_figures() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut both = KernelAndSimulator::new();
    let a =
        both.add(&[equal(1, 500), MemoryPart::Zero { pages: 50 }, MemoryPart::Unique { pages: 200 }, equal(2, 30)]);
    let b = both.add(&[equal(1, 300), equal(2, 30), MemoryPart::Unique { pages: 10 }]);
    both.passes(3);
    // A new guest, writes to merged and to unshared pages, the old content again, an end.
    both.add(&[equal(1, 500), MemoryPart::Zero { pages: 20 }]);
    both.passes(1);
    both.rewrite(a, 0, false);
    both.rewrite(a, 2, false);
    both.compare();
    both.passes(2);
    both.rewrite(a, 0, true);
    both.passes(2);
    both.remove(b);
    both.passes(2);
    // The zero page, for pages that are not merged yet and for rewritten ones.
    both.write(Knob::UseZeroPages, 1);
    both.add(&[MemoryPart::Zero { pages: 64 }, equal(3, 5), equal(3, 5)]);
    both.rewrite(a, 1, false);
    both.rewrite(a, 1, true);
    both.passes(4);
    both.write(Knob::MaxPageSharing, 128);
    both.write(Knob::Run, 2);
    both.compare();
    both.passes(3);
}

/// The assumption behind a lease: a new sleep wakes ksmd for a batch, and the batch is all that it does.
#[test]
fn each_new_sleep_is_a_batch_of_the_same_pages() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut both = KernelAndSimulator::new();
    both.write(Knob::PagesToScan, 70);
    // One part each: the simulator does not know which address the parts of a guest have.
    for part in [equal(1, 300), MemoryPart::Unique { pages: 200 }, equal(1, 300)] {
        both.add(&[part]);
    }
    for _ in 0..40 {
        both.batch();
    }
}

#[test]
fn smart_scan_skips_the_same_pages_in_the_same_passes() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut both = KernelAndSimulator::new();
    both.write(Knob::SmartScan, 1);
    let a = both.add(&[equal(1, 400), MemoryPart::Unique { pages: 100 }]);
    both.passes(13);
    both.add(&[equal(1, 400)]);
    both.passes(3);
    both.add(&[equal(1, 200), MemoryPart::Zero { pages: 9 }]);
    both.passes(10);
    both.rewrite(a, 1, false);
    both.rewrite(a, 0, false);
    both.passes(20);
    both.write(Knob::SmartScan, 0);
    both.passes(2);
    both.write(Knob::SmartScan, 1);
    both.passes(12);
}

#[test]
fn full_frames_make_chains_of_the_same_length() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut both = KernelAndSimulator::new();
    both.write(Knob::MaxPageSharing, 3);
    let a = both.add(&[MemoryPart::Zero { pages: 100 }, equal(1, 40)]);
    both.passes(3);
    for pages in [1, 2, 5] {
        both.add(&[MemoryPart::Zero { pages }, equal(1, 40), equal(1, 40)]);
        both.passes(3);
    }
    both.remove(a);
    both.passes(2);
}

#[test]
fn huge_pages_split_and_all_their_pages_merge_in_the_same_pass() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut both = KernelAndSimulator::new();
    both.hold_off_khugepaged();
    let Some(first) = both.add_huge(1, 2048, |_| None) else { return };
    both.add_huge(1, 2048, |_| None);
    both.passes(1);
    assert_eq!(number("pages_sharing"), 0);
    both.passes(1);
    assert_eq!(number("pages_sharing"), 2048, "no page waits in an LRU batch for the next pass");
    // One that joins, one with two equal pages in one huge page, and one that has nothing to merge.
    both.add_huge(1, 512, |_| None);
    both.add_huge(2, 512, |page| (page < 2).then_some(7));
    both.add_huge(3, 1024, |_| None);
    both.passes(5);
    both.remove(first);
    both.passes(2);
}

/// The empty page is the root of the unstable tree: its split frees it, and no search gets past it until the next pass.
#[test]
fn a_freed_page_at_the_root_keeps_huge_pages_from_merging_for_a_pass() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut both = KernelAndSimulator::new();
    both.hold_off_khugepaged();
    both.write(Knob::UseZeroPages, 1);
    let empty = |page: usize| (page == 0 || page % 512 > 300).then_some(0);
    if both.add_huge(4, 1024, empty).is_none() {
        return;
    }
    both.add_huge(4, 1024, empty);
    both.passes(2);
    assert_eq!(number("pages_sharing"), 0);
    both.passes(3);
    assert!(number("pages_sharing") > 500);
}

/// An action between two passes. Guests and parts are named modulo their number.
#[derive(Debug, Clone)]
enum GuestStep {
    Add(Vec<MemoryPart>),
    Rewrite(usize, usize, bool),
    Remove(usize),
    Write(Knob, u64),
    Passes(u64),
}

fn step() -> impl Strategy<Value = GuestStep> {
    let part = prop_oneof![
        (0_u64..4, 1_usize..60).prop_map(|(seed, pages)| equal(seed, pages)),
        (1_usize..40).prop_map(|pages| MemoryPart::Zero { pages }),
        (1_usize..40).prop_map(|pages| MemoryPart::Unique { pages }),
    ];
    let write = prop_oneof![
        2 => (0_u64..2).prop_map(|on| (Knob::SmartScan, on)),
        1 => (0_u64..2).prop_map(|on| (Knob::UseZeroPages, on)),
        1 => (2_u64..9).prop_map(|most| (Knob::MaxPageSharing, most)),
        1 => Just((Knob::Run, 2)),
    ];
    prop_oneof![
        2 => prop::collection::vec(part, 1..5).prop_map(GuestStep::Add),
        3 => (any::<usize>(), any::<usize>(), any::<bool>()).prop_map(|(g, p, old)| GuestStep::Rewrite(g, p, old)),
        1 => any::<usize>().prop_map(GuestStep::Remove),
        1 => write.prop_map(|(knob, value)| GuestStep::Write(knob, value)),
        4 => (1_u64..6).prop_map(GuestStep::Passes),
    ]
}

/// Stories by chance, the same ones each time.
#[test]
fn arbitrary_stories_give_the_same_figures() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let mut runner = TestRunner::deterministic();
    for _ in 0..8 {
        let story = prop::collection::vec(step(), 25).new_tree(&mut runner).unwrap().current();
        let mut both = KernelAndSimulator::new();
        both.add(&[equal(0, 64), MemoryPart::Zero { pages: 16 }]);
        for step in story {
            let alive: Vec<usize> = (0..both.kernel.len()).filter(|&guest| both.kernel[guest].is_some()).collect();
            match step {
                GuestStep::Add(parts) => drop(both.add(&parts)),
                GuestStep::Rewrite(guest, part, refill) => {
                    let guest = alive[guest % alive.len()];
                    both.rewrite(guest, part % both.ids[guest].1.len(), refill);
                }
                // One always stays: without guests there are no passes.
                GuestStep::Remove(guest) if alive.len() > 1 => both.remove(alive[guest % alive.len()]),
                GuestStep::Remove(_) => {}
                GuestStep::Write(knob, value) => both.write(knob, value),
                GuestStep::Passes(count) => both.passes(count),
            }
            both.compare();
        }
    }
}
