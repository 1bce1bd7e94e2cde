//! Guided ranges on the live kernel: a program that marks what the daemon advises, against one that marks everything.

use crate::support;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::program::{RunningProgram, ksmith};
use crate::support::{KernelLock, number, skipped};
use ksmith_host::ksmd;
use ksmith_host::root::Root;

/// Holds 96 MiB, a tenth of it equal in every process that runs this, in one stretch; the rest is its own.
/// At a word from its standard input it marks everything, or what the daemon advises, or says whether it is intact.
const PROGRAM: &str = r#"
import ctypes, hashlib, mmap, os, random, socket, sys
PAGE, PAGES, EQUAL = mmap.PAGESIZE, 24576, 2458
memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
alike, own = random.Random(7), random.Random(os.getpid())
for page in range(PAGES):
    source = alike if 8192 <= page < 8192 + EQUAL else own
    memory[page * PAGE:(page + 1) * PAGE] = source.randbytes(PAGE)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
before = hashlib.sha256(memory).hexdigest()
print('ready', flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == 'all':
        memory.madvise(12)
        print('marked', 1, PAGES * PAGE, flush=True)
    elif word == 'guided':
        peer = socket.socket(socket.AF_UNIX)
        peer.connect(sys.argv[1])
        peer.sendall(b'ranges\n')
        count = size = 0
        for answer in peer.makefile():
            if not answer.startswith('range '):
                break
            start, end = (int(word, 16) for word in answer.split()[1:3])
            start, end = max(start, base), min(end, base + PAGES * PAGE)
            if start < end:
                memory.madvise(12, start - base, end - start)
                count, size = count + 1, size + end - start
        print('marked' if answer.startswith('ok ') else answer, count, size, flush=True)
    elif word == 'check':
        print('intact' if hashlib.sha256(memory).hexdigest() == before else 'broken', flush=True)
"#;

struct RangesProgram {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl RangesProgram {
    fn start(socket: &Path) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", PROGRAM])
            .arg(socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, out };
        assert_eq!(program.line(), "ready");
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn say(&mut self, word: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
        self.line()
    }
}

impl Drop for RangesProgram {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The savings and costs of one way of marking.
struct MarkingCost {
    saved_pages: u64,
    /// Page visits in one pass. ksmd may make one more pass than requested until it is stopped.
    visits: u64,
    tracked_pages: u64,
    ksmd_seconds: f64,
}

impl std::fmt::Display for MarkingCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { saved_pages, visits, tracked_pages, ksmd_seconds } = self;
        let metadata = tracked_pages * 64 / 1024;
        write!(
            f,
            "{saved_pages} pages saved, {visits} visits in a pass, {ksmd_seconds:.3} s of ksmd, {metadata} KiB of metadata"
        )
    }
}

fn measure(socket: &Path, word: &str) -> MarkingCost {
    let mut programs = [RangesProgram::start(socket), RangesProgram::start(socket)];
    for program in &mut programs {
        let said = program.say(word);
        assert!(said.starts_with("marked "), "{said}");
    }
    let ksmd = || ksmd::cpu_ns(&Root::host()).unwrap_or(0);
    let (visits, passes, ns) = (number("pages_scanned"), number("full_scans"), ksmd());
    let (code, _, why) = ksmith(&["scan", "--passes", "3"]);
    assert_eq!(code, 0, "{why}");
    let visits = (number("pages_scanned") - visits) / (number("full_scans") - passes);
    let ksmd_ns = ksmd() - ns;
    let (shared, sharing) = (number("pages_shared"), number("pages_sharing"));
    let tracked = shared + sharing + number("pages_unshared") + number("pages_volatile");
    for program in &mut programs {
        assert_eq!(program.say("check"), "intact");
    }
    MarkingCost { saved_pages: sharing, visits, tracked_pages: tracked, ksmd_seconds: ksmd_ns as f64 / 1e9 }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test's own words")]
fn what_is_advised_saves_as_much_for_a_third_of_the_visits() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !Path::new(support::KSM).join("pages_scanned").exists() || !has_python() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("user");
    let config = format!(
        "[policy]\nkind = \"fixed\"\n[policy.fixed.settings]\nrun = 0\n[optin]\nsocket = \"{}\"\n",
        socket.display()
    );
    let daemon = RunningProgram::daemon(&config, &[]);
    let all = measure(&socket, "all");
    // The first two have ended; their pages count until they are unmerged.
    support::write("run", "2");
    support::wait_until("nothing is merged", || number("pages_shared") == 0);
    let guided = measure(&socket, "guided");
    let said = format!("everything: {all}; what is advised: {guided}");
    let _ = writeln!(std::io::stderr(), "{said}");
    daemon.end();
    assert!((2458 - support::A_HANDFUL..=2458).contains(&all.saved_pages), "{said}");
    assert!(guided.saved_pages * 100 >= all.saved_pages * 95, "{said}");
    // Visits, and not time: that another program was on the processor decides nothing.
    assert!(guided.visits * 3 <= all.visits, "{said}");
    assert!(guided.tracked_pages * 3 <= all.tracked_pages, "{said}");
}

fn has_python() -> bool {
    let output = Command::new("python3")
        .args(["-c", "import random; random.randbytes; import mmap; mmap.mmap.madvise"])
        .output();
    let has = output.is_ok_and(|output| output.status.success());
    if !has {
        skipped("there is no Python 3.9");
    }
    has && fs::metadata("/proc/self/pagemap").is_ok()
}
