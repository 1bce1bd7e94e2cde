//! Runs put together: medians, and what they mean beside the runs without KSM.

use ksmith_core::units::Bytes;
use ksmith_lab::measure::Spread;
use serde_json::{Value, json};

use crate::cases::HpcCase;
use crate::contender::HpcContender;
use crate::job::JobRun;

/// Prints the table of a case as Markdown.
pub(crate) fn print(case: &HpcCase, runs: &[(HpcContender, Vec<JobRun>)]) {
    let plain =
        runs.iter().find(|(contender, _)| *contender == HpcContender::None).map(|(_, runs)| runs.as_slice());
    println!("\n{}: {}\n", case.name, case.about);
    println!(
        "| | mean memory | saved | in the second half | median there | peak memory | seconds (least to most) | slower | CPU | more CPU | ksmd CPU | copied |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for (contender, runs) in runs {
        let median = |of: fn(&JobRun) -> f64| spread(runs, of).median.unwrap_or(f64::NAN);
        let wall = spread(runs, |run| run.wall_seconds);
        println!(
            "| {contender} | {} | {:.1} % | {:.1} % | {} | {} | {:.2} ({:.2} to {:.2}) | {:+.1} % | {:.2} s | {:+.1} % | {:.2} s | {:.0} |",
            Bytes(median(|run| run.mean_bytes) as i128),
            -100.0 * within(plain, runs, |run| run.mean_bytes),
            -100.0 * within(plain, runs, |run| run.late_bytes),
            Bytes(median(|run| run.usual_late_bytes) as i128),
            Bytes(median(|run| run.peak_bytes as f64) as i128),
            wall.median.unwrap_or(f64::NAN),
            wall.min.unwrap_or(f64::NAN),
            wall.max.unwrap_or(f64::NAN),
            100.0 * within(plain, runs, |run| run.wall_seconds),
            median(|run| run.job_seconds),
            100.0 * within(plain, runs, |run| run.job_seconds + run.ksmd_seconds + run.daemon_seconds),
            median(|run| run.ksmd_seconds),
            median(|run| run.breaks as f64),
        );
    }
    print_foretold(plain, runs);
    let shown: Vec<&str> = runs.iter().flat_map(|(_, runs)| runs).map(|run| run.shown.as_str()).collect();
    let is_same = shown.windows(2).all(|pair| pair[0] == pair[1]);
    println!(
        "\nResults: {}",
        if is_same {
            format!("{} in all {} runs", shown[0], shown.len())
        } else {
            format!("NOT the same: {shown:?}")
        }
    );
}

/// Prints what the daemon foretold of its scans, and what came of them. ksmd delays a job by what it uses, at most.
fn print_foretold(plain: Option<&[JobRun]>, runs: &[(HpcContender, Vec<JobRun>)]) {
    let looked = |run: &JobRun| run.foretold.scans + run.foretold.left > 0;
    let mut runs = runs.iter().filter(|(_, runs)| runs.iter().any(looked)).peekable();
    if runs.peek().is_none() {
        return;
    }
    println!(
        "\n| | scans | not begun | saved, foretold | came | CPU and longest delay, foretold | CPU | all of ksmd's | delay |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (contender, runs) in runs {
        let median = |of: fn(&JobRun) -> f64| spread(runs, of).median.unwrap_or(f64::NAN);
        let pairs = plain.unwrap_or_default().iter().zip(runs);
        let delay = Spread::from_values(pairs.map(|(plain, run)| Some(run.wall_seconds - plain.wall_seconds)));
        println!(
            "| {contender} | {:.0} | {:.0} | {:.0} MiB | {:.0} MiB | {:.2} s | {:.2} s | {:.2} s | {:+.2} s |",
            median(|run| f64::from(run.foretold.scans)),
            median(|run| f64::from(run.foretold.left)),
            median(|run| run.foretold.saved_mib[0]),
            median(|run| run.foretold.saved_mib[1]),
            median(|run| run.foretold.cpu_seconds[0]),
            median(|run| run.foretold.cpu_seconds[1]),
            median(|run| run.ksmd_seconds),
            delay.median.unwrap_or(f64::NAN),
        );
    }
}

/// The median of how much more a run took than the one without KSM in the same repeat: what changes on the host from one
/// repeat to the next is not in it.
fn within(plain: Option<&[JobRun]>, runs: &[JobRun], of: fn(&JobRun) -> f64) -> f64 {
    let pairs = plain.unwrap_or_default().iter().zip(runs);
    let more = Spread::from_values(pairs.map(|(plain, run)| Some(of(run) / of(plain) - 1.0)));
    more.median.unwrap_or(f64::NAN)
}

/// All there is to know about the runs of a case.
pub(crate) fn raw(case: &HpcCase, runs: &[(HpcContender, Vec<JobRun>)]) -> Value {
    let runs = runs.iter().map(|(contender, runs)| json!({ "contender": contender.to_string(), "runs": runs }));
    json!({ "case": case.name, "contenders": runs.collect::<Vec<_>>() })
}

fn spread(runs: &[JobRun], of: fn(&JobRun) -> f64) -> Spread {
    Spread::from_values(runs.iter().map(|run| Some(of(run))))
}
