//! Benchmark of libksmith.so's overhead on allocation: CPU time with the library preloaded, against without.
//!
//! `cargo bench -p ksmith-preload` builds the release library and runs this program again as its own worker. Workers
//! with and without the library alternate, so that other load affects all alike. It prints the median of each, and of
//! the ratios within each round. `KSMITH_BENCH_ROUNDS` (21) sets the rounds.

#![allow(unsafe_code, reason = "blocks of malloc, and the CPU time of a child")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

type Settings = &'static [(&'static str, &'static str)];

/// Variants: the preloaded library and its settings. The first two have no library; their difference is the noise of
/// the measurement.
const WAYS: [(&str, Option<&str>, Settings); 6] = [
    ("without", None, &[]),
    ("without, again", None, &[]),
    ("libksmith.so, prctl", Some("libksmith.so"), &[("KSMITH_METHOD", "prctl")]),
    ("libksmith.so, madvise", Some("libksmith.so"), &[("KSMITH_METHOD", "madvise")]),
    ("and a thread", Some("libksmith.so"), &[("KSMITH_METHOD", "madvise"), ("KSMITH_INTERVAL", "1")]),
    ("libksmith_blocks.so, madvise", Some("libksmith_blocks.so"), &[("KSMITH_METHOD", "madvise")]),
];

const WORK: [(&str, fn()); 6] = [
    ("pairs: malloc and free, 64 bytes", pairs),
    ("trees: of boxes, built and dropped", trees),
    ("churn: 16 to 2048 bytes, filled", churn),
    ("churn in 4 threads", churn_in_threads),
    ("words: a map of strings, growing", words),
    ("large: 64 KiB to 4 MiB, filled", large),
];

fn main() {
    if let Some(work) = std::env::var_os("KSMITH_BENCH_WORK") {
        return WORK[work.to_str().unwrap().parse::<usize>().unwrap()].1();
    }
    let rounds: usize = std::env::var("KSMITH_BENCH_ROUNDS").map_or(21, |rounds| rounds.parse().unwrap());
    let libraries = libraries();
    println!("| CPU ms, median of {rounds} | {} |", WAYS.map(|(name, ..)| name).join(" | "));
    println!("|---|{}", "---|".repeat(WAYS.len()));
    for (number, (name, _)) in WORK.iter().enumerate() {
        let mut times = vec![Vec::new(); WAYS.len()];
        for round in 0..rounds {
            for turn in 0..WAYS.len() {
                let way = (turn + round) % WAYS.len();
                let library = WAYS[way].1.map(|name| libraries.join(name));
                times[way].push(run(number, library, WAYS[way].2));
            }
        }
        let cells = (0..WAYS.len()).map(|way| {
            let ratios = times[way].iter().zip(&times[0]).map(|(with, without)| with / without).collect();
            let change = (median(ratios) - 1.0) * 100.0;
            let time = median(times[way].clone()) * 1e3;
            if way == 0 { format!("{time:.0}") } else { format!("{time:.0} ({change:+.1} %)") }
        });
        println!("| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Builds the release libraries and returns their directory.
fn libraries() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap();
    let built = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--quiet", "--profile", "preload"])
        .args(["--package", "ksmith-preload", "--package", "ksmith-preload-blocks", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.unwrap().success());
    target.join("preload")
}

/// Returns the CPU seconds of one worker.
fn run(work: usize, library: Option<PathBuf>, settings: Settings) -> f64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .env("KSMITH_BENCH_WORK", work.to_string())
        .env_remove("LD_PRELOAD")
        .env("KSMITH_SOCKET", "/nowhere/ksmith");
    if let Some(library) = library {
        command.env("LD_PRELOAD", library).envs(settings.iter().copied());
    }
    // Tests that measure KSM would count the marked memory. If this file can't be opened, no such test runs
    // here.
    let lock = std::fs::File::options().create(true).append(true).open("/run/lock/ksmith-kernel.lock");
    let _lock = lock.ok().filter(|file| file.lock().is_ok());
    let before = children_cpu();
    assert!(command.status().unwrap().success());
    children_cpu() - before
}

/// Returns the CPU seconds of all children that have ended.
fn children_cpu() -> f64 {
    // SAFETY: the structure is filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Worst case: nothing but calls of malloc(3) and free(3).
fn pairs() {
    for _ in 0..30_000_000 {
        // SAFETY: a block, written where it is, and freed.
        unsafe {
            let block = libc::malloc(64);
            std::hint::black_box(block).cast::<u8>().write(1);
            libc::free(block);
        }
    }
}

struct BoxTree(Option<Box<(BoxTree, BoxTree)>>);

fn tree(depth: u32) -> BoxTree {
    BoxTree((depth > 0).then(|| Box::new((tree(depth - 1), tree(depth - 1)))))
}

fn count(tree: &BoxTree) -> usize {
    tree.0.as_ref().map_or(1, |both| 1 + count(&both.0) + count(&both.1))
}

fn trees() {
    let long_lived = tree(18);
    for _ in 0..150 {
        assert_eq!(count(&tree(14)), (1 << 15) - 1);
    }
    assert_eq!(count(&long_lived), (1 << 19) - 1);
}

fn next(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

fn churn_of(blocks: usize, times: usize, seed: u64) {
    let mut state = seed;
    let mut held: Vec<Vec<u8>> = (0..blocks).map(|_| Vec::new()).collect();
    for _ in 0..times {
        let at = next(&mut state) % blocks;
        let size = 16 + next(&mut state) % 2032;
        held[at] = vec![at as u8; size];
    }
    assert!(held.iter().enumerate().all(|(at, block)| block.iter().all(|byte| *byte == at as u8)));
}

fn churn() {
    churn_of(50_000, 2_000_000, 1);
}

fn churn_in_threads() {
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            scope.spawn(move || churn_of(10_000, 500_000, seed));
        }
    });
}

fn words() {
    let mut state = 1;
    let mut map: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for at in 0..400_000_u32 {
        map.entry(format!("word-{}", next(&mut state) % 100_000)).or_default().push(at);
    }
    assert_eq!(map.values().map(Vec::len).sum::<usize>(), 400_000);
}

fn large() {
    let mut state = 1;
    let mut held: Vec<Vec<u8>> = (0..16).map(|_| Vec::new()).collect();
    for _ in 0..1500 {
        let at = next(&mut state) % held.len();
        let size = (64 << 10) + next(&mut state) % (4 << 20);
        held[at] = vec![1; size];
    }
    std::hint::black_box(held);
}
