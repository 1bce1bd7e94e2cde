//! `ksmith run -- CMD`

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ksmith_core::job::{Asked, Method, Ranges};
use ksmith_core::units::Bytes;

use super::run_scans::{Scanner, Scans};
use super::{Failure, Global, print};
use crate::config::Config;
use crate::job::{JobReport, Launch, LaunchError, Outcome, Watch, block_signals, nanoseconds_per_copy, wait};
use crate::ksmd;

/// Start a program with its memory mergeable, and say at its end what KSM saved.
///
/// The program needs no change and the user no privilege. Where the kernel can (6.7 and later) the program and all it
/// starts opt in by prctl; else, or with --preload, libksmith.so is loaded into it. Signals are passed on to the
/// program; its exit code is this command's (128 and the number for a signal; 126 and 127 as with env: it can't be
/// run, it is not there). What KSM saved is printed on standard error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  ksmith run -- mpirun -n 8 ./solver input\n  \
                        ksmith run --scan 60 --report job.json -- python3 service.py\n  \
                        ksmith run --ranges guided -- ./program")]
pub struct RunArgs {
    /// Opt in by prctl, or not at all
    #[arg(long, conflicts_with = "preload")]
    prctl: bool,
    /// Opt in by loading libksmith.so into the program
    #[arg(long)]
    preload: bool,
    /// Which memory to mark; all but `all` needs libksmith
    #[arg(long, value_enum, default_value_t = WhichRanges::All)]
    ranges: WhichRanges,
    /// When to send ksmd over it: once memory has stopped growing (end-of-init), each so many seconds, or never
    #[arg(long, value_name = "end-of-init|SECONDS|never", default_value_t = ScanWhen::EndOfInit)]
    scan: ScanWhen,
    /// Write what came of it to this file, as JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print nothing at the end
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// [`Ranges`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum WhichRanges {
    /// All memory
    All,
    /// Where the daemon finds equal pages
    Guided,
    /// None: the program marks its own by ksmith.h
    None,
}

/// When scans are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScanWhen {
    EndOfInit,
    Every(Duration),
    Never,
}

impl fmt::Display for ScanWhen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EndOfInit => f.write_str("end-of-init"),
            Self::Every(period) => write!(f, "{}", period.as_secs_f64()),
            Self::Never => f.write_str("never"),
        }
    }
}

impl FromStr for ScanWhen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "end-of-init" => Ok(Self::EndOfInit),
            "never" => Ok(Self::Never),
            seconds => {
                let seconds = seconds.parse::<f64>().ok().filter(|seconds| (0.1..=1e6).contains(seconds));
                let seconds = seconds.ok_or("say end-of-init, never, or seconds from 0.1 to 1000000")?;
                Ok(Self::Every(Duration::from_secs_f64(seconds)))
            }
        }
    }
}

/// Passes of each scan: a page merges on the second visit that finds it unchanged.
pub(super) const PASSES: NonZeroU64 = NonZeroU64::MIN.saturating_add(1);

impl RunArgs {
    fn asked(&self) -> Asked {
        let method = match (self.prctl, self.preload) {
            (true, _) => Some(Method::Prctl),
            (_, true) => Some(Method::Preload),
            _ => None,
        };
        let ranges = match self.ranges {
            WhichRanges::All => Ranges::All,
            WhichRanges::Guided => Ranges::Guided,
            WhichRanges::None => Ranges::None,
        };
        Asked { method, ranges }
    }

    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let root = global.live_root()?;
        let config = Config::load(global.config.as_deref())?;
        let socket: &Path = &config.optin.socket;
        let launch = Launch { command: &self.command, asked: self.asked(), socket };
        let plan = launch.plan().map_err(failure)?;
        tracing::debug!("{} opts in by {}", plan.path.display(), plan.method);
        let copy_nanoseconds = nanoseconds_per_copy().unwrap_or(0.0);
        let scanner = Scanner::find(global, self.scan, socket);
        if let Some(warning) = scanner.warning(&root) {
            tracing::warn!("{warning}");
        }
        if let Some(file) = &self.report {
            // Hours later would be too late to learn of it.
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(file)
                .map_err(|why| Failure::usage(format!("can't write the report {}: {why}", file.display())))?;
        }
        let mut signals = block_signals()?;
        // Those whose parents have ended stay in the job.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let ksmd_before = ksmd::cpu_ns(&root);
        let started = launch.start(&plan, &signals).map_err(failure)?;
        let watch = Watch::begin(plan.method)?;
        let scans = Scans::begin(scanner, self.scan, plan.ranges, watch.notices())?;
        let ended = wait(&started.child, &mut signals)?;
        let outcome = watch.finish();
        let scanned = scans.finish();
        let command = self.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mut report = JobReport::new(command, plan.method, ended, &outcome, copy_nanoseconds);
        report.scans = scanned;
        let ksmd_cpu = ksmd::cpu_ns(&root).zip(ksmd_before).map(|(now, then)| now.saturating_sub(then));
        report.ksmd_cpu_seconds = ksmd_cpu.map(|ns| ns as f64 / 1e9);
        self.tell(global, &report, &outcome);
        Ok(ExitCode::from(ended.code()))
    }

    /// Tells what came of it. The program has ended as it did; that nobody can be told changes nothing.
    fn tell(&self, global: &Global, report: &JobReport, outcome: &Outcome) {
        if let Some(file) = &self.report
            && let Err(why) = report.write(file)
        {
            tracing::error!("can't write the report {}: {why}", file.display());
        }
        if self.quiet {
            return;
        }
        if global.json {
            let text = serde_json::to_string_pretty(report).unwrap_or_default();
            print::aside(format_args!("{text}\n"));
            return;
        }
        print::aside(format_args!(
            "ksmith: {}",
            report.to_string().replace('\n', "\nksmith: ").trim_end_matches("ksmith: ")
        ));
        if outcome.hidden > 0 {
            let held = Bytes::from(report.peak_pss_bytes);
            print::aside(format_args!(
                "ksmith: {} processes of the job belong to another user or hide their memory; {held} is without them\n",
                outcome.hidden
            ));
        }
    }
}

fn failure(error: LaunchError) -> anyhow::Error {
    let code = match &error {
        LaunchError::NotFound(_) => 127,
        LaunchError::Unusable { .. } => 126,
        _ => super::exit::IMPOSSIBLE,
    };
    Failure::with_code(code, error.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_to_scan_is_a_word_or_seconds() {
        assert_eq!("end-of-init".parse(), Ok(ScanWhen::EndOfInit));
        assert_eq!("0.5".parse(), Ok(ScanWhen::Every(Duration::from_millis(500))));
        assert_eq!("never".parse(), Ok(ScanWhen::Never));
        for bad in ["", "0", "-1", "NaN", "often", "1e9"] {
            assert!(bad.parse::<ScanWhen>().is_err(), "{bad}");
        }
        assert_eq!(ScanWhen::Every(Duration::from_secs(60)).to_string(), "60");
    }
}
