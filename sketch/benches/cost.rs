//! The cost of a sketch: of a fingerprint, of a page that is read, of the second look, and of a file.
//!
//! `cargo bench -p ksmith-sketch` (`KSMITH_BENCH_MIB=4096` for another size). Reads this process's own memory. Prints medians of
//! several rounds, in CPU time of the thread.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

use std::hint::black_box;
use std::time::Duration;

use ksmith_core::balance::BalanceConfig;
use ksmith_core::sample::Sample;
use ksmith_core::sketch::mix;
use ksmith_host::memory::process::Process;
use ksmith_host::root::Root;
use ksmith_sketch::{Clock, FleetKey, HostFacts, RateRule, Rotation, RotationOptions, Subject, Turn};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 5;

/// Fingerprints of a round.
const HASHES: usize = 20_000;

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let mib: usize = std::env::var("KSMITH_BENCH_MIB").ok().and_then(|text| text.parse().ok()).unwrap_or(1024);
    let pages = mib * 256;
    let mut memory = vec![0_u8; pages * 4096];
    for (at, word) in memory.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = mix(at as u64).to_le_bytes();
    }
    let key = FleetKey::of(b"a secret of the bench");
    let salt = key.salt();
    let hashed = (0..ROUNDS).map(|_| {
        let before = cpu();
        for at in 0..HASHES {
            // 256 KiB stay in the second-level cache.
            black_box(salt.fingerprint(&memory[at % 64 * 4096..][..4096]));
        }
        (cpu() - before) / HASHES as f64
    });
    println!("fingerprint of a page in the cache: {:.3} us", median(hashed.collect()) * 1e6);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bench.parquet");
    let mut subject = Subject::of_process(&Process::open(std::process::id()).unwrap(), &BalanceConfig::default());
    subject.rss_bytes = memory.len() as u64;
    let (mut reads, mut looks, mut writes, mut sizes) = (Vec::new(), Vec::new(), Vec::new(), (0, 0));
    for _ in 0..ROUNDS {
        let again = Some(Duration::from_secs(100));
        let options = RotationOptions { rate: RateRule::PerGuest(4096), again, every: Duration::from_secs(1000) };
        let mut rotation = Rotation::new(key.clone(), options);
        rotation.guests(vec![subject.clone()]);
        let mut now = Clock::start().now();
        while rotation.turn(now) != Turn::Opened {}
        let before = cpu();
        while !matches!(rotation.turn(now), Turn::Idle(_)) {}
        reads.push((cpu() - before) / pages as f64);
        now.at += Duration::from_secs(101);
        let before = cpu();
        while rotation.turn(now) != Turn::Round {}
        looks.push(cpu() - before);
        let before = cpu();
        let facts = HostFacts::read(&Root::host(), &Sample::default(), Some("bench"), None, 0);
        let bytes = rotation.write(&path, facts).unwrap();
        writes.push(cpu() - before);
        sizes = (rotation.bytes(), bytes);
    }
    let read = median(reads);
    println!("{mib} MiB of one process, contents all different, at most 4096 sampled; medians of {ROUNDS} rounds");
    println!("reading a page: {:.3} us", read * 1e6);
    println!("second look at all sampled pages: {:.2} ms", median(looks) * 1e3);
    println!(
        "writing the file: {:.2} ms, {} bytes; the sketch in memory: {} bytes",
        median(writes) * 1e3,
        sizes.1,
        sizes.0
    );
    let day = 24.0 * 3600.0 / 1000.0 / read * 4096.0 / f64::from(1 << 30);
    println!("a thousandth of a CPU reads {day:.0} GiB a day");
    black_box(memory);
}
