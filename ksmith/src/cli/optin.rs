//! The command `ksmith optin UNIT`.

use std::process::ExitCode;

use clap::Args;

use super::{CommandFailure, GlobalArgs, print};
use ksmith_host::systemd::{OptInError, ServiceUnit};

/// Make a systemd service's memory mergeable from its next start on.
///
/// Writes a drop-in with MemoryKSM=yes. It needs systemd 256 and Linux 6.7, and refuses older ones: older
/// versions of systemd fail to start the service. For programs outside systemd use `ksmith run`.
#[derive(Debug, Args)]
pub struct OptinArgs {
    /// The service, such as redis or postgresql@15-main.service
    unit: String,
    /// Remove the drop-in
    #[arg(long)]
    remove: bool,
    /// Write it even if it would not work here
    #[arg(long)]
    force: bool,
    /// Say what would be written, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl OptinArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        // A tree given by --root may be an image to be booted, for which writing files suffices.
        let root = global.root();
        let service =
            ServiceUnit::named(&root, &self.unit).map_err(|error| CommandFailure::usage(error.to_string()))?;
        let checked = if self.remove { Ok(()) } else { service.check() };
        let warning = match checked {
            Err(error) if !self.force => return Err(failure(error)),
            Err(error) => Some(error.to_string()),
            Ok(()) => None,
        };
        if let Some(warning) = warning {
            tracing::warn!("{warning}");
        }
        let (path, unit) = (service.drop_in(), &service.unit);
        let has_changed = match (self.dry_run, self.remove) {
            (true, true) => path.exists(),
            (true, false) => std::fs::read_to_string(&path).ok().as_deref() != Some(service.text()),
            (false, true) => service.remove().map_err(failure)?,
            (false, false) => service.opt_in().map_err(failure)?,
        };
        if global.json {
            print::json(&serde_json::json!({
                "unit": unit,
                "drop_in": path,
                "memory_ksm": !self.remove,
                "changed": has_changed,
                "dry_run": self.dry_run,
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let path = path.display();
        match (has_changed, self.dry_run, self.remove) {
            (false, ..) => print::line(format_args!("{unit}: nothing to do"))?,
            (_, true, true) => print::line(format_args!("would remove {path}"))?,
            (_, true, false) => {
                print::line(format_args!("would write {path}:"))?;
                service.text().trim_end().lines().try_for_each(print::line)?;
            }
            (..) => {
                let verb = if self.remove { "removed" } else { "wrote" };
                print::line(format_args!(
                    "{verb} {path}; it takes effect by: systemctl daemon-reload && systemctl restart {unit}"
                ))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn failure(error: OptInError) -> anyhow::Error {
    match error {
        error @ OptInError::File { .. } => error.into(),
        error => CommandFailure::impossible(error.to_string()).into(),
    }
}
