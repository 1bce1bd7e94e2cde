//! The cost of the daemon while ksmd is parked, and how long its turns take while processes attack it.
//!
//! `cargo bench -p ksmith --bench daemon` (as root, on a host where KSM is not in use) starts the real `ksmith daemon`
//! beside real processes, with mergeable memory or without. It waits until the daemon has parked ksmd, and prints a
//! table. Then an ordinary user attacks (`ksmith/tests/attacks`), and a second table has the daemon's turns, its CPU
//! time and its peak memory. A line below an attack by many processes says how many of another user's are seen. The
//! bench holds the lock of the tests on the live kernel, which leaves nothing merged and all settings as they were.
//! `KSMITH_BENCH=costs` is the first table alone, `KSMITH_BENCH=attacks` the second. Other words leave out the attacks
//! without them in their names. `KSMITH_BENCH=churn` measures it where a guest comes and one goes each four seconds, and
//! nothing else. `KSMITH_PROGRAM=PATH` has another build measured.

mod churn;
mod running;
mod sleepers;
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use ksmith_core::model::StatusReport;
use ksmith_service::control::ControlClient;
use running::BenchDaemon;
use sleepers::SleepingChildren;
use support::KernelLock;
use support::attack::{NEIGHBOUR, RunningAttack, USER};

/// Processes with mergeable memory, and without.
const SCENES: [(usize, usize); 4] = [(0, 0), (100, 0), (1000, 0), (0, 10_000)];

/// The time over which the parked daemon is measured.
const WATCHED: Duration = Duration::from_secs(15);

fn main() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let wanted = std::env::var("KSMITH_BENCH").unwrap_or_default();
    if wanted == "churn" {
        return churn::measure();
    }
    if wanted.is_empty() || wanted == "costs" {
        costs();
    }
    if wanted != "costs" {
        attacks(wanted.trim_start_matches("attacks"));
    }
}

fn costs() {
    println!("| with mergeable memory | without | state | CPU ms per second | of a core | RSS |");
    println!("|---|---|---|---|---|---|");
    for (mergeable, plain) in SCENES {
        let _processes = SleepingChildren::fork(mergeable, plain);
        row(mergeable, plain);
    }
}

fn row(mergeable: usize, plain: usize) {
    let daemon = BenchDaemon::start();
    let state = daemon.settle();
    let before = daemon.cpu();
    let began = Instant::now();
    std::thread::sleep(WATCHED);
    let share = (daemon.cpu() - before).as_secs_f64() / began.elapsed().as_secs_f64();
    println!(
        "| {mergeable} | {plain} | {state} | {:.2} | {:.3} % | {} KiB |",
        share * 1e3,
        share * 100.0,
        daemon.rss_kib(),
    );
}

/// Turns that are waited for under each attack.
const TURNS: usize = 1100;

/// Processes with mergeable memory of a user that attacks nobody.
const NEIGHBOURS: usize = 50;

/// The guard of the domains takes a turn each tenth of a second while it keeps ksmd parked.
const GUARDED: &str = "[domains]\nmode = \"one\"\nadmit = \"a\"\n";

fn attacks(wanted: &str) {
    println!("\n| attack | turns | median | 99.9 % | longest | of a core | most memory |");
    println!("|---|---|---|---|---|---|---|");
    let locks = || RunningAttack::hold_lock(200);
    let arguments = || RunningAttack::many_arguments(30, 60_000);
    let names = || RunningAttack::spoof_names(300);
    let flood = |socket: &Path| RunningAttack::flood_socket(socket, 16);
    attacked(wanted, "none", |_| Some(Vec::new()));
    attacked(wanted, "30 processes with 16 MiB of arguments, one with 60,000 mappings", |_| {
        Some(vec![arguments()?])
    });
    attacked(wanted, "200 processes hold their locks", |_| Some(vec![locks()?]));
    attacked(wanted, "300 processes call themselves others' guests", |_| Some(vec![names()?]));
    attacked(wanted, "16 threads flood the users' socket", |socket| Some(vec![flood(socket)?]));
    for (name, count) in [("5,000 idle processes of one user", 5000), ("20,000 idle processes of one user", 20_000)]
    {
        attacked(wanted, name, |_| {
            let neighbours = RunningAttack::many_processes(NEIGHBOUR, NEIGHBOURS)?;
            Some(vec![neighbours, RunningAttack::many_processes(USER, count)?])
        });
    }
    attacked(wanted, "all of them", |socket| Some(vec![arguments()?, locks()?, names()?, flood(socket)?]));
}

fn attacked(wanted: &str, name: &str, attack: impl FnOnce(&Path) -> Option<Vec<RunningAttack>>) {
    if !name.contains(wanted) {
        return;
    }
    let _guest = SleepingChildren::fork(1, 0);
    let daemon = BenchDaemon::start_with(GUARDED);
    daemon.settle_for(1);
    let Some(attack) = attack(&daemon.users_socket()) else { return };
    let before = daemon.turns().len();
    let (cpu, began) = (daemon.cpu_of_all(), Instant::now());
    daemon.settle_for(before + TURNS);
    let share = (daemon.cpu_of_all() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    let mut turns = daemon.turns().split_off(before);
    turns.sort_unstable();
    let ms = |at: usize| turns[at.min(turns.len() - 1)] as f64 / 1e3;
    println!(
        "| {name} | {} | {:.2} ms | {:.2} ms | {:.2} ms | {:.2} % | {} KiB |",
        turns.len(),
        ms(turns.len() / 2),
        ms((turns.len() * 999).div_ceil(1000) - 1),
        ms(turns.len() - 1),
        share * 100.0,
        daemon.most_kib(),
    );
    let status = ControlClient::connect(&daemon.socket()).and_then(|mut client| client.status());
    if let ([neighbours, many], Ok(status)) = (&attack[..], status) {
        println!(
            "{} of {NEIGHBOURS} of another user are seen, {} of {} of the one user, and {} are only counted",
            count_seen(&status, &neighbours.pids),
            count_seen(&status, &many.pids),
            many.pids.len(),
            status.sample.given_up.over_budget,
        );
    }
}

/// Counts those of these processes that are in the daemon's sample.
fn count_seen(status: &StatusReport, pids: &[u32]) -> usize {
    let seen: BTreeSet<u32> = status.sample.processes.iter().map(|process| process.id.pid).collect();
    pids.iter().filter(|pid| seen.contains(pid)).count()
}
