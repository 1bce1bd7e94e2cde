//! The command `ksmith report`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use ksmith_record::{HistoryReader, ReportQuery, ReportResolution, times};
use ksmith_service::daemon::{DaemonEnvironment, LiveEnvironment};

use super::{CommandFailure, GlobalArgs, doctor, metrics, print};
use crate::report::{ReportInputs, TimeMark, document, saved_and_spent};

/// Write a report of the past: what was saved, by which guests, at what cost, and what each decision brought.
///
/// The report is one self-contained file: HTML with pictures, Markdown, or the picture alone as SVG. It shows what the
/// daemon recorded (`ksmith history`), and what `ksmith doctor` finds now.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Start of the period: how long ago (2h, 30m, 7d), a date (2026-11-23T20:15), or seconds since 1970
    #[arg(long, default_value = "1d", value_name = "TIME")]
    since: String,
    /// End of the period, in the same forms
    #[arg(long, default_value = "now", value_name = "TIME")]
    until: String,
    /// The file to write, replaced if it exists; its extension sets the format: .html, .md or .svg
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Read this file instead of the configured one
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Most rows of the history, for the chart and the sums.
const ROWS: usize = 2000;

/// Columns of huge pages, which the sums have.
const HUGE_PAGES: [&str; 3] = ["huge_bytes", "split_bytes", "split_cost_cpus"];

/// Most guests that are listed.
const GUESTS: usize = 15;

/// The forms of a report.
#[derive(Debug, Clone, Copy)]
enum ReportForm {
    Html,
    Markdown,
    Svg,
}

impl ReportArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let form = self.form()?;
        let config = global.load_config_to_read()?;
        let root = global.root();
        let now = LiveEnvironment.day_clock();
        let (since, until) =
            times::between(&self.since, &self.until, now).map_err(|why| CommandFailure::usage(why.to_string()))?;
        let file = self.file.clone().unwrap_or_else(|| config.history.file(&root));
        let query = ReportQuery {
            since,
            until,
            guest: None,
            columns: Vec::new(),
            resolution: ReportResolution::Rows(ROWS),
        };
        let reader = HistoryReader::open(&file).map_err(CommandFailure::from)?;
        let columns = query.shown().iter().chain(&HUGE_PAGES).map(|&name| name.to_owned()).collect();
        let of_host = ReportQuery { columns, ..query.clone() };
        let history = reader.read_report(&of_host).map_err(CommandFailure::from)?;
        let savers = reader.savers(&query, GUESTS).map_err(CommandFailure::from)?;
        let labels = reader.saved_by_label(&query).map_err(CommandFailure::from)?;
        let text = |path: &str| root.text(path).value().map(|text| text.trim().to_owned()).unwrap_or_default();
        let text = match form {
            ReportForm::Svg => {
                let marks: Vec<TimeMark> =
                    history.decisions.iter().map(|made| TimeMark { time: made.time }).collect();
                saved_and_spent(&history, &marks)?
            }
            ReportForm::Html | ReportForm::Markdown => {
                let report = document(&ReportInputs {
                    host: &text("proc/sys/kernel/hostname"),
                    kernel: &text("proc/sys/kernel/osrelease"),
                    history: &history,
                    savers: &savers,
                    labels: &labels,
                    findings: &doctor::findings(global, &config)?,
                })?;
                if matches!(form, ReportForm::Html) { report.html() } else { report.markdown() }
            }
        };
        // For its user alone, because it has names of guests and users.
        let written = metrics::replace(&self.out, &text, 0o600);
        written.with_context(|| format!("can't write the report {}", self.out.display()))?;
        if global.json {
            print::json(
                &serde_json::json!({ "file": self.out, "since": since as f64 / 1e3, "until": until as f64 / 1e3 }),
            )?;
        } else {
            print::line(format_args!("the report is in {}", self.out.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn form(&self) -> Result<ReportForm, CommandFailure> {
        match self.out.extension().and_then(|ending| ending.to_str()) {
            Some("html" | "htm") => Ok(ReportForm::Html),
            Some("md") => Ok(ReportForm::Markdown),
            Some("svg") => Ok(ReportForm::Svg),
            _ => {
                Err(CommandFailure::usage(format!("{} ends with neither .html, .md nor .svg", self.out.display())))
            }
        }
    }
}
