//! The command `ksmith daemon`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use super::{GlobalArgs, control, print};
use crate::show::orders::planned_turn;
use ksmith_core::controller::PolicyController;
use ksmith_core::decide::{POLICIES, PolicyKind};
use ksmith_host::act::{StateDir, are_settings_read_only};
use ksmith_host::live::LiveHost;
use ksmith_host::observe::HostObserver;
use ksmith_host::own_use;
use ksmith_host::signals;
use ksmith_service::daemon::{ConfigSource, Daemon, DaemonMessage, LiveEnvironment, plan};

/// The longest wait of a tick for the end of ksmd's batch, before the tick stops ksmd. A batch takes a fraction of
/// that, unless ksmd waits for a process's memory.
const STOP_PATIENCE: Duration = Duration::from_millis(100);

/// Control KSM until stopped, then restore every setting.
///
/// The policy of the configuration decides. The default, `profit`, starts a scan of new memory at once, parks ksmd when
/// another pass would not pay, and probes from time to time. SIGHUP reads the configuration again; an invalid one is
/// refused and the old one stays. SIGTERM, Ctrl-C and SIGQUIT end the daemon; it ignores SIGUSR1 and SIGUSR2. Merged
/// pages stay merged. Where /sys is read-only, it only watches. While the daemon is stopped or frozen, ksmd sleeps.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Use this policy instead of the configured one
    #[arg(long, value_parser = policies(), value_name = "POLICY")]
    policy: Option<PolicyKind>,
    /// Pause ksmtuned (or oVirt's momd), if it controls KSM, while the daemon runs
    #[arg(long)]
    take_over: bool,
    /// Take one sample, say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep lock and journal in this directory. For the lab, which holds the usual ones itself.
    #[arg(long, hide = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Parses the name of a policy of the registry.
fn policies() -> impl TypedValueParser<Value = PolicyKind> {
    let values = POLICIES.iter().map(|entry| PossibleValue::new(entry.name).help(entry.help));
    PossibleValuesParser::new(values).map(|name| PolicyKind::find(&name).unwrap_or_default())
}

impl DaemonArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let source = ConfigSource { path: global.config.clone(), policy: self.policy };
        let config = source.load()?;
        // Before control is taken, so that a refused configuration pauses no other program.
        config.check_kernel(&control::require(global)?)?;
        let policy = config.policy()?;
        // Before control is taken, so that a signal in between leaves no paused ksmtuned behind.
        own_use::share_heap();
        let signals = signals::catch()?;
        let directory = match &self.state_dir {
            Some(directory) => StateDir::at(directory),
            None => StateDir::from_root(&global.live_root()?),
        };
        let is_read_only = are_settings_read_only(&global.live_root()?);
        if is_read_only {
            tracing::warn!("{}; this daemon watches, and changes nothing", control::READ_ONLY);
        }
        // What could not be controlled is left to the program that does.
        let control = control::take_in(&directory, global, self.dry_run, self.take_over && !is_read_only)?;
        let host = LiveHost::new(HostObserver::new(global.live_root()?), control);
        if self.dry_run {
            let mut controller = PolicyController::new(host, policy, config.limits.clone());
            controller.set_keep_terms(config.huge_pages.keep_terms(&global.live_root()?));
            let tick = controller.tick();
            let (reason, knobs) = plan(&tick);
            if global.json {
                print::json(&planned_turn(&reason, &knobs))?;
                return Ok(ExitCode::SUCCESS);
            }
            match global.verbose {
                0 => print::line(format_args!("{reason}"))?,
                _ => print::line(format_args!("{reason:#}"))?,
            }
            print::line(format_args!(
                "would set: {}",
                if knobs.is_empty() { "nothing".to_owned() } else { knobs.to_string() }
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        // What only the start needs is neither locked nor resident.
        own_use::release_code();
        if let Err(why) = own_use::lock_program() {
            tracing::info!(
                "the program is not locked in RAM ({why}): LimitMEMLOCK=infinity or CAP_IPC_LOCK allows it"
            );
        }
        let mut host = host.with_merge_readings(&directory);
        host.control.writer().set_patience(STOP_PATIENCE);
        let daemon = Daemon::new(host, LiveEnvironment, config, source)?;
        let mut ended = daemon.run(|inbox| signals.forward(inbox, DaemonMessage::Signal))?;
        let lost = ended.lost.take();
        let restored = ended.restore().map(|notes| {
            notes.iter().for_each(|note| tracing::info!("{note}"));
            tracing::info!("all settings restored");
        });
        // Why it ended comes first: what could not be restored follows from it.
        match (lost, restored) {
            (Some(lost), Err(why)) => Err(anyhow::Error::from(why).context(lost)),
            (Some(lost), Ok(())) => Err(lost.into()),
            (None, restored) => Ok(restored.map(|()| ExitCode::SUCCESS)?),
        }
    }
}
