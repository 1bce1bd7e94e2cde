//! Benchmark of what merging in huge pages saves and costs: two guests that use all of their memory at random, for mixtures of
//! equal, empty and own pages, under no KSM, `profit`, `profit` that waits until memory is short, ksmtuned's rules and unlimited
//! scanning.
//!
//! `cargo bench -p ksmith --bench huge_pages -- [MIXTURE…] [--rounds N] [--burst SECONDS] [--steady SECONDS] [--mib N]
//! [--program chase|redis] [--only COMPETITOR] [--apart]`, as root. A guest is a process that chases a pointer, or a Redis server
//! that a client reads. Mixtures are those that begin with one of the words, as in `'equal 5 %' zero`.
//!
//! In each round (5) the competitors take turns, every second time in reverse, between two runs without KSM. A run goes from a
//! daemon's start on through the burst (30 s) and the steady state (60 s), which are counted apart. Accesses are those of both
//! guests, compared with the mean of the round's two runs without KSM; the row of these shows the noise. Saved is what PSS lost.
//! Each cell has the median, and the least and the greatest of all rounds. `--apart` binds the guests to the first CPU and ksmd to
//! the others: then accesses show what splits cost, and not what ksmd takes of the guests' CPUs.
//!
//! `--pairs N` measures instead N runs of the burst's length under each competitor, by turns with runs without KSM, all with
//! the same two guests: their frames of memory, which differ from start to start, do not count. It shows the daemon's own
//! cost where nothing is merged.
//!
//! `--khugepaged SECONDS` measures instead how much of what a daemon with its defaults merged in idle guests stays so while
//! khugepaged is hurried, and how far what it says is off.

#![allow(unsafe_code, reason = "memory of mmap")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]
#![allow(clippy::disallowed_methods, reason = "a bench prints its table itself")]
#![allow(missing_docs, reason = "no other crate names these")]

mod chase;
#[path = "../child/mod.rs"]
mod child;
mod guest;
mod kept;
mod mixture;
#[path = "../opt_in/mod.rs"]
mod opt_in;
mod options;
mod redis;
#[path = "../../tests/live/fold_stress/restorer.rs"]
mod restorer;
mod run;
#[path = "../../tests/support/mod.rs"]
mod support;

use ksmith_lab::measure::Spread;
use mixture::{MIXTURES, MemoryMixture};
use options::HugeBenchOptions;
use run::{HugeRun, alternate, play};
use support::KernelLock;

/// The competitors with KSM, and their configurations.
const COMPETITORS: [(&str, &str); 4] = [
    ("`profit`", ""),
    ("`profit`, `when = \"short\"`", "[policy.profit]\nwhen = \"short\"\n"),
    ("ksmtuned", "[policy]\nkind = \"ksmtuned\"\n"),
    (
        "unlimited",
        "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { run = 1, pages_to_scan = 100000, sleep_millisecs = 0, \
         smart_scan = 0, use_zero_pages = 1 }\n",
    ),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).is_some_and(|word| word == chase::GUEST) {
        return chase::be_guest(&arguments[2..]);
    }
    let options = HugeBenchOptions::parse(arguments.into_iter().skip(1));
    let Some(lock) = KernelLock::acquire() else { return };
    println!("{options}\n");
    let mixtures = || MIXTURES.into_iter().filter(|mixture| options.wants(&mixture.in_words()));
    if let Some(time) = options.khugepaged {
        kept::print_head();
        return mixtures().for_each(|mixture| kept::measure(mixture, time, &options, &lock));
    }
    if let Some(pairs) = options.pairs {
        println!("| mixture | | accesses under the daemon | saved | huge pages kept |\n|---|---|---|---|---|");
        for mixture in mixtures() {
            for (name, config) in COMPETITORS.iter().filter(|(name, _)| options.has_competitor(name)) {
                let runs = alternate(mixture, config, pairs, &options);
                println!(
                    "| {} | {name} | {} | {:.1} % | {:.1} % |",
                    mixture.in_words(),
                    percent(Spread::from_values(runs.parts.iter().copied().map(Some))),
                    100.0 * runs.saved_part,
                    100.0 * runs.huge_part,
                );
            }
        }
        return;
    }
    println!(
        "| mixture | | saved | huge pages kept | accesses in the burst | in the steady state | ksmd's CPU, both |"
    );
    println!("|---|---|---|---|---|---|---|");
    for mixture in mixtures() {
        measure(mixture, &options);
    }
    drop(lock);
}

/// Plays all rounds of a mixture, and prints its rows.
fn measure(mixture: MemoryMixture, options: &HugeBenchOptions) {
    let mut without: Vec<HugeRun> = Vec::new();
    let mut with: [Vec<HugeRun>; COMPETITORS.len()] = Default::default();
    for round in 0..options.rounds {
        let first = play(mixture, None, options);
        let mut turns: Vec<usize> = (0..COMPETITORS.len()).collect();
        turns.retain(|place| options.has_competitor(COMPETITORS[*place].0));
        if round % 2 == 1 {
            turns.reverse();
        }
        let runs = turns.iter().map(|place| play(mixture, Some(COMPETITORS[*place].1), options));
        let runs: Vec<HugeRun> = runs.collect();
        let last = play(mixture, None, options);
        let usual = [0, 1].map(|phase| f64::midpoint(first.accesses[phase], last.accesses[phase]));
        for (place, run) in turns.into_iter().zip(runs) {
            with[place].push(run.compared_with(usual));
        }
        without.extend([first, last].map(|run| run.compared_with(usual)));
    }
    let rows = [("no KSM", &without)].into_iter().chain(COMPETITORS.iter().map(|(name, _)| *name).zip(&with));
    for (name, runs) in rows.filter(|(_, runs)| !runs.is_empty()) {
        let cell = |of: fn(&HugeRun) -> f64| percent(Spread::from_values(runs.iter().map(|run| Some(of(run)))));
        println!(
            "| {} | {name} | {} | {} | {} | {} | {}, {} |",
            mixture.in_words(),
            cell(|run| run.saved_part),
            cell(|run| run.huge_part),
            cell(|run| run.accesses[0]),
            cell(|run| run.accesses[1]),
            cell(|run| run.ksmd[0]),
            cell(|run| run.ksmd[1]),
        );
    }
}

/// Returns the median in per cent, with the extremes where they differ.
fn percent(spread: Spread) -> String {
    let text = |part: Option<f64>| format!("{:.1}", 100.0 * part.unwrap_or(f64::NAN));
    let [median, min, max] = [spread.median, spread.min, spread.max].map(text);
    if min == max { format!("{median} %") } else { format!("{median} % ({min} to {max})") }
}
