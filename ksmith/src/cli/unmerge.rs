//! The command `ksmith unmerge`.

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ksmith_core::units::Bytes;

use super::progress::TimeLeftEstimator;
use super::{CommandFailure, GlobalArgs, amounts, control, print};
use ksmith_host::act::{UnmergeError, UnmergeOptions, unmerge};
use ksmith_host::signals;

/// Undo all merging: every process gets its own copy of every page, and KSM is switched off.
///
/// Needs as much memory as merging saves now, which is checked first. A child process does the work, because if memory
/// ran out the kernel would first kill the process that does it. Ctrl-C stops it halfway.
#[derive(Debug, Args)]
pub struct UnmergeArgs {
    /// Only check whether memory suffices
    #[arg(long)]
    dry_run: bool,
    /// Unmerge even if memory may not suffice
    #[arg(long)]
    force: bool,
    /// Give up after this long
    #[arg(long, value_name = "TIME", default_value = "600", value_parser = amounts::wait)]
    patience: Duration,
}

impl UnmergeArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let signals = signals::catch()?;
        let mut lasting = control::take_lasting(global, self.dry_run)?;
        let interrupts = signals.listen()?;
        let how = UnmergeOptions { force: self.force, patience: self.patience };
        let shows_progress = print::is_watched();
        let mut pace = TimeLeftEstimator::new();
        let done = unmerge(lasting.writer(), how, |left_pages| {
            if shows_progress {
                print::progress(format_args!("{left_pages} merged pages left{}", pace.left(left_pages)));
            }
            if interrupts.is_empty() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if shows_progress {
            print::end_progress();
        }
        let done = done.map_err(|error| match error {
            UnmergeError::NoHeadroom(_) => anyhow::Error::from(CommandFailure::impossible(error.to_string())),
            error => error.into(),
        })?;
        if global.json {
            let whole = serde_json::json!({
                "dry_run": self.dry_run,
                "run_before": done.run_before,
                "returned_bytes": done.returned_bytes,
            });
            print::json(&whole)?;
        } else if self.dry_run {
            print::line(format_args!(
                "memory suffices: unmerging would need {}",
                Bytes::from(done.returned_bytes)
            ))?;
        } else {
            print::line(format_args!(
                "unmerged; {} went back to the processes, and KSM is off",
                Bytes::from(done.returned_bytes)
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
