//! The command `ksmith metrics`.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};
use ksmith_serve::metrics::{self, MetricsFormat, MetricsSnapshot};
use ksmith_service::control::{ClientError, ControlClient};
use tempfile::NamedTempFile;

use super::asked::DaemonSockets;
use super::source::FallbackSource;
use super::{CommandFailure, GlobalArgs, print};

/// Print all figures as metrics, for node_exporter's textfile collector or another program.
///
/// The figures come from a running daemon. Without one ksmith reads them itself, and the metrics of the controller, of
/// policies and of balance are missing. `ksmith serve` has the same metrics at /metrics.
#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Write to this file, replacing it atomically
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Format of the text; node_exporter's textfile collector takes the first
    #[arg(long, value_enum, default_value_t = MetricsForm::Prometheus)]
    format: MetricsForm,
    /// Give at most this many guests metrics of their own, those that save most
    #[arg(long, value_name = "NUMBER", default_value_t = metrics::MOST_GUESTS)]
    limit: usize,
}

/// The form of the text.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum MetricsForm {
    /// Prometheus' text format 0.0.4
    Prometheus,
    /// OpenMetrics 1.0, with units
    Openmetrics,
}

/// The reports that the metrics are made of.
struct HostReports {
    status: StatusReport,
    guests: Option<GuestsReport>,
    balance: Option<BalanceReport>,
}

impl MetricsArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        if global.json {
            let why = "metrics are text for a collector: `ksmith status --json` and `ksmith guests --json` print the figures as JSON";
            return Err(CommandFailure::usage(why).into());
        }
        let config = global.load_config_to_read()?;
        let asked =
            if global.root().is_host() { query_reports(&DaemonSockets::from_config(&config))? } else { None };
        let is_up = asked.is_some();
        let host = asked.unwrap_or_else(|| {
            let seen = FallbackSource::once(global.root(), config).of_kernel();
            HostReports { status: seen.status, guests: Some(seen.guests), balance: None }
        });
        let figures = MetricsSnapshot {
            is_up,
            status: Some(&host.status),
            guests: host.guests.as_ref(),
            balance: host.balance.as_ref(),
            most_guests: self.limit,
        };
        let format = match self.format {
            MetricsForm::Prometheus => MetricsFormat::Prometheus,
            MetricsForm::Openmetrics => MetricsFormat::OpenMetrics,
        };
        let text = metrics::text(&figures, format);
        match &self.out {
            Some(path) => replace(path, &text, 0o644).with_context(|| format!("can't write {}", path.display()))?,
            None => print::own(&text)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks a daemon for its reports; `None` if there is no daemon.
fn query_reports(daemon: &DaemonSockets) -> Result<Option<HostReports>, ClientError> {
    let Some(status) = daemon.query_daemon(ControlClient::status)? else { return Ok(None) };
    let guests = unless_refused(daemon.query_daemon(ControlClient::guests))?;
    let balance = unless_refused(daemon.query_daemon(ControlClient::balance))?;
    Ok(Some(HostReports { status, guests, balance }))
}

/// Turns a refusal into `None`: the daemon logs the reason, and its other replies are worth showing.
fn unless_refused<T>(answer: Result<Option<T>, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Err(ClientError::Refused(_)) => Ok(None),
        answer => answer,
    }
}

/// Replaces a file atomically: a reader finds the old text or the new one.
pub(super) fn replace(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Not `.prom`: the collector reads all files of that name.
    let mut file = NamedTempFile::with_prefix_in(".ksmith-", directory)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.persist(path)?;
    Ok(())
}
