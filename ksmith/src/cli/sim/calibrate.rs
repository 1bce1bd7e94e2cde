//! The command `ksmith sim calibrate`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use ksmith_core::huge_worth::SplitLosses;
use ksmith_core::printable::TextPage;
use ksmith_core::units::{Bytes, TimeSpan};
use ksmith_host::observe::HostObserver;
use ksmith_host::signals;
use ksmith_lab::calibrate::{
    AccessCost, CalibrateError, Calibration, CalibrationRounds, WorkCost, calibrate, needed_bytes,
};
use ksmith_lab::live_bench::LiveBench;
use ksmith_lab::measure::Spread;
use ksmith_lab::play::LabBench;
use ksmith_lab::results::MeasuredHost;
use serde_json::json;

use super::super::{CommandFailure, GlobalArgs, control, lab, print};
use crate::show::TextTable;

/// Measure what ksmd's work costs on this host, for `ksmith sim --costs`.
///
/// It starts guests with known memory and makes ksmd run single passes over them, several times. It needs half a minute
/// on an idle host, 600 MiB of memory, and root. While figures differ much from round to round it continues, for at
/// most 15 rounds, and then rejects them. It refuses a host where KSM is in use. At the end, and on Ctrl-C, everything
/// is restored.
#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// Write the costs into this file, and a table of them to standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Rounds of a measurement: an odd number, so that the median is one of them.
const ROUNDS: u32 = 5;

/// The most rounds: as many again, twice, on a host that is disturbed now and then.
const MOST_ROUNDS: u32 = 3 * ROUNDS;

impl CalibrateArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = control::require(global)?;
        let sample = HostObserver::new(root).sample();
        lab::check_unused(&sample)?;
        lab::check_memory(&sample, needed_bytes(), "stop other programs on this host")?;
        if let Some(out) = &self.out {
            check_place(out)?;
        }
        let program = env::current_exe().context("can't find the ksmith program, which guests are started with")?;
        let interrupts = signals::catch()?.listen()?;
        let mut bench = LiveBench::new(control::take_control(global, false, false)?)?;
        let began = Instant::now();
        let rounds =
            CalibrationRounds { program: &program, count: ROUNDS, most: MOST_ROUNDS, interrupts: &interrupts };
        let measured = calibrate(&mut bench, rounds, |done, doubt| show_round(done, doubt, began.elapsed()));
        if print::is_watched() {
            print::end_progress();
        }
        // Nothing stays merged, even if the measurement failed.
        let is_reset = bench.reset();
        let restored = bench.restore();
        let calibration = measured.map_err(|error| failure(&error))?;
        is_reset.map_err(|why| anyhow::anyhow!("the measurement is not undone: {why}"))?;
        restored?;
        self.show(global, &calibration)?;
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, global: &GlobalArgs, calibration: &Calibration) -> anyhow::Result<()> {
        if let Some(out) = &self.out {
            fs::write(out, calibration.toml()).with_context(|| format!("can't write {}", out.display()))?;
        }
        if global.json {
            return print::json(&json!({
                "host": MeasuredHost::current(),
                "rounds": calibration.rounds(),
                "pages": calibration.pages(),
                "costs": calibration.costs(),
                "measured": calibration.all(),
                "accesses": calibration.accesses(),
                "split_loss_cpus": calibration.split_losses(),
            }));
        }
        let mut page = TextPage::new();
        match &self.out {
            Some(out) => {
                page.lines(table(&calibration.all()).lines(print::width()));
                let accesses = calibration.accesses();
                page.lines(accesses.iter().map(access_in_words));
                page.lines(calibration.split_losses().map(losses_in_words));
                page.line(format_args!("written to {}: for `ksmith sim --costs`", out.display()));
            }
            None => {
                page.lines(calibration.toml().lines());
                page.lines(calibration.split_losses().map(|losses| format!("# {}", losses_in_words(losses))));
            }
        }
        print::page(&page)
    }
}

/// Refuses a path where no file can be, before a minute of measuring.
fn check_place(out: &Path) -> Result<(), CommandFailure> {
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let why = match () {
        () if out.is_dir() => "it is a directory",
        () if !parent.is_dir() => "its directory is not there",
        () => return Ok(()),
    };
    Err(CommandFailure::usage(format!("--out {}: {why}", out.display())))
}

/// Shows the round, with the time left or the reason for a further round.
fn show_round(done: u32, doubt: Option<&CalibrateError>, elapsed: Duration) {
    let left = elapsed.checked_div(done).map(|round| round * ROUNDS.saturating_sub(done));
    let left = match (doubt, left) {
        (Some(CalibrateError::Noisy { key, min, max }), _) => {
            format!("{MOST_ROUNDS} at most: {key} cost {min} to {max} ns from round to round")
        }
        (_, Some(left)) => format!("{ROUNDS}, about {} left", TimeSpan(Duration::from_secs(left.as_secs().max(1)))),
        (_, None) => format!("{ROUNDS}, half a minute on an idle host"),
    };
    let text = format!("measuring ksmd: round {} of {left}", done + 1);
    if print::is_watched() {
        print::progress(text);
    } else {
        let mut page = TextPage::new();
        page.line(text);
        print::aside(&page);
    }
}

fn failure(error: &CalibrateError) -> anyhow::Error {
    match error {
        CalibrateError::Unseen(_) | CalibrateError::Nonsense { .. } => {
            CommandFailure::impossible(error.to_string()).into()
        }
        _ => anyhow::anyhow!("{error}"),
    }
}

/// Says what a program loses in small pages.
fn access_in_words(access: &AccessCost) -> String {
    let ns = |spread: Spread| spread.median.unwrap_or(f64::NAN);
    format!(
        "an access at random to {}: {:.1} ns in huge pages, {:.1} ns in small ones; a program that does nothing else loses \
         {:.2} CPU-seconds a second by splits",
        Bytes::from(access.working_set_bytes),
        ns(access.huge_ns),
        ns(access.small_ns),
        access.lost_cpus.max(0.0)
    )
}

/// Says how the daemon comes to know the losses.
fn losses_in_words(losses: SplitLosses) -> String {
    format!(
        "in /etc/ksmith.toml, for split_cost_cpus: [huge_pages] split_loss_cpus = {:?}",
        <[f64; 3]>::from(losses)
    )
}

fn table(costs: &[WorkCost]) -> TextTable {
    let mut table = TextTable::new(["work", "median", "least", "greatest", "what it is"]);
    for WorkCost { key, about, ns } in costs {
        let text = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{ns:.0} ns"));
        let [median, min, max] = ns.map_or([None; 3], |spread| [spread.median, spread.min, spread.max]).map(text);
        table.row([(*key).to_owned(), median, min, max, (*about).to_owned()]);
    }
    table
}
