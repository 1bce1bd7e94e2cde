//! Benchmark of what merging in huge pages saves and costs: two guests that use all of their memory at random, for mixtures of
//! equal, empty and own pages, under no KSM, `profit`, `profit` that waits until memory is short, ksmtuned's rules and unlimited
//! scanning.
//!
//! `cargo bench -p ksmith --bench huge_pages`, as root. With `KSMITH_BENCH_PROGRAM=chase`, the default, each guest is a process
//! that chases a pointer; with `redis` it is a Redis server, read by a client. The figures are of the `KSMITH_BENCH_SECONDS` (30)
//! from a daemon's start on. Saved is what PSS lost. Accesses are those of both guests, compared with the run without KSM of
//! the same mixture. `KSMITH_BENCH_MIB` (512) is the memory of a guest, and `KSMITH_BENCH_ROUNDS` (1) the rounds, of which
//! medians are shown. Words after `--` select mixtures: `-- 'equal 5 %' zero`.

#![allow(unsafe_code, reason = "memory of mmap")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]
#![allow(clippy::disallowed_methods, reason = "a bench prints its table itself")]
#![allow(missing_docs, reason = "no other crate names these")]

mod chase;
#[path = "../child/mod.rs"]
mod child;
mod mixture;
#[path = "../opt_in/mod.rs"]
mod opt_in;
mod redis;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::time::Duration;

use chase::ChasingGuest;
use ksmith_core::kernel::SmapsRollup;
use ksmith_lab::measure::Spread;
use mixture::{MIXTURES, MemoryMixture};
use redis::RedisGuest;
use support::KernelLock;
use support::program::{RunningProgram, config_file};

/// A guest that uses all of its memory at random.
trait BenchGuest {
    fn pid(&self) -> u32;

    /// Begins to use its memory, for this time.
    fn begin(&mut self, time: Duration);

    /// Waits for the end of that time, and returns the number of accesses in it.
    fn accesses(&mut self) -> f64;

    /// Returns its memory by kind.
    fn sums(&self) -> SmapsRollup {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        SmapsRollup::parse(&text).unwrap()
    }
}

/// Starts a guest with a mixture and so many MiB.
type StartGuest = fn(MemoryMixture, usize) -> Box<dyn BenchGuest>;

/// The competitors and their configurations; the first has no KSM.
const COMPETITORS: [(&str, Option<&str>); 5] = [
    ("no KSM", None),
    ("`profit`", Some("")),
    ("`profit`, `when = \"short\"`", Some("[policy.profit]\nwhen = \"short\"\n")),
    ("ksmtuned", Some("[policy]\nkind = \"ksmtuned\"\n")),
    (
        "unlimited",
        Some(
            "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { run = 1, pages_to_scan = 100000, sleep_millisecs = 0, \
             smart_scan = 0, use_zero_pages = 1 }\n",
        ),
    ),
];

/// The figures of one run.
#[derive(Debug, Clone, Copy)]
struct HugeRun {
    saved_part: f64,
    huge_part: f64,
    accesses: f64,
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let setting = |name: &str, default: usize| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    if arguments.get(1).is_some_and(|word| word == chase::GUEST) {
        return chase::be_guest(&arguments[2..]);
    }
    let program = std::env::var("KSMITH_BENCH_PROGRAM").unwrap_or("chase".to_owned());
    let start: StartGuest = match program.as_str() {
        "chase" => |mixture, mib| Box::new(ChasingGuest::start(mixture, mib)),
        "redis" => |mixture, mib| Box::new(RedisGuest::start(mixture, mib)),
        other => panic!("KSMITH_BENCH_PROGRAM={other}: chase or redis"),
    };
    let Some(lock) = KernelLock::acquire() else { return };
    let (mib, rounds) = (setting("KSMITH_BENCH_MIB", 512), setting("KSMITH_BENCH_ROUNDS", 1));
    let seconds = Duration::from_secs(setting("KSMITH_BENCH_SECONDS", 30) as u64);
    println!("{program}: two guests of {mib} MiB, {} s, medians of {rounds} rounds\n", seconds.as_secs());
    println!("| mixture | | saved | huge pages kept | accesses |\n|---|---|---|---|---|");
    let words: Vec<&String> = arguments.iter().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |text: String| words.is_empty() || words.iter().any(|word| text.starts_with(word.as_str()));
    for mixture in MIXTURES.into_iter().filter(|mixture| is_wanted(mixture.in_words())) {
        let mut runs: [Vec<HugeRun>; COMPETITORS.len()] = Default::default();
        for _ in 0..rounds {
            for ((_, config), runs) in COMPETITORS.iter().zip(&mut runs) {
                runs.push(play([start(mixture, mib), start(mixture, mib)], *config, mib, seconds));
            }
        }
        for ((name, _), of) in COMPETITORS.iter().zip(&runs) {
            let median = |figure: &dyn Fn(&HugeRun, &HugeRun) -> f64| {
                let values = of.iter().zip(&runs[0]).map(|(run, without)| Some(figure(run, without)));
                Spread::from_values(values).median.unwrap_or(f64::NAN) * 100.0
            };
            println!(
                "| {} | {name} | {:.1} % | {:.1} % | {:.1} % |",
                mixture.in_words(),
                median(&|run, _| run.saved_part),
                median(&|run, _| run.huge_part),
                median(&|run, without| run.accesses / without.accesses),
            );
        }
    }
    drop(lock);
}

fn play(mut guests: [Box<dyn BenchGuest>; 2], config: Option<&str>, mib: usize, time: Duration) -> HugeRun {
    let bytes = ((2 * mib) << 20) as f64;
    let before: u64 = guests.iter().map(|guest| guest.sums().pss.unwrap()).sum();
    let daemon = config.map(|config| {
        let (file, path) = config_file(config);
        (RunningProgram::start(&["daemon", "--config", &path]), file)
    });
    for guest in &mut guests {
        guest.begin(time);
    }
    let accesses = guests.iter_mut().map(|guest| guest.accesses()).sum();
    let after: u64 = guests.iter().map(|guest| guest.sums().pss.unwrap()).sum();
    let huge: u64 = guests.iter().map(|guest| guest.sums().anon_huge.unwrap()).sum();
    drop(guests);
    if let Some((daemon, _file)) = daemon {
        daemon.end();
    }
    HugeRun { saved_part: before.saturating_sub(after) as f64 / bytes, huge_part: huge as f64 / bytes, accesses }
}
