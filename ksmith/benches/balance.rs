//! How many user-mode Linux guests, booted from one image and reading it, run to a login prompt in a pool before the
//! pool swaps: without ksmith, and with its daemon. The measure of "Reducing host memory consumption".
//!
//! `cargo bench -p ksmith --bench balance -- [POOL_MIB] [GUEST_MIB] [DATA_MIB]`, as root.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]
#![allow(missing_docs, reason = "nobody names these")]

#[path = "../tests/support/image.rs"]
mod image;
#[path = "../tests/support/pool.rs"]
mod pool;
#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/support/vm.rs"]
mod vm;

use std::path::Path;
use std::time::{Duration, Instant};

use image::{Image, ImageGuest};
use ksmith::act::StateDir;
use ksmith::balance::{Actuator, Ledger, actuator};
use ksmith::guests::{Guests, Uri};
use ksmith::root::Root;
use ksmith_core::kernel::PidStat;
use ksmith_core::sample::ProcessId;
use pool::{Pool, Swap};

const PATIENCE: Duration = Duration::from_secs(120);
const MIB: u64 = 1 << 20;

/// More than any pool of a sensible size holds.
const MOST: usize = 200;

struct Sizes {
    pool: u64,
    guest: u64,
    data: usize,
}

fn process(pid: u32) -> ProcessId {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    ProcessId { pid, start_ticks: PidStat::parse(&text).unwrap().start_ticks }
}

fn of(guest: &ImageGuest, ledger: &Ledger) -> Box<dyn Actuator> {
    let target = Guests::new(Root::host(), Uri::default()).target_by_id(process(guest.pid())).unwrap();
    actuator(&Root::host(), &target, &guest.name, ledger).unwrap()
}

/// Starts guests one after the other until the pool has swapped; returns those that reached their prompt before.
fn fill(
    sizes: &Sizes,
    image: &Image,
    word: &str,
    pool: &Pool,
    mut each: impl FnMut(&ImageGuest),
) -> Vec<ImageGuest> {
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
        each(&guest);
        guests.push(guest);
    }
    guests
}

fn report(word: &str, guests: &mut [ImageGuest], pool: &Pool, took: Duration) {
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

fn without(sizes: &Sizes, image: &Image) -> usize {
    let Some(pool) = Pool::make(sizes.pool * MIB) else { return 0 };
    let started = Instant::now();
    let mut guests = fill(sizes, image, "plain", &pool, |_| ());
    report("without ksmith", &mut guests, &pool, started.elapsed());
    guests.len()
}

fn with(sizes: &Sizes, image: &Image, directory: &Path) -> usize {
    let Some(pool) = Pool::make(sizes.pool * MIB) else { return 0 };
    let ledger = Ledger::open(&StateDir::at(directory.join("state"))).unwrap();
    let started = Instant::now();
    let mut guests = fill(sizes, image, "balanced", &pool, |guest| {
        of(guest, &ledger).resize(0).unwrap();
    });
    report("with ksmith", &mut guests, &pool, started.elapsed());
    guests.len()
}

fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    let number = |at: usize, usual: u64| numbers.get(at).copied().unwrap_or(usual);
    let sizes = Sizes { pool: number(0, 1024), guest: number(1, 128), data: number(2, 64) as usize };
    let directory = tempfile::tempdir().unwrap();
    let Some(image) = Image::make(directory.path(), sizes.data) else { return };
    let Some(_swap) = Swap::on(directory.path(), sizes.pool * MIB) else { return };
    println!(
        "a pool of {} MiB with swap behind it; guests with {} MiB of memory, which read an image of {} MiB",
        sizes.pool, sizes.guest, sizes.data
    );
    let (plain, balanced) = (without(&sizes, &image), with(&sizes, &image, directory.path()));
    println!("{plain} -> {balanced}: {:.1} times as many", balanced as f64 / plain.max(1) as f64);
}
