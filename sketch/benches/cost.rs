//! Benchmark of sketches: the cost of a fingerprint, a page, a second look and a file, and the bytes for each guest.
//!
//! `cargo bench -p ksmith-sketch` (`KSMITH_BENCH_GUESTS=20 KSMITH_BENCH_MIB=256` for other guests). Each guest is a
//! process with pages that all differ: the worst case for its size. Times are CPU time of the reading thread.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

mod holders;

use std::hint::black_box;
use std::time::Duration;

use holders::{HolderProcess, hold, setting};
use ksmith_core::balance::BalanceConfig;
use ksmith_core::sample::Sample;
use ksmith_host::memory::process::OpenProcess;
use ksmith_host::root::Root;
use ksmith_sketch::{
    FleetKey, HostFacts, RateRule, RotationOptions, RotationTurn, SketchClock, SketchRotation, SketchSubject,
};
use rustix::time::{ClockId, clock_gettime};

/// Approximate number of a guest's sampled contents: the default of `ksmith sketch`.
const PER_GUEST: u64 = 4096;

/// Batch size for the median cost of a fingerprint.
const HASHES: usize = 20_000;
const PARTS: usize = 5;

/// Delay before the second look.
const AGAIN: Duration = Duration::from_secs(100);

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the CPU time that `work` uses, and its result.
fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let before = cpu();
    let found = work();
    (cpu() - before, found)
}

fn main() {
    hold();
    let (guests, mib) = (setting("KSMITH_BENCH_GUESTS", 20), setting("KSMITH_BENCH_MIB", 256));
    let key = FleetKey::from_secret(b"a secret of the bench");
    let salt = key.salt();
    // 256 KiB stay in the second-level cache.
    let block: Vec<u8> = (0..256 << 10).map(|at: u32| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let part = |_| {
        let hash = |at: usize| black_box(salt.fingerprint(&block[at % 64 * 4096..][..4096]));
        timed(|| (0..HASHES).map(hash).fold(0, u64::wrapping_add)).0 / HASHES as f64
    };
    let mut parts: Vec<f64> = (0..PARTS).map(part).collect();
    parts.sort_by(f64::total_cmp);
    println!("fingerprint of a page in the cache: {:.3} us", parts[PARTS / 2] * 1e6);

    let holders: Vec<HolderProcess> = (0..guests).map(|number| HolderProcess::start(number as u64, mib)).collect();
    let subjects = holders.iter().map(|holder| {
        let process = OpenProcess::open(holder.pid()).unwrap();
        SketchSubject {
            rss_bytes: (mib as u64) << 20,
            ..SketchSubject::from_process(&process, &BalanceConfig::default())
        }
    });
    let options = RotationOptions {
        rate: RateRule::PerGuest(PER_GUEST),
        again: Some(AGAIN),
        every: Duration::from_secs(1 << 30),
    };
    let mut rotation = SketchRotation::new(key.clone(), options);
    rotation.guests(subjects.collect());
    let mut now = SketchClock::start().now();
    let (mut reading, mut opening, mut looking) = (0.0, 0.0, 0.0);
    loop {
        let has_waited = rotation.is_looking_again(now);
        let (spent, turn) = timed(|| rotation.turn(now));
        match turn {
            RotationTurn::Worked if has_waited => looking += spent,
            RotationTurn::Worked => reading += spent,
            RotationTurn::Opened => opening += spent,
            RotationTurn::Idle(until) => now.at = until,
            RotationTurn::Round => break,
        }
    }
    let pages = (guests * mib * 256) as f64;
    let directory = tempfile::tempdir().unwrap();
    let facts = HostFacts::read(&Root::host(), &Sample::default(), Some("bench"), None, 0);
    let (writing, bytes) = timed(|| rotation.write(&directory.path().join("bench.parquet"), facts, None).unwrap());
    let each = |sum: f64| sum / guests as f64;
    println!("{guests} guests of {mib} MiB, contents all different, about {PER_GUEST} sampled of each");
    println!("reading a page: {:.3} us", reading / pages * 1e6);
    println!("opening a guest, without its reader's part: {:.3} ms", each(opening) * 1e3);
    println!("second look at the sampled pages of a guest: {:.2} ms", each(looking) * 1e3);
    println!("writing the file: {:.2} ms a guest, {:.0} bytes a guest", each(writing) * 1e3, each(bytes as f64));
    println!("memory of a sketch: {:.0} bytes a guest", each(rotation.bytes() as f64));
    let all = reading + opening + looking + writing;
    println!("all together for a page: {:.3} us", all / pages * 1e6);
    println!(
        "a thousandth of a CPU reads {:.0} GiB a day",
        86_400.0 / 1000.0 / (all / pages) * 4096.0 / f64::from(1 << 30)
    );
}
