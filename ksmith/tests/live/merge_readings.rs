//! Savings by page tables against PSS: in huge pages, whose zeros a split frees, and which a collapse un-merges while ksmd
//! is parked.

use std::fs;

use ksmith_core::account::{self, HostTotals};
use ksmith_core::kernel::SmapsRollup;
use ksmith_core::knobs::Knob;
use ksmith_core::sample::Sample;
use ksmith_host::fold::frees_zeros;
use ksmith_host::merge_reader::MergeReader;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::undo::StateDir;

use serde_json::Value;

use crate::scripted::ScriptedProgram;
use crate::support::program::{RunningProgram, await_sample, ksmith};
use crate::support::{KernelLock, clean_passes, number, skipped, wait_until};

const MIB: u64 = 1 << 20;

/// Memory of each program.
pub const SIZE: u64 = 64 * MIB;

/// Fills huge pages: of four pages one is zeros, one equal in every process that runs this, and two are its own. When it is told
/// to, it writes to every page, or collapses a part of its memory, given in MiB.
const PROGRAM: &str = r#"
import mmap, os, random, sys
PAGE, HUGE = mmap.PAGESIZE, 2 << 20
size = int(sys.argv[1])
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
own = random.Random(os.getpid())
for page in range(size // PAGE):
    source = [None, random.Random(page), own, own][page % 4]
    memory[page * PAGE:(page + 1) * PAGE] = source.randbytes(PAGE) if source else bytes(PAGE)
memory.madvise(mmap.MADV_MERGEABLE)
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "write":
        for start in range(0, size, PAGE):
            memory[start] ^= 1
        print("written", flush=True)
        continue
    for start in range(0, int(line) << 20, HUGE):
        try:
            memory.madvise(25, start, HUGE)
        except OSError:
            pass
    print("collapsed", flush=True)
"#;

/// Starts two programs in huge pages. `None`, told as a skip, where there is no Python, or the kernel lacks something.
pub fn start_programs() -> Option<[ScriptedProgram; 2]> {
    let start = || ScriptedProgram::start(&["-c", PROGRAM, &SIZE.to_string()]);
    let (Some(one), Some(other)) = (start(), start()) else {
        skipped("there is no Python");
        return None;
    };
    let programs = [one, other];
    if sum(&programs, |sums| sums.anon_huge) < 2 * SIZE - 8 * MIB {
        skipped("the kernel has no huge pages to give now");
        return None;
    }
    if programs[0].sums().ksm.is_none() {
        skipped("smaps_rollup shows merged memory from Linux 6.7 on");
        return None;
    }
    Some(programs)
}

/// Sums a figure of both programs.
pub fn sum(programs: &[ScriptedProgram; 2], figure: fn(&SmapsRollup) -> Option<u64>) -> u64 {
    programs.iter().map(|program| figure(&program.sums()).unwrap()).sum()
}

/// Returns the anonymous part of PSS: the rest changes whenever another Python begins or ends.
pub fn pss(programs: &[ScriptedProgram; 2]) -> u64 {
    sum(programs, |sums| sums.pss_anon)
}

/// Returns the most by which a figure may differ from what PSS has lost. A few pages of each program's interpreter come or go.
pub fn tolerance(freed: u64) -> u64 {
    freed / 20 + 64 * 4096
}

fn collapse(program: &mut ScriptedProgram, mib: u64) {
    assert_eq!(program.obey(&mib.to_string()), "collapsed");
}

/// The figures of the host, and PSS.
struct Truth {
    observer: HostObserver,
    reader: MergeReader,
    programs: [ScriptedProgram; 2],
    /// Memory in huge pages before anything was merged.
    whole: u64,
}

impl Truth {
    /// Observes two programs of which nothing is merged. `None` where [`start_programs`] gives none.
    fn start(directory: &StateDir) -> Option<Self> {
        let programs = start_programs()?;
        let (observer, reader) = (HostObserver::new(Root::host()), MergeReader::start(directory).unwrap());
        let whole = sum(&programs, |sums| sums.anon_huge);
        Some(Self { observer, reader, programs, whole })
    }

    fn sample(&mut self) -> Sample {
        self.observer.look_at_all();
        let mut sample = self.observer.sample();
        self.reader.fill(&mut sample);
        sample
    }

    /// Returns a sample with readings of both programs that are younger than the call.
    fn read(&mut self) -> Sample {
        let began = self.sample().at;
        let mut read = Sample::default();
        wait_until("both are read", || {
            read = self.sample();
            self.reader.request(&read);
            let is_new = |child: &ScriptedProgram| {
                let process = read.processes.iter().find(|process| process.id.pid == child.pid());
                process.and_then(|process| process.merge_reading).is_some_and(|reading| reading.read_at > began)
            };
            self.programs.iter().all(is_new)
        });
        read
    }

    /// Compares what is said to be saved with what PSS has lost since it was `before`, and returns the latter.
    fn compare(&mut self, before: u64) -> u64 {
        let sample = self.read();
        let totals = HostTotals::from_sample(&sample);
        let freed = before.saturating_sub(pss(&self.programs));
        let (parts, rest) = account::shares(&sample);
        let is_ours = |pid: u32| self.programs.iter().any(|program| program.pid() == pid);
        let processes = sample.processes.iter().zip(&parts).filter(|(process, _)| is_ours(process.id.pid));
        let ours: Vec<_> = processes.collect();
        let saved: u64 = ours.iter().map(|(_, part)| part.saved_bytes).sum();
        let split: u64 = ours.iter().map(|(process, _)| process.split.unwrap().bytes).sum();
        let gone = self.whole.saturating_sub(sum(&self.programs, |sums| sums.anon_huge));
        assert!(split.abs_diff(gone) <= 4 * MIB, "{gone} are not in huge pages any more, {split} are split");
        assert!(saved.abs_diff(freed) <= tolerance(freed), "{freed} freed by PSS, {saved} by {totals:?}");
        assert!(
            totals.exposure_bytes.abs_diff(freed) <= tolerance(freed),
            "{freed} freed by PSS, {totals:?} exposed"
        );
        assert_eq!(totals.unverified_bytes, 0);
        assert_eq!(totals.huge_bytes, Some(sum(&self.programs, |sums| sums.anon_huge)));
        assert_eq!(parts.iter().map(|part| part.saved_bytes).sum::<u64>() + rest, totals.saved_bytes);
        freed
    }
}

#[test]
fn what_is_said_to_be_saved_follows_pss_also_where_no_counter_does() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let state = tempfile::tempdir().unwrap();
    let directory = StateDir::at(state.path());
    let Some(mut truth) = Truth::start(&directory) else { return };
    let before = pss(&truth.programs);
    assert!(truth.compare(before) < MIB, "nothing is merged yet");
    clean_passes(4);
    let merged = truth.compare(before);
    // A quarter is equal in both, and where splits free zeros, a quarter of each is zeros.
    assert!(merged > SIZE / 5, "{merged} bytes");
    let folded_bytes = |truth: &mut Truth| -> u64 {
        let sample = truth.sample();
        sample.processes.iter().filter_map(|process| process.folded_bytes).sum()
    };
    // A daemon that starts anew knows the zeros that splits freed before: the request after a reading writes them down.
    truth.compare(before);
    let folded = folded_bytes(&mut truth);
    truth.reader = MergeReader::start(&directory).unwrap();
    let known = folded_bytes(&mut truth);
    // What was written down is one reading older, and khugepaged may have filled some since.
    assert!(known >= folded, "{known} of {folded} bytes");
    truth.compare(before);
    let counted = number("pages_sharing");
    for program in &mut truth.programs {
        collapse(program, SIZE / MIB / 2);
    }
    let halved = truth.compare(before);
    assert!(halved < merged * 2 / 3, "{merged} bytes were saved, and {halved} are");
    collapse(&mut truth.programs[0], SIZE / MIB);
    assert!(truth.compare(before) < halved * 2 / 3);
    assert_eq!(number("pages_sharing"), counted, "no counter has noticed");
    let Truth { mut observer, programs, .. } = truth;
    drop(programs);
    observer.look_at_all();
    let ended = HostTotals::from_sample(&observer.sample());
    assert!(number("pages_sharing") > 0 && ended.saved_bytes < MIB, "nobody maps it: {ended:?}");
}

#[test]
fn exposure_is_what_the_host_needs_once_every_page_is_written_to() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let state = tempfile::tempdir().unwrap();
    let Some(mut truth) = Truth::start(&StateDir::at(state.path())) else { return };
    hold_khugepaged();
    // Zeros that splits free are told by what was there before.
    truth.read();
    clean_passes(4);
    let exposed = HostTotals::from_sample(&truth.read()).exposure_bytes;
    let held = pss(&truth.programs);
    for program in &mut truth.programs {
        assert_eq!(program.obey("write"), "written");
    }
    let needed = pss(&truth.programs).saturating_sub(held);
    // A quarter is equal in both.
    assert!(
        needed > SIZE / 5 && exposed.abs_diff(needed) <= tolerance(needed),
        "{needed} needed, {exposed} exposed"
    );
    let left = HostTotals::from_sample(&truth.read()).exposure_bytes;
    assert!(left <= tolerance(0), "{left} bytes are exposed, and nothing is merged");
}

/// Has khugepaged leave alone what is merged or was freed, until the lock puts its settings back.
pub fn hold_khugepaged() {
    for knob in [Knob::MaxPtesShared, Knob::MaxPtesNone] {
        fs::write(knob.path(), "0").unwrap();
    }
}

#[test]
fn a_scan_without_a_daemon_says_what_pss_has_lost() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(mut programs) = start_programs() else { return };
    let scan = |passes: &str| {
        let (code, said, told) = ksmith(&["scan", "--json", "--passes", passes]);
        assert_eq!(code, 0, "{told}");
        let said: Value = serde_json::from_str(&said).unwrap();
        let figure = |key: &str| said[key].as_u64().unwrap();
        (figure("saved_bytes_before"), figure("saved_bytes"), told)
    };
    hold_khugepaged();
    let before = pss(&programs);
    let (saved_before, saved, told) = scan("4");
    let freed = before - pss(&programs);
    assert!(freed > SIZE / 5, "{freed} bytes");
    assert!(
        (saved - saved_before).abs_diff(freed) <= tolerance(freed),
        "{freed} freed by PSS: {saved_before} {saved}"
    );
    assert!(!told.contains("khugepaged"), "its settings stay at 0: {told}");
    // Pages that a collapse un-merges are not counted, and zeros that were freed before are.
    collapse(&mut programs[0], SIZE / MIB / 2);
    let freed = before - pss(&programs);
    let (saved_before, ..) = scan("2");
    assert!(saved_before.abs_diff(freed) <= tolerance(freed), "{freed} freed by PSS, {saved_before} by the scan");
    collapse(&mut programs[0], SIZE / MIB / 2);
    fs::write(Knob::MaxPtesShared.path(), "256").unwrap();
    let (.., told) = scan("1");
    assert!(told.contains("khugepaged may undo merges in memory with huge pages"), "{told}");
}

#[test]
fn the_report_of_a_job_has_zeros_that_splits_freed() {
    let Some(_lock) = KernelLock::acquire() else { return };
    // It is known now that there are Python and huge pages.
    let Some(programs) = start_programs() else { return };
    drop(programs);
    hold_khugepaged();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (program, hold, report) = (file("program.py"), file("hold"), file("report.json"));
    fs::write(&program, PROGRAM).unwrap();
    fs::write(&hold, "").unwrap();
    let one = format!("while test -e {hold}; do sleep 0.05; done | python3 {program} {SIZE}");
    let both = format!("({one}) & ({one}) & wait");
    let mut job =
        RunningProgram::start(&["run", "-vv", "--scan", "2", "--report", &report, "--", "sh", "-c", &both]);
    // A quarter is equal in both.
    wait_until("it is merged", || number("pages_sharing") * 4096 >= SIZE / 4 / 10 * 9);
    await_sample(|| job.log());
    fs::remove_file(&hold).unwrap();
    assert_eq!(job.wait().code(), Some(0), "{}", job.log());
    let report: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let saved = report["peak_saved_bytes"].as_u64().unwrap();
    // A quarter of each is zeros. The interpreters have some memory in common besides.
    let zeros = if frees_zeros(&Root::host()) { SIZE / 2 } else { 0 };
    assert!(saved >= (SIZE / 4 + zeros) / 10 * 8 && saved <= SIZE / 4 + zeros + 16 * MIB, "{report}");
}
