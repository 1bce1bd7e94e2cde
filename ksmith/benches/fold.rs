//! Benchmark of `ksmith fold`: its speed on one process by one thread and by two, and that of two folding processes on
//! two victims. Compared with only reading the memory, and with ksmd's CPU time for the same pages.
//!
//! `cargo bench -p ksmith --bench fold`, as root. A victim is a process with huge pages, half of it zero in runs. Each round takes
//! all measurements one after another, so that whatever else goes on falls on all alike, and compares within the round. Figures are
//! medians. `KSMITH_BENCH_ROUNDS` (7) sets the rounds, `KSMITH_BENCH_MIB` (1024) the memory of a victim, `KSMITH_BENCH_RUN` (64)
//! the pages of a run. ksmd's part takes the kernel lock of the tests, and is left out where KSM is in use.

#![allow(unsafe_code, reason = "memory of mmap, and the CPU time of children")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]
#![allow(clippy::disallowed_methods, reason = "a bench prints its table itself")]
#![allow(missing_docs, reason = "no other crate names these")]

mod child;
#[path = "../tests/support/mod.rs"]
mod support;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use child::BenchChild;
use ksmith_host::ksmd;
use ksmith_host::root::Root;
use ksmith_lab::measure::Spread;
use support::KernelLock;

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;
const PROGRAM: &str = env!("CARGO_BIN_EXE_ksmith");

/// The first argument of this program where it is a victim.
const VICTIM: &str = "be-a-victim";

/// The throughput and CPU time of one measurement.
#[derive(Debug, Clone, Copy)]
struct FoldThroughput {
    bytes_per_second: f64,
    cpu_seconds: f64,
}

/// All measurements of one round.
#[derive(Debug)]
struct FoldRound {
    read_by_one: FoldThroughput,
    read_by_two: FoldThroughput,
    one_thread: FoldThroughput,
    two_threads: FoldThroughput,
    two_processes: FoldThroughput,
    ksmd_cpu_seconds: Option<f64>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let setting = |name: &str, default: usize| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let (length, run) = (setting("KSMITH_BENCH_MIB", 1024) << 20, setting("KSMITH_BENCH_RUN", 64));
    if arguments.get(1).is_some_and(|word| word == VICTIM) {
        return be_victim(length, run);
    }
    if !rustix::process::geteuid().is_root() {
        println!("folding from outside needs root's rights");
        return;
    }
    let lock = KernelLock::acquire();
    let count = setting("KSMITH_BENCH_ROUNDS", 7);
    let mut victims = [HugePageVictim::start(), HugePageVictim::start()];
    let rounds: Vec<FoldRound> = (1..=count)
        .map(|number| {
            let round = play(&mut victims, length, run, lock.is_some());
            eprintln!("{number}/{count} {round:?}");
            round
        })
        .collect();
    let huge = victims[0].fill() as f64 / length as f64;
    drop((victims, lock));
    print_table(&rounds, length, run, huge);
}

fn print_table(rounds: &[FoldRound], length: usize, run: usize, huge: f64) {
    let median = |figure: &dyn Fn(&FoldRound) -> Option<f64>| {
        Spread::from_values(rounds.iter().map(figure)).median.unwrap_or(f64::NAN)
    };
    println!(
        "{} MiB, {:.0} % of it in huge pages, half of it zero in runs of {run} pages; medians of {} rounds\n",
        length >> 20,
        huge * 100.0,
        rounds.len()
    );
    println!("| way | GB/s | CPU seconds | CPU seconds for each GiB |\n|---|---|---|---|");
    let gib = length as f64 / f64::from(1 << 30);
    let row = |name: &str, parts: f64, of: &dyn Fn(&FoldRound) -> FoldThroughput| {
        let cpu = median(&|round| Some(of(round).cpu_seconds));
        println!(
            "| {name} | {:.2} | {cpu:.3} | {:.3} |",
            median(&|round| Some(of(round).bytes_per_second / 1e9)),
            cpu / gib / parts
        );
    };
    row("only reading, one thread", 1.0, &|round| round.read_by_one);
    row("only reading, two threads", 1.0, &|round| round.read_by_two);
    row("`ksmith fold`, one thread", 1.0, &|round| round.one_thread);
    row("`ksmith fold`, two threads", 1.0, &|round| round.two_threads);
    row("two `ksmith fold`, two victims", 2.0, &|round| round.two_processes);
    let ksmd_cpu = median(&|round| round.ksmd_cpu_seconds);
    println!("| ksmd, `use_zero_pages` | - | {ksmd_cpu:.3} | {:.3} |\n", ksmd_cpu / gib);
    let speed =
        |name: &str, of: &dyn Fn(&FoldRound) -> f64| println!("{name}: {:.2}", median(&|round| Some(of(round))));
    let ratio = |a: FoldThroughput, b: FoldThroughput| a.bytes_per_second / b.bytes_per_second;
    println!("Ratios within a round:\n");
    speed("* two threads against one", &|round| ratio(round.two_threads, round.one_thread));
    speed("* two processes against one", &|round| ratio(round.two_processes, round.one_thread));
    speed("* reading by two threads against one", &|round| ratio(round.read_by_two, round.read_by_one));
    speed("* one thread that folds against one that only reads", &|round| {
        ratio(round.one_thread, round.read_by_one)
    });
    let against = |round: &FoldRound| round.ksmd_cpu_seconds.map(|cpu| cpu / round.one_thread.cpu_seconds);
    println!("* ksmd's CPU against that of one folding thread: {:.2}", median(&against));
}

fn play(victims: &mut [HugePageVictim; 2], length: usize, run: usize, has_ksm: bool) -> FoldRound {
    let [first, second] = victims;
    first.fill();
    let read_by_one = first.read(1);
    let read_by_two = first.read(2);
    let one_thread = fold(&[first], length, 1, run);
    first.fill();
    let two_threads = fold(&[first], length, 2, run);
    first.fill();
    second.fill();
    let two_processes = fold(&[first, second], length, 1, run);
    let ksmd_cpu_seconds = has_ksm.then(|| {
        first.fill();
        merge_zero_pages(first, length, run)
    });
    FoldRound { read_by_one, read_by_two, one_thread, two_threads, two_processes, ksmd_cpu_seconds }
}

/// The zero bytes of a victim.
fn zero_bytes(length: usize, run: usize) -> usize {
    length / PAGE / (2 * run) * run * PAGE
}

/// Runs one `ksmith fold` for each victim, all at once.
fn fold(victims: &[&HugePageVictim], length: usize, threads: usize, run: usize) -> FoldThroughput {
    let (cpu, begin) = (children_seconds(), Instant::now());
    let start = |victim: &&HugePageVictim| {
        let pid = victim.child.pid().to_string();
        let mut command = Command::new(PROGRAM);
        command.args(["fold", "--json", "--threads", &threads.to_string(), &pid]).stdout(Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<Child> = victims.iter().map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let freed = json["total"]["freed_bytes"].as_u64().unwrap() as usize;
        assert!(freed >= zero_bytes(length, run) / 10 * 9, "{json}");
    }
    let seconds = begin.elapsed().as_secs_f64();
    let bytes_per_second = (victims.len() * length) as f64 / seconds;
    FoldThroughput { bytes_per_second, cpu_seconds: children_seconds() - cpu }
}

/// Runs ksmd over the victim's memory until it has given its zero pages back. Returns ksmd's CPU seconds.
fn merge_zero_pages(victim: &mut HugePageVictim, length: usize, run: usize) -> f64 {
    let before = victim.resident_bytes();
    let wanted = before.saturating_sub((zero_bytes(length, run) / 100 * 98) as u64);
    for (knob, value) in
        [("use_zero_pages", "1"), ("smart_scan", "0"), ("sleep_millisecs", "1"), ("pages_to_scan", "20000")]
    {
        support::write(knob, value);
    }
    victim.child.order("merge");
    let cpu = ksmd::cpu_ns(&Root::host()).expect("a ksmd");
    support::write("run", "1");
    let begin = Instant::now();
    while victim.resident_bytes() > wanted {
        assert!(begin.elapsed() < Duration::from_secs(600), "ksmd is not done");
        std::thread::sleep(Duration::from_millis(100));
    }
    support::write("run", "0");
    let cpu = ksmd::cpu_ns(&Root::host()).expect("a ksmd") - cpu;
    victim.child.order("unmerge");
    cpu as f64 / 1e9
}

/// The CPU time of all children that have ended, in seconds.
fn children_seconds() -> f64 {
    usage_seconds(libc::RUSAGE_CHILDREN)
}

fn usage_seconds(processes: libc::c_int) -> f64 {
    // SAFETY: a structure of numbers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours.
    assert_eq!(unsafe { libc::getrusage(processes, &raw mut usage) }, 0);
    [usage.ru_utime, usage.ru_stime].iter().map(|time| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6).sum()
}

/// A process with memory in huge pages.
struct HugePageVictim {
    child: BenchChild,
    start: u64,
    length: usize,
}

impl HugePageVictim {
    fn start() -> Self {
        let mut child = BenchChild::start(&[VICTIM]);
        let reply = child.order("where");
        let (start, length) = reply.split_once(' ').unwrap();
        Self { child, start: start.parse().unwrap(), length: length.parse().unwrap() }
    }

    /// Fills its memory anew. Returns how many bytes of it are in huge pages.
    fn fill(&mut self) -> u64 {
        assert_eq!(self.child.order("fill"), "filled");
        self.child.sums().anon_huge.unwrap()
    }

    fn resident_bytes(&self) -> u64 {
        self.child.sums().pss.unwrap()
    }

    /// Reads all its memory by so many threads.
    fn read(&self, threads: usize) -> FoldThroughput {
        let (cpu, begin) = (usage_seconds(libc::RUSAGE_SELF), Instant::now());
        let part = self.length / threads;
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let memory = File::open(format!("/proc/{}/mem", self.child.pid())).unwrap();
                    let mut bytes = vec![0; HUGE];
                    for at in (thread * part..(thread + 1) * part).step_by(HUGE) {
                        memory.read_exact_at(&mut bytes, self.start + at as u64).unwrap();
                        std::hint::black_box(&bytes);
                    }
                });
            }
        });
        let seconds = begin.elapsed().as_secs_f64();
        FoldThroughput {
            bytes_per_second: self.length as f64 / seconds,
            cpu_seconds: usage_seconds(libc::RUSAGE_SELF) - cpu,
        }
    }
}

/// Maps memory, fills it anew at each order, and ends with its input.
fn be_victim(length: usize, run: usize) {
    // SAFETY: a new mapping.
    let mapped = unsafe {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), length + HUGE, access, flags, -1, 0)
    };
    assert_ne!(mapped, libc::MAP_FAILED);
    let start = mapped.map_addr(|address| address.next_multiple_of(HUGE));
    let advise = |advice| {
        // SAFETY: within the mapping; contents are only given up before they are filled anew.
        assert_eq!(unsafe { libc::madvise(start, length, advice) }, 0);
    };
    advise(libc::MADV_HUGEPAGE);
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "where" => println!("{} {length}", start.addr()),
            "fill" => {
                advise(libc::MADV_DONTNEED);
                fill(start.cast(), length / PAGE, run);
                println!("filled");
            }
            "merge" => {
                advise(libc::MADV_MERGEABLE);
                println!("mergeable");
            }
            _ => {
                advise(libc::MADV_UNMERGEABLE);
                println!("unmerged");
            }
        }
    }
}

/// Writes to each page. No two of those that are not zero are equal.
fn fill(start: *mut u64, pages: usize, run: usize) {
    for page in 0..pages {
        let words = start.wrapping_add(page * PAGE / 8);
        let is_zero = page / run % 2 == 1;
        for word in 0..PAGE / 8 {
            let value =
                if is_zero { 0 } else { (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + word as u64) };
            // SAFETY: within the mapping.
            unsafe { words.add(word).write_volatile(value) };
        }
    }
}
