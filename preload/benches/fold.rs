//! Benchmark of `ksmith_fold` on memory that is half zero, in one thread and in two, against plain reading in as many
//! threads.
//!
//! `cargo bench -p ksmith-preload --bench fold` builds the release library. Each round takes all measurements in turn,
//! so that other load affects all alike; the medians of the rounds are printed. `KSMITH_BENCH_ROUNDS` (9) sets the
//! rounds, `KSMITH_BENCH_MIB` (512) the memory, `KSMITH_BENCH_RUN` (64) the pages in a run of zeros.

#![allow(unsafe_code, reason = "memory of mmap, and a function of the library")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::process::Command;
use std::time::Instant;

const PAGE: usize = 4096;

type Fold = unsafe extern "C" fn(*mut c_void, usize, c_uint, *mut c_void) -> c_int;

fn main() {
    let setting = |name: &str, default: usize| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let rounds = setting("KSMITH_BENCH_ROUNDS", 9);
    let length = setting("KSMITH_BENCH_MIB", 512) << 20;
    let run = setting("KSMITH_BENCH_RUN", 64);
    let fold = fold_function();
    let memory = map(length);
    let mut speeds = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        for (number, speeds) in speeds.iter_mut().enumerate() {
            fill(memory, run);
            let threads = number % 2 + 1;
            let begin = Instant::now();
            if number < 2 {
                read(memory, threads);
            } else {
                // SAFETY: the memory is this bench's own, and nothing writes to it meanwhile.
                let code =
                    unsafe { fold(memory.as_mut_ptr().cast(), length, threads as c_uint, std::ptr::null_mut()) };
                assert_eq!(code, 0);
            }
            speeds.push(length as f64 / 1e9 / begin.elapsed().as_secs_f64());
        }
    }
    println!("{} MiB, half of it zero in runs of {run} pages; medians of {rounds} rounds, in GB/s", length >> 20);
    let [read, reads, fold, folds] = speeds.map(|speeds| median(&speeds));
    println!(
        "| threads | read | ksmith_fold |\n|---|---|---|\n| 1 | {read:.2} | {fold:.2} |\n| 2 | {reads:.2} | {folds:.2} |"
    );
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Loads the function from the release library.
fn fold_function() -> Fold {
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap();
    let built = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["build", "--quiet", "--profile", "preload", "--package", "ksmith-preload", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.unwrap().success());
    let path = CString::new(target.join("preload/libksmith.so").to_str().unwrap()).unwrap();
    // SAFETY: strings that end in a zero byte, and a function of the type that `ksmith.h` declares.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null());
        let fold = libc::dlsym(library, c"ksmith_fold".as_ptr());
        assert!(!fold.is_null());
        std::mem::transmute::<*mut c_void, Fold>(fold)
    }
}

/// Maps memory of ordinary pages.
fn map(length: usize) -> &'static mut [u64] {
    let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which stays.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), length, access, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::madvise(start, length, libc::MADV_NOHUGEPAGE), 0);
        std::slice::from_raw_parts_mut(start.cast(), length / size_of::<u64>())
    }
}

/// Writes to each page, so that all are resident. Every second run is zero.
fn fill(memory: &mut [u64], run: usize) {
    for (number, page) in memory.chunks_exact_mut(PAGE / size_of::<u64>()).enumerate() {
        page.fill(if number / run % 2 == 1 { 0 } else { number as u64 + 1 });
    }
}

/// Reads the memory once, in `threads` threads.
fn read(memory: &[u64], threads: usize) {
    std::thread::scope(|scope| {
        for part in memory.chunks(memory.len() / threads) {
            scope.spawn(|| std::hint::black_box(part.iter().fold(0, |any, word| any | word)));
        }
    });
}
