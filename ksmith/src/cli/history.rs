//! The command `ksmith history`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ksmith_record::{HistoryReader, HistoryTier, ReportQuery, ReportResolution, times};
use ksmith_service::daemon::{DaemonEnvironment, LiveEnvironment};

use super::{CommandFailure, GlobalArgs, print};
use crate::show;
use crate::show::history::DecisionsShown;

/// Show what was saved and spent in the past; with --decisions also what was decided and why.
///
/// The daemon records the host, its decisions and its guests ([history] in the configuration). A long period is shown
/// in fewer rows, each with the means of its part. The file is SQLite: /usr/share/doc/ksmith/docs/reference/history.md
/// describes its tables.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Start of the period: how long ago (2h, 30m, 7d), a date (2026-11-23T20:15), or seconds since 1970
    #[arg(long, default_value = "2h", value_name = "TIME")]
    since: String,
    /// End of the period, in the same forms
    #[arg(long, default_value = "now", value_name = "TIME")]
    until: String,
    /// Show one guest, by name, UUID, PID, kind:name or VMID
    #[arg(long, value_name = "GUEST")]
    guest: Option<String>,
    /// Show what guests saved together for each value of this label, such as role
    #[arg(long, value_name = "LABEL", conflicts_with_all = ["guest", "figures", "resolution"])]
    by: Option<String>,
    /// Show these figures, by key or heading, as in saved,full_scans
    #[arg(long, value_delimiter = ',', value_name = "FIGURES")]
    figures: Vec<String>,
    /// Show what was decided and why, and events; -v adds the arithmetic behind each reason
    #[arg(long, conflicts_with_all = ["guest", "csv", "plot"])]
    decisions: bool,
    /// Show at most this many rows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "resolution")]
    limit: Option<u32>,
    /// Show every row at this resolution: each sample, minute or hour
    #[arg(long, value_parser = ["sample", "minute", "hour"], value_name = "WHAT")]
    resolution: Option<String>,
    /// Print the rows as CSV, with times in seconds since 1970
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Draw each figure over time with characters, as wide as the terminal
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    plot: bool,
    /// Read this file instead of the configured one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Rows that fit a terminal, and rows for programs.
const ROWS: (usize, usize) = (20, 1000);

impl HistoryArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let config = global.load_config_to_read()?;
        let now = LiveEnvironment.day_clock();
        let (since, until) =
            times::between(&self.since, &self.until, now).map_err(|why| CommandFailure::usage(why.to_string()))?;
        let file = self.file.clone().unwrap_or_else(|| config.history.file(&global.root()));
        let query = ReportQuery {
            since,
            until,
            guest: self.guest.clone(),
            columns: self.columns(),
            resolution: self.resolution(global.json || self.csv || self.plot),
        };
        let read = |reader: HistoryReader| match &self.by {
            Some(label) => reader.read_by_label(&query, label),
            None => reader.read_report(&query),
        };
        let report = HistoryReader::open(&file).and_then(read).map_err(CommandFailure::from)?;
        match () {
            () if global.json => print::json(&report)?,
            () if self.plot => print::page(&show::plot::plot(&report, plot_width()))?,
            () if self.csv => print::page(&show::history::csv(&report))?,
            () => print::page(&show::history::text(&report, self.decisions_shown(global), print::width()))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the columns to query. Plots are large, so that fewer are drawn unless others are named.
    fn columns(&self) -> Vec<String> {
        match (self.figures.as_slice(), self.plot, &self.guest) {
            ([], true, None) => ["saved_bytes", "ksmd_cpu_percent"].map(str::to_owned).to_vec(),
            ([], true, Some(_)) => ["saved_bytes", "merged_bytes"].map(str::to_owned).to_vec(),
            (named, ..) => named.to_vec(),
        }
    }

    fn decisions_shown(&self, global: &GlobalArgs) -> DecisionsShown {
        match (global.verbose, self.decisions) {
            (1.., _) => DecisionsShown::Details,
            (_, true) => DecisionsShown::Reasons,
            _ => DecisionsShown::Counted,
        }
    }

    fn resolution(&self, is_for_programs: bool) -> ReportResolution {
        let usual = if is_for_programs { ROWS.1 } else { ROWS.0 };
        match (self.resolution.as_deref(), self.limit) {
            (Some("sample"), _) => ReportResolution::Tier(HistoryTier::Sample),
            (Some("minute"), _) => ReportResolution::Tier(HistoryTier::Minute),
            (Some(_), _) => ReportResolution::Tier(HistoryTier::Hour),
            (None, limit) => ReportResolution::Rows(limit.map_or(usual, |rows| rows as usize)),
        }
    }
}

/// Returns the width of plots: in a pipe that of an old terminal.
fn plot_width() -> u16 {
    print::width().and_then(|width| u16::try_from(width).ok()).unwrap_or(80).min(400)
}
