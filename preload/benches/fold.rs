//! How fast libksmith folds memory that is half zero in runs, by one thread and by two, and the CPU time that ksmd takes for the
//! same pages in the same round.
//!
//! `cargo bench -p ksmith-preload --bench fold` builds the library as it ships. It prints the median of the rounds, and of the
//! ratios within each round, beside how much faster two threads read the same memory. Each round takes all measurements one after another, so that whatever else goes on falls on all alike.
//! As root with KSM it takes the kernel lock of the tests, and puts the settings of KSM back at the end; else ksmd's part is left
//! out. `KSMITH_BENCH_ROUNDS` (7) sets the rounds, `KSMITH_BENCH_MIB` (1024) the memory, `KSMITH_BENCH_RUN` (64) the pages of a run.

#![allow(unsafe_code, reason = "memory of mmap, functions of the library, and CPU times")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const KSM: &str = "/sys/kernel/mm/ksm";

/// `KSMITH_FOLD_STILL` of `ksmith.h`.
const STILL: c_uint = 0x100;

/// `struct ksmith_folded` of `ksmith.h`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Folded {
    folded: u64,
    others: [u64; 9],
    nanoseconds: u64,
    method: u32,
    threads: u32,
}

type Fold = unsafe extern "C" fn(*mut c_void, usize, c_uint, *mut Folded) -> c_int;
type FoldAll = unsafe extern "C" fn(c_uint, *mut Folded) -> c_int;

fn main() {
    let setting = |name: &str, default: usize| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let rounds = setting("KSMITH_BENCH_ROUNDS", 7);
    let length = setting("KSMITH_BENCH_MIB", 1024) << 20;
    let run = setting("KSMITH_BENCH_RUN", 64);
    let (fold, fold_all) = functions();
    let memory = Memory::map(length, run);
    let lock = File::options().create(true).append(true).open("/run/lock/ksmith-kernel.lock").ok();
    let _lock = lock.filter(|file| file.lock().is_ok());
    let ksm = Ksm::take();
    if ksm.is_none() {
        println!("ksmd's part is left out: this needs root, and KSM that is not in use");
    }
    let ways: [(&str, &dyn Fn(*mut Folded) -> c_int); 5] = [
        // SAFETY: the range is the mapping, which stays, and the result is ours; of the calls with a promise: nothing writes.
        ("one thread", &|result| unsafe { fold(memory.start, length, 0, result) }),
        // SAFETY: as above.
        ("two threads", &|result| unsafe { fold(memory.start, length, 2, result) }),
        // SAFETY: as above.
        ("one thread, still", &|result| unsafe { fold(memory.start, length, STILL, result) }),
        // SAFETY: as above.
        ("two threads, still", &|result| unsafe { fold(memory.start, length, STILL | 2, result) }),
        // SAFETY: as above.
        ("all memory, one thread", &|result| unsafe { fold_all(0, result) }),
    ];
    let mut speeds = [const { Vec::new() }; 5];
    let mut costs = [const { Vec::new() }; 5];
    let (mut pairs, mut still_pairs, mut ksmds, mut parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut reading_pairs = Vec::new();
    for _ in 0..rounds {
        for (way, (name, call)) in ways.iter().enumerate() {
            memory.fill();
            let mut result = Folded::default();
            let (cpu, begin) = (own_cpu(), Instant::now());
            let code = call(&raw mut result);
            let (seconds, cpu) = (begin.elapsed().as_secs_f64(), own_cpu() - cpu);
            assert_eq!(code, 0, "{name}");
            assert!(result.folded as usize >= memory.zero_bytes(), "{name}: {result:?}");
            speeds[way].push(length as f64 / 1e9 / seconds);
            costs[way].push(cpu);
        }
        let last = |way: usize| speeds[way].last().copied().unwrap();
        pairs.push(last(1) / last(0));
        still_pairs.push(last(3) / last(2));
        memory.fill();
        reading_pairs.push(memory.seconds_to_read(1) / memory.seconds_to_read(2));
        if let Some(ksm) = &ksm {
            memory.fill();
            let cpu = ksm.merge_zero_pages(&memory);
            ksmds.push(cpu);
            parts.push(cpu / costs[0].last().unwrap());
        }
    }
    println!("{} MiB, half of it zero in runs of {run} pages; medians of {rounds} rounds", length >> 20);
    println!("| way | GB/s | CPU seconds | us a zero page |\n|---|---|---|---|");
    let pages = memory.zero_bytes() as f64 / PAGE as f64;
    let row =
        |name: &str, speed: &str, cpu: f64| println!("| {name} | {speed} | {cpu:.3} | {:.2} |", cpu * 1e6 / pages);
    for (way, (name, _)) in ways.iter().enumerate() {
        row(name, &format!("{:.2}", median(&speeds[way])), median(&costs[way]));
    }
    if !ksmds.is_empty() {
        row("ksmd, use_zero_pages", "-", median(&ksmds));
        println!("ksmd's CPU against that of one folding thread: {:.1} times", median(&parts));
    }
    println!(
        "two threads against one: {:.2} times; still: {:.2} times; two that only read the memory: {:.2} times",
        median(&pairs),
        median(&still_pairs),
        median(&reading_pairs)
    );
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The functions of the library as it ships.
fn functions() -> (Fold, FoldAll) {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap();
    let built = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--quiet", "--profile", "preload", "--package", "ksmith-preload", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.unwrap().success());
    let path = CString::new(target.join("preload/libksmith.so").to_str().unwrap()).unwrap();
    // SAFETY: strings that end in a zero byte, and functions of the types that `ksmith.h` declares.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let (fold, all) =
            (libc::dlsym(library, c"ksmith_fold".as_ptr()), libc::dlsym(library, c"ksmith_fold_all".as_ptr()));
        assert!(!fold.is_null() && !all.is_null());
        (std::mem::transmute::<*mut c_void, Fold>(fold), std::mem::transmute::<*mut c_void, FoldAll>(all))
    }
}

/// CPU seconds of this process.
fn own_cpu() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) }, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Memory of ordinary pages, of which every second run is zero.
struct Memory {
    start: *mut c_void,
    pages: usize,
    run: usize,
}

impl Memory {
    fn map(length: usize, run: usize) -> Self {
        // SAFETY: a new mapping.
        let start = unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let start = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
            assert_ne!(start, libc::MAP_FAILED);
            assert_eq!(libc::madvise(start, length, libc::MADV_NOHUGEPAGE), 0);
            start
        };
        Self { start, pages: length / PAGE, run }
    }

    fn zero_bytes(&self) -> usize {
        self.pages / (2 * self.run) * self.run * PAGE
    }

    /// Writes to each page, so that all are resident. No two of those that are not zero are equal.
    fn fill(&self) {
        for page in 0..self.pages {
            let words = self.start.cast::<u64>().wrapping_add(page * PAGE / 8);
            let is_zero = page / self.run % 2 == 1;
            for word in 0..PAGE / 8 {
                let value =
                    if is_zero { 0 } else { (page as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + word as u64) };
                // SAFETY: within the mapping.
                unsafe { words.add(word).write_volatile(value) };
            }
        }
    }

    /// Seconds in which so many threads together read each line once: what this machine's memory gives them.
    fn seconds_to_read(&self, threads: usize) -> f64 {
        const LINE: usize = 64;
        let lines = self.pages * PAGE / LINE / threads;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let start = self.start.expose_provenance() + thread * lines * LINE;
                scope.spawn(move || {
                    let line = |number: usize| std::ptr::with_exposed_provenance::<u64>(start + number * LINE);
                    // SAFETY: within the mapping.
                    let sum = (0..lines).fold(0, |sum, number| sum | unsafe { line(number).read_volatile() });
                    std::hint::black_box(sum);
                });
            }
        });
        begin.elapsed().as_secs_f64()
    }

    fn advise(&self, advice: c_int) {
        // SAFETY: the mapping; advice on merging changes no content.
        assert_eq!(unsafe { libc::madvise(self.start, self.pages * PAGE, advice) }, 0);
    }
}

/// The machine's KSM, with its settings from before.
struct Ksm {
    before: Vec<(&'static str, String)>,
}

/// What the bench sets: ksmd looks at every page, without a rest, and makes zero pages the kernel's.
const SETTINGS: [(&str, &str); 6] = [
    ("advisor_mode", "none"),
    ("use_zero_pages", "1"),
    ("smart_scan", "0"),
    ("sleep_millisecs", "1"),
    ("pages_to_scan", "20000"),
    ("run", "0"),
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(KSM).join(name)
}

fn number(name: &str) -> i64 {
    fs::read_to_string(path(name)).unwrap().trim().parse().unwrap()
}

impl Ksm {
    fn take() -> Option<Self> {
        if number_if_there("run")? != 0 || number_if_there("pages_shared")? != 0 {
            return None;
        }
        File::options().write(true).open(path("run")).ok()?;
        let mut before = Vec::new();
        for (name, value) in SETTINGS {
            let Ok(text) = fs::read_to_string(path(name)) else { continue };
            // Of "[none] scan-time" the one that is chosen.
            let chosen = text.split(['[', ']']).nth(1).unwrap_or(text.trim());
            before.push((name, chosen.to_owned()));
            fs::write(path(name), value).unwrap();
        }
        Some(Self { before })
    }

    /// Has ksmd look twice at each page. Returns its CPU seconds until all zero pages are the kernel's.
    fn merge_zero_pages(&self, memory: &Memory) -> f64 {
        let wanted = (memory.zero_bytes() / PAGE) as i64 + number("ksm_zero_pages");
        memory.advise(libc::MADV_MERGEABLE);
        let cpu = ksmd_cpu();
        fs::write(path("run"), "1").unwrap();
        let begin = Instant::now();
        while number("ksm_zero_pages") < wanted {
            assert!(begin.elapsed() < Duration::from_secs(600), "ksmd is not done");
            std::thread::sleep(Duration::from_millis(2));
        }
        fs::write(path("run"), "0").unwrap();
        let cpu = ksmd_cpu() - cpu;
        memory.advise(libc::MADV_UNMERGEABLE);
        cpu
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        let _ = fs::write(path("run"), "2");
        for (name, value) in &self.before {
            let _ = fs::write(path(name), value);
        }
    }
}

fn number_if_there(name: &str) -> Option<i64> {
    fs::read_to_string(path(name)).ok()?.trim().parse().ok()
}

/// CPU seconds of ksmd: the first field of its schedstat, in nanoseconds.
fn ksmd_cpu() -> f64 {
    let is_ksmd = |entry: &PathBuf| fs::read_to_string(entry.join("comm")).is_ok_and(|name| name == "ksmd\n");
    let found = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path()).find(is_ksmd);
    let text = fs::read_to_string(found.expect("ksmd").join("schedstat")).unwrap();
    text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}
