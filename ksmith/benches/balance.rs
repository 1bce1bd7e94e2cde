//! Benchmark of memory balancing: the number of user-mode Linux guests, booted from one image and reading it, that run
//! to a login prompt in a pool before the pool swaps. Measured without ksmith, and with its daemon; the figure behind
//! "Reducing host memory consumption".
//!
//! `cargo bench -p ksmith --bench balance -- [POOL_MIB] [GUEST_MIB] [DATA_MIB]`, as root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]
#![allow(missing_docs, reason = "no other crate names these")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use ksmith_host::act::StateDir;
use ksmith_host::root::Root;
use ksmith_service::balance::MemoryLedger;
use support::KernelLock;
use support::image::{ImageGuest, UmlImage};
use support::pool::{CgroupPool, SwapArea};
use support::program::RunningProgram;

const PATIENCE: Duration = Duration::from_secs(120);

/// Between a guest's login prompt and the start of the next one, both times.
const BETWEEN: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;

/// The daemon's balance settings. A booting guest takes 100 MiB within a second or two, and twice that much is kept
/// free.
const BALANCE: &str = "low_percent = 25\nhigh_percent = 40\nreserve_mib = 8\nstep_percent = 25\n\
    urgent_step_percent = 50\ncooldown_seconds = 0.5\ngive_back_on_exit = false\n";

/// More than any pool of a sensible size holds.
const MOST: usize = 200;

struct BalanceSizes {
    pool: u64,
    guest: u64,
    data: usize,
}

/// Starts guests one after the other until the pool has swapped; returns those that reached their prompt before.
fn fill(sizes: &BalanceSizes, image: &UmlImage, word: &str, pool: &CgroupPool) -> Vec<ImageGuest> {
    let mut guests = Vec::new();
    let pswpout = support::vmstat("pswpout");
    while guests.len() < MOST {
        let mut guest = image.start(&format!("{word}{}", guests.len()), sizes.guest, Some(pool));
        let has_booted = guest.boot(PATIENCE);
        if !has_booted || pool.swapped_bytes() > 0 || support::vmstat("pswpout") > pswpout {
            let swapped = (support::vmstat("pswpout") - pswpout) * 4096;
            println!("  guest {} swapped {} KiB of the pool", guests.len() + 1, swapped / 1024);
            return guests;
        }
        guests.push(guest);
        std::thread::sleep(BETWEEN);
    }
    guests
}

fn report(word: &str, guests: &mut [ImageGuest], pool: &CgroupPool, took: Duration) {
    let answering = guests.iter_mut().filter_map(|guest| guest.answers(PATIENCE).then_some(())).count();
    println!(
        "{word}: {} guests reached their login prompt before the pool swapped; {answering} log in and answer; {} OOM \
         kills; pool {} MiB used; {:.0} s",
        guests.len(),
        pool.oom_kills(),
        pool.used_bytes() / MIB,
        took.as_secs_f64()
    );
}

fn without(sizes: &BalanceSizes, image: &UmlImage) -> usize {
    let Some(pool) = CgroupPool::make(sizes.pool * MIB) else { return 0 };
    let started = Instant::now();
    let mut guests = fill(sizes, image, "plain", &pool);
    report("without ksmith", &mut guests, &pool, started.elapsed());
    guests.len()
}

fn with(sizes: &BalanceSizes, image: &UmlImage) -> usize {
    let Some(pool) = CgroupPool::make(sizes.pool * MIB) else { return 0 };
    let config = format!(
        "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = {{ run = 0 }}\n[balance]\nenabled = true\n\
         pool = \"{}\"\n{BALANCE}",
        pool.name()
    );
    println!("{BALANCE}");
    let daemon = RunningProgram::daemon(&config, &[]);
    let started = Instant::now();
    let mut guests = fill(sizes, image, "balanced", &pool);
    report("with ksmith", &mut guests, &pool, started.elapsed());
    println!(
        "  the daemon: {}",
        support::program::status().map_or_else(String::new, |it| it["daemon"].to_string())
    );
    let log = daemon.end();
    if let Some(place) = std::env::var_os("BALANCE_LOG") {
        std::fs::write(place, log).unwrap();
    }
    let ledger = MemoryLedger::open(&StateDir::from_root(&Root::host())).unwrap();
    let back = guests.iter_mut().filter_map(|guest| gets_back(sizes, guest, &ledger).then_some(())).count();
    println!(
        "  {back} of {} got all their memory back, one after the other, and read the image anew",
        guests.len()
    );
    guests.len()
}

/// Returns true if a guest can have all its memory again and use it; afterwards it gives it up for the next one.
fn gets_back(sizes: &BalanceSizes, guest: &mut ImageGuest, ledger: &MemoryLedger) -> bool {
    let mut actuator = guest.actuator(ledger);
    let is_whole = actuator.resize(u64::MAX).is_ok_and(|given| given == sizes.guest * MIB);
    let reads = guest.run("cat /usr/share/data/* > /dev/null", PATIENCE);
    let uses =
        actuator.read_figures().is_ok_and(|look| look.inside.cache_bytes > Some(sizes.data as u64 * MIB / 2));
    let _ = actuator.resize(0);
    is_whole && reads && uses
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let number = |at: usize, usual: u64| numbers.get(at).copied().unwrap_or(usual);
    let sizes = BalanceSizes { pool: number(0, 1024), guest: number(1, 128), data: number(2, 64) as usize };
    let directory = tempfile::tempdir().unwrap();
    let Some(image) = UmlImage::make(directory.path(), sizes.data) else { return };
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(_swap) = SwapArea::on(sizes.pool * MIB) else { return };
    println!(
        "a pool of {} MiB with swap behind it; guests with {} MiB of memory, which read an image of {} MiB",
        sizes.pool, sizes.guest, sizes.data
    );
    let (plain, balanced) = (without(&sizes, &image), with(&sizes, &image));
    println!("{plain} -> {balanced}: {:.1} times as many", balanced as f64 / plain.max(1) as f64);
}
