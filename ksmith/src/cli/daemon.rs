//! `ksmith daemon`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{Global, control, print};
use crate::act::StateDir;
use crate::config::PolicyKind;
use crate::controller::Controller;
use crate::daemon::{ConfigSource, Daemon, plan};
use crate::live::LiveHost;
use crate::observe::Observer;
use crate::signals;

/// Control KSM until stopped, then put every setting back.
///
/// The policy of the configuration decides; `profit`, the default, sends ksmd over new memory at once, parks it
/// when another pass would not pay, and looks again now and then. SIGHUP reads the configuration again (one with
/// a mistake is refused and the old one stays); SIGTERM and Ctrl-C end it. What is merged stays merged.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Use this policy instead of the configured one
    #[arg(long, value_enum, value_name = "POLICY")]
    policy: Option<PolicyKind>,
    /// Pause ksmtuned (or oVirt's momd), if it controls KSM, as long as the daemon runs
    #[arg(long)]
    take_over: bool,
    /// Look once, say what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep lock and journal here. For the lab, which holds the usual ones: nobody else is locked out.
    #[arg(long, hide = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

impl DaemonArgs {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let source = ConfigSource { path: global.config.clone(), policy: self.policy };
        let config = source.load()?;
        // Before control is taken: a configuration that is refused must not pause anybody.
        let policy = config.policy()?;
        // Before control is taken too: an end in between would leave a paused ksmtuned behind.
        let signals = signals::catch()?;
        let directory = match &self.state_dir {
            Some(directory) => StateDir::at(directory),
            None => StateDir::of(&global.live_root()?),
        };
        let control = control::take_in(&directory, global, self.dry_run, self.take_over)?;
        let host = LiveHost::new(Observer::new(global.live_root()?), control);
        if self.dry_run {
            let tick = Controller::new(host, policy, config.limits.clone()).tick();
            let (reason, knobs) = plan(&tick);
            print::line(format_args!("{reason}"))?;
            print::line(format_args!(
                "would set: {}",
                if knobs.is_empty() { "nothing".to_owned() } else { knobs.to_string() }
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        for note in Daemon::new(host, config, source)?.run(signals)?.restore()? {
            tracing::info!("{note}");
        }
        tracing::info!("all settings restored");
        Ok(ExitCode::SUCCESS)
    }
}
