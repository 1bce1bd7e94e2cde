//! Savings by page tables against PSS: in huge pages, whose zeros a split frees, and which a collapse un-merges while ksmd
//! is parked.

use ksmith_core::account::{self, HostTotals};
use ksmith_core::sample::Sample;
use ksmith_host::merge_reader::MergeReader;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::undo::StateDir;

use crate::scripted::ScriptedProgram;
use crate::support::{KernelLock, clean_passes, number, skipped, wait_until};

const MIB: u64 = 1 << 20;

/// Memory of each program.
const SIZE: u64 = 64 * MIB;

/// Fills huge pages: of four pages one is zeros, one equal in every process that runs this, and two are its own. It collapses a
/// part of its memory, given in MiB, when it is told to.
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
    for start in range(0, int(line) << 20, HUGE):
        try:
            memory.madvise(25, start, HUGE)
        except OSError:
            pass
    print("collapsed", flush=True)
"#;

fn start_program() -> Option<ScriptedProgram> {
    ScriptedProgram::start(&["-c", PROGRAM, &SIZE.to_string()])
}

fn collapse(program: &mut ScriptedProgram, mib: u64) {
    assert_eq!(program.obey(&mib.to_string()), "collapsed");
}

/// The figures of the host, and PSS.
struct Truth {
    observer: HostObserver,
    reader: MergeReader,
    programs: [ScriptedProgram; 2],
}

impl Truth {
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

    /// Returns the anonymous part of PSS: the rest changes whenever another Python begins or ends.
    fn pss(&self) -> u64 {
        self.programs.iter().map(|program| program.sums().pss_anon.unwrap()).sum()
    }

    fn huge(&self) -> u64 {
        self.programs.iter().map(|program| program.sums().anon_huge.unwrap()).sum()
    }

    /// Compares what is said to be saved with what PSS has lost since it was `before`, and returns the latter.
    fn compare(&mut self, before: u64) -> u64 {
        let sample = self.read();
        let totals = HostTotals::from_sample(&sample);
        let freed = before.saturating_sub(self.pss());
        // A few pages of each program's interpreter come or go.
        let tolerance = freed / 20 + 64 * 4096;
        let (parts, rest) = account::shares(&sample);
        let is_ours = |pid: u32| self.programs.iter().any(|program| program.pid() == pid);
        let processes = sample.processes.iter().zip(&parts).filter(|(process, _)| is_ours(process.id.pid));
        let saved: u64 = processes.map(|(_, part)| part.saved_bytes).sum();
        assert!(saved.abs_diff(freed) <= tolerance, "{freed} freed by PSS, {saved} by {totals:?}");
        assert_eq!((totals.exposure_bytes, totals.unverified_bytes), (totals.saved_bytes, 0));
        assert_eq!(totals.huge_bytes, Some(self.huge()));
        assert_eq!(parts.iter().map(|part| part.saved_bytes).sum::<u64>() + rest, totals.saved_bytes);
        freed
    }
}

#[test]
fn what_is_said_to_be_saved_follows_pss_also_where_no_counter_does() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let (Some(one), Some(other)) = (start_program(), start_program()) else {
        return skipped("there is no Python");
    };
    let state = tempfile::tempdir().unwrap();
    let directory = StateDir::at(state.path());
    let (observer, reader) = (HostObserver::new(Root::host()), MergeReader::start(&directory).unwrap());
    let mut truth = Truth { observer, reader, programs: [one, other] };
    if truth.huge() < 2 * SIZE - 8 * MIB {
        return skipped("the kernel has no huge pages to give now");
    }
    if truth.programs[0].sums().ksm.is_none() {
        return skipped("smaps_rollup shows merged memory from Linux 6.7 on");
    }
    let before = truth.pss();
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
