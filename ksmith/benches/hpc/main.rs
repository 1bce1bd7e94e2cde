//! Whole jobs with KSM compared with the same jobs without it: memory saved, and time lost.
//!
//! `cargo bench -p ksmith --bench hpc -- CASE… [--repeat N] [--under A,B] [--out FILE]`, as root, on a host
//! where KSM is not in use. Without a case it lists them. Contenders take turns within each repeat, every second time in
//! reverse, so that changes on the host affect all alike. Not at a niceness below 0: the kernel's workers, which ksmd waits
//! for at the start of a pass (`lru_add_drain_all`), would get no CPU for half a minute. Figures are medians;
//! docs/measurements/2026-11-hpc.md defines them. KSM's settings are restored after each run, and after Ctrl-C by `ksmith
//! restore`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a bench ends by panicking")]

mod cases;
mod contender;
mod foretold;
mod job;
#[path = "../opt_in/mod.rs"]
mod opt_in;
#[path = "../parent_death/mod.rs"]
mod parent_death;
mod table;

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use cases::HpcCase;
use contender::HpcContender;
use job::JobRun;
use ksmith_host::act::{KsmControl, StateDir};
use ksmith_host::root::Root;
use ksmith_lab::live_bench::LiveBench;
use ksmith_lab::play::LabBench;

/// The options of the command line.
struct HpcOptions {
    cases: Vec<HpcCase>,
    contenders: Vec<HpcContender>,
    repeat: usize,
    /// The file for raw figures; the output of the daemon and of `ksmith run` goes beside it.
    out: Option<PathBuf>,
}

fn main() {
    let Some(asked) = asked() else { return };
    let root = Root::host();
    if !rustix::process::geteuid().is_root() || fs::metadata("/sys/kernel/mm/ksm/run").is_err() {
        println!("SKIPPED, nothing was measured: this needs root and a kernel with KSM");
        return;
    }
    let mut raw = Vec::new();
    for case in &asked.cases {
        let runs = play(case, &asked, &root, |runs| {
            let all = raw.iter().cloned().chain([table::raw(case, runs)]).collect::<Vec<_>>();
            if let Some(out) = &asked.out {
                fs::write(out, serde_json::to_string_pretty(&all).unwrap()).unwrap();
            }
        });
        raw.push(table::raw(case, &runs));
        table::print(case, &runs);
    }
}

/// Runs `work` with this host's KSM, which is put back afterwards. Tests that wait for it go between two runs.
fn with_ksm<T>(root: &Root, work: impl FnOnce() -> T) -> T {
    let lock = File::options().create(true).append(true).open("/run/lock/ksmith-kernel.lock").unwrap();
    lock.lock().unwrap();
    let control = loop {
        match KsmControl::acquire(root, &StateDir::from_root(root), false, false) {
            Ok(control) => break control,
            Err(why) => eprintln!("waiting: {why}"),
        }
        std::thread::sleep(Duration::from_secs(10));
    };
    let mut bench = LiveBench::new(control).unwrap();
    bench.reset().unwrap();
    let result = work();
    bench.reset().unwrap();
    bench.restore().unwrap();
    result
}

/// All runs of a case, by contender. `keep` is given what there is after each repeat, so that a bench that is cut short has its
/// figures.
fn play(
    case: &HpcCase,
    asked: &HpcOptions,
    root: &Root,
    keep: impl Fn(&[(HpcContender, Vec<JobRun>)]),
) -> Vec<(HpcContender, Vec<JobRun>)> {
    let competing = asked.contenders.iter().filter(|contender| case.command_for(**contender).is_some());
    let mut runs: Vec<(HpcContender, Vec<JobRun>)> = competing.map(|contender| (*contender, Vec::new())).collect();
    for number in 1..=asked.repeat {
        let mut turns: Vec<_> = runs.iter_mut().collect();
        // A host that becomes faster or slower meanwhile favours none.
        if number % 2 == 0 {
            turns.reverse();
        }
        for (contender, runs) in turns {
            let command = case.command_for(*contender).expect("a contender that can compete");
            let place = tempfile::tempdir().unwrap();
            case.prepare(place.path());
            let run = with_ksm(root, || {
                let control = contender.take_over(place.path());
                job::play(*contender, &control, &command, place.path(), case.shows)
            });
            for said in ["daemon.log", "report.json"] {
                if let (Some(out), Ok(text)) = (&asked.out, fs::read(place.path().join(said))) {
                    fs::write(out.with_extension(format!("{}-{contender}-{number}-{said}", case.name)), text)
                        .unwrap();
                }
            }
            eprintln!("{} {number}/{} {contender}: {run}", case.name, asked.repeat);
            runs.push(run);
        }
        keep(&runs);
    }
    runs
}

fn asked() -> Option<HpcOptions> {
    let mut asked = HpcOptions { cases: Vec::new(), contenders: HpcContender::ALL.to_vec(), repeat: 3, out: None };
    // Cargo adds `--bench`.
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        match word.as_str() {
            "--repeat" => asked.repeat = words.next()?.parse().expect("--repeat: a number"),
            "--out" => asked.out = Some(words.next()?.into()),
            "--under" => {
                let named: Vec<String> = words.next()?.split(',').map(str::to_owned).collect();
                asked.contenders.retain(|contender| named.contains(&contender.to_string()));
                assert_eq!(
                    asked.contenders.len(),
                    named.len(),
                    "--under: of {:?}",
                    HpcContender::ALL.map(|c| c.to_string())
                );
            }
            name => match cases::all().into_iter().find(|case| case.name == name) {
                Some(case) => asked.cases.push(case),
                None => panic!("there is no case {name:?}"),
            },
        }
    }
    if asked.cases.is_empty() {
        println!("SKIPPED, nothing was measured: name one or more of these (they take minutes each)");
        for case in cases::all() {
            println!(
                "  {:12} {}{}",
                case.name,
                case.about,
                case.missing().map_or(String::new(), |what| format!(" [needs {what}]"))
            );
        }
        return None;
    }
    for case in &asked.cases {
        if let Some(what) = case.missing() {
            panic!("{}: needs {what}", case.name);
        }
    }
    for contender in &asked.contenders {
        if let Some(what) = contender.missing() {
            panic!("{contender}: needs {what}");
        }
    }
    Some(asked)
}
