//! The command `ksmith run -- CMD`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use ksmith_core::job::{FoldWhen, MarkedRanges, OptInMethod, OptInRequest};
use ksmith_core::printable::{self, TextPage};
use ksmith_core::units::Bytes;

use super::run_report::ReportFiles;
use super::run_scans::{ScanProvider, ScanSchedule, ScanThread};
use super::{CommandFailure, GlobalArgs, print};
use crate::exit;
use ksmith_host::fold::{FoldError, fold_hindrance, may_split};
use ksmith_host::job::{
    JobFoldSettings, JobFolder, JobReport, JobWatch, LaunchError, LaunchRequest, WatchOutcome, block_signals,
    is_first_of_node, nanoseconds_per_copy, wait,
};
use ksmith_host::ksmd;
use ksmith_host::own_use;
use ksmith_host::root::Root;

/// Start a program with mergeable memory, and report at its end what KSM saved.
///
/// The program needs no change and the user no privilege. On Linux 6.7 and later the program and its children opt in by
/// prctl. On older kernels, or with --preload, libksmith.so is loaded into it. Signals are passed on to the program,
/// and its exit code is the exit code of this command: 128 + the number for a signal, 126 if it can't be run, 127 if it
/// does not exist. The savings are printed on standard error.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Opt in by prctl, or not at all
    #[arg(long, conflicts_with = "preload")]
    prctl: bool,
    /// Opt in by loading libksmith.so into the program
    #[arg(long)]
    preload: bool,
    /// Memory to mark; values other than `all` need libksmith
    #[arg(long, value_enum, default_value_t = RangesArg::All)]
    ranges: RangesArg,
    /// Scan the program once its memory has stopped growing (end-of-init), every TIME, or never. Of the ranks that
    /// `mpirun` or `srun` starts on a node, only the first requests scans
    #[arg(long, value_name = "end-of-init|TIME|never", default_value_t = ScanSchedule::EndOfInit)]
    scan: ScanSchedule,
    /// Scan even where KSM is off and other programs have offered memory, which then merges too. Only root can
    #[arg(long)]
    scan_others: bool,
    /// Put the program's memory into huge pages, and free their zero pages: when memory has stopped growing, every so
    /// many seconds, or on demand by `ksmith fold` or a daemon with `[fold] mode = "all"`. Needs Linux 6.12, and root
    /// unless on demand; works without KSM too
    #[arg(long, value_name = "end-of-init|every=SECONDS|on-demand", num_args = 0..=1, require_equals = true,
        default_missing_value = "end-of-init")]
    fold: Option<FoldWhen>,
    /// CPU that folding each process may take after its first pass, in per cent of a core
    #[arg(long, value_name = "PERCENT", default_value = "2", requires = "fold", value_parser = percent)]
    fold_cpu: f64,
    /// Write the report to this file, as JSON. Ranks that `mpirun` or `srun` starts write one report, on a file system
    /// that all their nodes share
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print nothing at the end
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// The values of [`MarkedRanges`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RangesArg {
    /// All memory
    All,
    /// Ranges in which the daemon finds equal pages
    Guided,
    /// No memory: the program marks its own through ksmith.h
    None,
}

impl RunArgs {
    fn asked(&self) -> OptInRequest {
        let method = match (self.prctl, self.preload) {
            (true, _) => Some(OptInMethod::Prctl),
            (_, true) => Some(OptInMethod::Preload),
            _ => None,
        };
        let ranges = match self.ranges {
            RangesArg::All => MarkedRanges::All,
            RangesArg::Guided => MarkedRanges::Guided,
            RangesArg::None => MarkedRanges::None,
        };
        OptInRequest { method, ranges, folds: self.fold.is_some() }
    }

    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = global.live_root()?;
        let config = global.load_config_to_read()?;
        let socket: &Path = &config.optin.socket;
        let obstacle = self.fold_obstacle(&root);
        let wants_huge_pages = self.fold.is_some() && obstacle.is_none();
        let launch = LaunchRequest { command: &self.command, asked: self.asked(), socket, wants_huge_pages };
        let plan = launch.plan().map_err(failure)?;
        tracing::debug!("{} opts in by {}", plan.path.display(), plan.method);
        let copy_nanoseconds = nanoseconds_per_copy().unwrap_or(0.0);
        // A scan visits all memory of the node, that of other ranks too.
        let is_first = is_first_of_node();
        let schedule = if is_first { self.scan } else { ScanSchedule::Never };
        let scanner = ScanProvider::find(global, schedule, self.scan_others, socket);
        if is_first {
            if let Some(warning) = scanner.warning(&root) {
                tracing::warn!("{warning}");
            }
            self.say_fold(obstacle);
        }
        // Before the start, because a failure after hours would come too late.
        let files = ReportFiles::prepare(self.report.as_deref())?;
        let mut signals = block_signals()?;
        // Keeps processes in the job after their parents have ended.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let ksmd_before = ksmd::cpu_ns(&root);
        let started = launch.start(&plan, &signals).map_err(failure)?;
        let folds = self.fold.filter(|when| *when != FoldWhen::OnDemand);
        let watch = JobWatch::begin(plan.method, folds.is_some())?;
        let fold = |when| JobFolder::begin(JobFoldSettings { when, cpu_share: self.fold_cpu / 100.0 });
        let folder = folds.map(fold).transpose()?;
        let scans = ScanThread::begin(scanner, schedule, plan.ranges, watch.notices())?;
        own_use::release_code();
        let ended = wait(&started.child, &mut signals)?;
        let outcome = watch.finish();
        let scanned = scans.finish();
        let command = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut report = JobReport::new(command, plan.method, ended, &outcome, copy_nanoseconds);
        report.scans = scanned;
        if let Some(folder) = folder {
            report.add_fold(folder.finish());
        }
        let ksmd_cpu = ksmd::cpu_ns(&root).zip(ksmd_before).map(|(now, then)| now.saturating_sub(then));
        report.ksmd_cpu_seconds = ksmd_cpu.map(|ns| ns as f64 / 1e9);
        self.deliver_report(global, files, &report, &outcome);
        Ok(ExitCode::from(ended.code()))
    }

    /// Returns the reason why nobody folds the job's memory. On demand it is folded by others: root, or the daemon.
    fn fold_obstacle(&self, root: &Root) -> Option<String> {
        let when = self.fold?;
        let denied = || (when != FoldWhen::OnDemand && !may_split()).then(|| FoldError::Denied.to_string());
        fold_hindrance(root).map(|why| why.to_string()).or_else(denied)
    }

    /// Warns before the start if nothing will be folded, or only on demand.
    fn say_fold(&self, obstacle: Option<String>) {
        if let Some(why) = obstacle {
            tracing::warn!("nothing will be folded: {why}");
        } else if self.fold == Some(FoldWhen::OnDemand) && !self.quiet {
            tracing::warn!(
                "nothing is folded until `ksmith fold PID`, or by a daemon with `[fold] mode = \"all\"`"
            );
        }
    }

    /// Writes the report to its file and prints it. A failure is only logged: the exit code is the program's.
    fn deliver_report(
        &self,
        global: &GlobalArgs,
        mut files: ReportFiles,
        report: &JobReport,
        outcome: &WatchOutcome,
    ) {
        let of_ranks = files.write(report);
        if self.quiet {
            return;
        }
        let mut page = TextPage::new();
        match (files.place(), of_ranks) {
            (None, _) => {}
            // One report for all of them.
            (Some(_), Some(of_all)) => {
                match () {
                    () if of_all.is_complete() && global.json => page.lines(json_lines(&of_all).lines()),
                    () if of_all.is_complete() => {
                        page.lines(of_all.page().text().lines().map(|line| format!("ksmith: {line}")));
                    }
                    () if global.json => return,
                    // The others were killed, or see another file system.
                    () => page.line(format_args!(
                        "ksmith: {} of {} ranks have reported, and no other runs here: `ksmith job report FILE` shows these",
                        of_all.rows.len(),
                        of_all.ranks
                    )),
                }
                print::aside(&page);
                return;
            }
            (Some(place), None) if files.has_file() || place.rank > 0 => return,
            (Some(place), None) if !global.json => page.line(format_args!(
                "ksmith: this is rank 0 of {}; with --report FILE there is one report of all",
                place.ranks
            )),
            (Some(_), None) => {}
        }
        if global.json {
            page.lines(json_lines(report).lines());
            print::aside(&page);
            return;
        }
        page.lines(report.page().text().lines().map(|line| format!("ksmith: {line}")));
        if outcome.hidden > 0 {
            let held = Bytes::from(report.peak_pss_bytes);
            page.line(format_args!(
                "ksmith: {} processes of the job belong to another user or hide their memory; {held} is without them",
                outcome.hidden
            ));
        }
        print::aside(&page);
    }
}

fn json_lines(report: &impl serde::Serialize) -> String {
    printable::json(&serde_json::to_string_pretty(report).unwrap_or_default())
}

/// Parses per cent of a core.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse::<f64>().ok().filter(|percent| (0.1..=100.0).contains(percent));
    percent.ok_or_else(|| "say per cent of a core, from 0.1 to 100".to_owned())
}

fn failure(error: LaunchError) -> anyhow::Error {
    let code = match &error {
        LaunchError::NotFound(_) => exit::NO_PROGRAM,
        LaunchError::Unusable { .. } => exit::UNUSABLE_PROGRAM,
        _ => exit::IMPOSSIBLE,
    };
    CommandFailure::with_code(code, error.to_string()).into()
}
