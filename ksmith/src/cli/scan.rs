//! The command `ksmith scan`.

use std::cell::Cell;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use crossbeam_channel::Receiver;
use ksmith_core::account::HostTotals;
use ksmith_core::decide::{CpuShare, OnDemandPolicy, PolicyLimits};
use ksmith_core::sample::Sample;
use ksmith_core::scan::ScanJob;
use ksmith_core::units::{Bytes, TimeSpan};

use super::progress::{TickingProgress, TimeLeftEstimator, pages_left};
use super::{CommandFailure, GlobalArgs, control, print};
use crate::show::orders::PlannedScan;
use ksmith_core::controller::{KeepTerms, PolicyController};
use ksmith_host::act::StateDir;
use ksmith_host::doctor::huge_page_circumstances;
use ksmith_host::live::LiveHost;
use ksmith_host::merge_reader::DirectMergeReader;
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_host::signals::{self, Signal};
use ksmith_service::config::Config;
use ksmith_service::control::{
    ClientError, ControlClient, NOTHING_TO_SCAN, ScanFigures, nothing_to_scan, scan_limits,
};

/// Scan all mergeable memory now, wait for the end, report the savings, and restore the settings.
///
/// Every page is visited in each pass, even those that smart_scan would skip. After two passes all stable equal pages
/// are merged. If a daemon runs, it makes the scan.
#[derive(Debug, Args)]
pub struct ScanArgs {
    /// Number of passes
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1000))]
    passes: u64,
    /// CPU limit of ksmd, such as 50%; a lower limit of the configuration wins
    #[arg(long, value_name = "PERCENT", default_value = "100%", value_parser = |text: &str| CpuShare::try_from(text.to_owned()))]
    max_cpu: CpuShare,
    /// Pause ksmtuned, if it controls KSM, during the scan; with a running daemon this has no effect
    #[arg(long)]
    take_over: bool,
    /// Say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl ScanArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = control::require(global)?;
        let config = global.load_config()?;
        let limits = scan_limits(&config.limits, self.max_cpu);
        if self.dry_run {
            return self.plan(global, root, &config, limits);
        }
        let started = Instant::now();
        let (before, after) = match ControlClient::connect(&config.daemon.control_socket) {
            Ok(mut client) => {
                if self.take_over {
                    tracing::warn!(
                        "--take-over has no effect here: a running ksmith controls KSM, and makes the scan"
                    );
                }
                let _progress = progress_of_daemon(&config, self.passes);
                let answer = client.scan(self.passes, self.max_cpu).map_err(|error| match error {
                    ClientError::Refused(why) if why == NOTHING_TO_SCAN => CommandFailure::impossible(why).into(),
                    error => anyhow::Error::from(error),
                })?;
                (answer.before, answer.after)
            }
            Err(error) if error.is_absent() && config.domains.needs_a_guard() => {
                return Err(CommandFailure::impossible(NEEDS_A_GUARD).into());
            }
            Err(error) if error.is_absent() => {
                let interrupts = signals::catch()?.listen()?;
                let mut host =
                    LiveHost::new(HostObserver::new(root), control::take_control(global, false, self.take_over)?);
                let shows = print::is_watched();
                let (mut pace, has_shown) = (TimeLeftEstimator::new(), Cell::new(false));
                let progress = |text: &str, first: &Sample, now: &Sample| {
                    if shows {
                        let left = pages_left(first, now, self.passes).map(|left| pace.left(left).to_string());
                        print::progress(format_args!("{text}{}", left.unwrap_or_default()));
                        has_shown.set(true);
                    }
                };
                let keep = config.huge_pages.keep_terms(&Root::host());
                let done = scan_directly(&mut host, self.passes, limits, keep, &interrupts, progress);
                if has_shown.get() {
                    print::end_progress();
                }
                let (before, after) = done?;
                host.control.restore()?;
                if huge_page_circumstances(&Root::host(), keep.keep).khugepaged && is_undone(&before, &after) {
                    tracing::warn!(
                        "khugepaged may undo merges in memory with huge pages: `ksmith daemon` holds max_ptes_shared and \
                         max_ptes_none at 0 while it is in control"
                    );
                }
                (ScanFigures::from_sample(&before), ScanFigures::from_sample(&after))
            }
            Err(error) => return Err(error.into()),
        };
        self.report(global, &before, &after, started)
    }

    /// Prints the program that would scan, and the first settings that it would change.
    fn plan(
        &self,
        global: &GlobalArgs,
        root: Root,
        config: &Config,
        limits: PolicyLimits,
    ) -> anyhow::Result<ExitCode> {
        let (by, changes) = match ControlClient::connect(&config.daemon.control_socket) {
            Ok(_) => ("the daemon", Vec::new()),
            Err(error) if error.is_absent() && config.domains.needs_a_guard() => {
                return Err(CommandFailure::impossible(NEEDS_A_GUARD).into());
            }
            Err(error) if error.is_absent() => {
                let host =
                    LiveHost::new(HostObserver::new(root), control::take_control(global, true, self.take_over)?);
                let job = ScanJob::all_pages(self.passes);
                let mut controller = PolicyController::new(host, Box::new(OnDemandPolicy::new(job)), limits);
                controller.set_keep_terms(config.huge_pages.keep_terms(&Root::host()));
                let tick = controller.tick();
                if tick.sample.shows_mergeable && nothing_to_scan(&tick.sample) {
                    return Err(CommandFailure::impossible(NOTHING_TO_SCAN).into());
                }
                ("this command", tick.applied.changes.iter().map(ToString::to_string).collect())
            }
            Err(error) => return Err(error.into()),
        };
        if global.json {
            print::json(&PlannedScan { dry_run: true, passes: self.passes, by, changes })?;
            return Ok(ExitCode::SUCCESS);
        }
        print::line(format_args!("would scan all mergeable memory {} times, by {by}", self.passes))?;
        for change in changes {
            print::line(format_args!("would change {change}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn report(
        &self,
        global: &GlobalArgs,
        before: &ScanFigures,
        after: &ScanFigures,
        started: Instant,
    ) -> anyhow::Result<ExitCode> {
        let newly = i128::from(after.saved_bytes) - i128::from(before.saved_bytes);
        let cpu = after.ksmd_cpu_seconds - before.ksmd_cpu_seconds;
        let seconds = started.elapsed();
        if global.json {
            let whole = serde_json::json!({
                "passes": self.passes,
                "saved_bytes_before": before.saved_bytes,
                "saved_bytes": after.saved_bytes,
                "profit_bytes": after.profit_bytes,
                "ksmd_cpu_seconds": cpu,
                "seconds": seconds.as_secs_f64(),
            });
            print::json(&whole)?;
        } else {
            print::line(format_args!(
                "{} passes in {}: {} newly saved, {} in all (profit {}), for {cpu:.2} s of ksmd's CPU; settings restored",
                self.passes,
                TimeSpan(seconds),
                Bytes(newly),
                Bytes::from(after.saved_bytes),
                Bytes::from(after.profit_bytes),
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Shows the progress of a scan by the daemon.
fn progress_of_daemon(config: &Config, passes: u64) -> TickingProgress {
    let (socket, mut first, mut pace) = (config.daemon.control_socket.clone(), None, TimeLeftEstimator::new());
    TickingProgress::start(move || {
        let status = ControlClient::connect(&socket).ok()?.status().ok()?;
        let first = first.get_or_insert_with(|| status.sample.clone());
        let left = pages_left(first, &status.sample, passes).map(|left| pace.left(left).to_string());
        Some(format!("{}{}", status.daemon?.reason, left.unwrap_or_default()))
    })
}

/// The refusal of a scan without the daemon where `[domains]` is configured.
pub(super) const NEEDS_A_GUARD: &str = "[domains] limits which guests may merge, and how often: only the daemon keeps \
                                        them; start `ksmith daemon`, and scan again";

/// Returns true if khugepaged, once its settings are as `before`, undoes what a scan has merged in memory with huge pages.
fn is_undone(before: &Sample, after: &Sample) -> bool {
    let limits = [&before.ksm.max_ptes_shared, &before.ksm.max_ptes_none];
    let are_zero = limits.into_iter().all(|limit| limit.get().unwrap_or(0) == 0);
    // Where no page tables could be read there may be huge pages.
    let has_huge = |sample: &Sample| HostTotals::from_sample(sample).huge_bytes != Some(0);
    !are_zero && HostTotals::from_sample(after).saved_bytes > 0 && (has_huge(before) || has_huge(after))
}

/// Makes clean passes without a daemon, until they are done or `interrupts` has a signal. Returns the samples before and after
/// them. Dropping the host's control restores the settings.
pub(super) fn scan_directly(
    host: &mut LiveHost,
    passes: u64,
    limits: PolicyLimits,
    keep: KeepTerms,
    interrupts: &Receiver<Signal>,
    mut progress: impl FnMut(&str, &Sample, &Sample),
) -> anyhow::Result<(Sample, Sample)> {
    let mut reader = DirectMergeReader::new(&StateDir::from_root(host.control.root()));
    let before = host.sample_by_page_tables(&mut reader);
    let mut controller =
        PolicyController::new(&mut *host, Box::new(OnDemandPolicy::new(ScanJob::all_pages(passes))), limits);
    controller.set_keep_terms(keep);
    loop {
        let tick = controller.tick();
        if let Some(error) = tick.applied.errors.first() {
            return Err(anyhow::anyhow!("{error}; the settings are being restored"));
        }
        let is_stalled = tick.decision.reason.state == OnDemandPolicy::STALLED;
        if is_stalled || tick.sample.shows_mergeable && nothing_to_scan(&tick.sample) {
            return Err(CommandFailure::impossible(NOTHING_TO_SCAN).into());
        }
        if tick.decision.reason.state == OnDemandPolicy::DONE {
            break;
        }
        progress(&tick.decision.reason.text, &before, &tick.sample);
        if interrupts.recv_timeout(tick.decision.check_after).is_ok() {
            return Err(anyhow::anyhow!("interrupted; the settings are being restored"));
        }
    }
    drop(controller);
    // Before khugepaged's settings are restored.
    Ok((before, host.sample_by_page_tables(&mut reader)))
}

#[cfg(test)]
mod tests {
    use ksmith_core::kernel::KsmStat;
    use ksmith_core::reading::Reading;
    use ksmith_core::sample::{MergeReading, ProcessId, ProcessSample};

    use super::*;

    #[test]
    fn khugepaged_undoes_what_is_merged_beside_huge_pages_unless_its_limits_are_0() {
        let sample = |huge_bytes: Option<u64>, saved_pages| {
            let reading = |huge_bytes| MergeReading {
                counted_pages: 2 * saved_pages,
                merged_pages: 2 * saved_pages,
                saved_pages,
                huge_bytes,
                ..MergeReading::default()
            };
            let process = ProcessSample {
                ksm: KsmStat { merging_pages: Some(2 * saved_pages), ..KsmStat::default() },
                merge_reading: huge_bytes.map(reading),
                ..ProcessSample::new(ProcessId { pid: 1, start_ticks: 1 }, "guest".into(), true)
            };
            let mut sample = Sample { page_size: 4096, processes: vec![process], ..Sample::default() };
            sample.ksm.pages_shared = Reading::Value(saved_pages);
            sample.ksm.pages_sharing = Reading::Value(saved_pages);
            sample.ksm.max_ptes_shared = Reading::Value(256);
            sample.ksm.max_ptes_none = Reading::Value(0);
            sample
        };
        let huge = Some(2 << 20);
        assert!(is_undone(&sample(huge, 0), &sample(Some(0), 9)), "all huge pages were split");
        assert!(is_undone(&sample(None, 0), &sample(None, 9)), "nothing could be read");
        assert!(!is_undone(&sample(Some(0), 0), &sample(Some(0), 9)));
        assert!(!is_undone(&sample(huge, 0), &sample(huge, 0)), "nothing is merged");
        let mut held = sample(huge, 0);
        held.ksm.max_ptes_shared = Reading::Value(0);
        assert!(!is_undone(&held, &sample(huge, 9)));
    }
}
