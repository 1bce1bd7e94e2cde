//! The origin of the configuration, and its reload.

use std::path::PathBuf;

use sd_notify::NotifyState;
use tracing::{error, info, warn};

use super::{Daemon, DaemonHost};
use crate::config::{Config, ConfigError};
use ksmith_core::decide::{Policy, PolicyKind};

/// The origin of the configuration, which is read again on SIGHUP.
#[derive(Debug, Clone, Default)]
pub struct ConfigSource {
    /// The file named on the command line.
    pub path: Option<PathBuf>,
    /// The policy named on the command line; it overrides the file's.
    pub policy: Option<PolicyKind>,
}

impl ConfigSource {
    /// Reads the configuration.
    ///
    /// # Errors
    /// It can't be read or is refused.
    pub fn load(&self) -> Result<Config, ConfigError> {
        let mut config = Config::load(self.path.as_deref())?;
        if let Some(policy) = self.policy {
            config.policy.kind = policy;
        }
        Ok(config)
    }
}

impl<H: DaemonHost> Daemon<H> {
    /// Reads the configuration again. A refused one changes nothing.
    pub(super) fn reload(&mut self) {
        self.environment.notify(&[NotifyState::Reloading]);
        match self.load_again() {
            Ok((config, policy)) => self.configure(config, policy),
            Err(error) => {
                let faults = format!("{error:#}");
                error!("the new configuration is refused, the old one stays in force: {faults}");
            }
        }
        self.environment.notify(&[NotifyState::Ready]);
    }

    fn load_again(&self) -> Result<(Config, Box<dyn Policy>), ConfigError> {
        let config = self.source.load()?;
        config.check_kernel(self.controller.host().root())?;
        let policy = config.policy()?;
        Ok((config, policy))
    }

    fn configure(&mut self, config: Config, policy: Box<dyn Policy>) {
        self.budget.configure(config.optin.cpu_seconds_per_hour, config.optin.passes_per_hour);
        let (old, new) = (&self.config.optin, &config.optin);
        if (&new.socket, &new.group, new.worth_permille) != (&old.socket, &old.group, old.worth_permille) {
            warn!("[optin] has changed; its socket, group and worth take effect when the daemon is restarted");
        }
        if config.view != self.config.view {
            warn!("[view] has changed; that takes effect when the daemon is restarted");
        }
        if config.daemon != self.config.daemon {
            warn!("[daemon] has changed; that takes effect when the daemon is restarted");
        }
        if config.history != self.config.history {
            warn!("[history] has changed; that takes effect when the daemon is restarted");
        }
        if config.sketch != self.config.sketch {
            warn!("[sketch] has changed; that takes effect when the daemon is restarted");
        }
        self.alarms.configure(config.notify.profit_after());
        self.breach.0 = None;
        if let Some(notifier) = &mut self.notifier {
            notifier.configure(config.notify.clone());
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.configure(config.domains.clone());
        }
        if let Some(sketcher) = &mut self.sketcher {
            sketcher.configure(config.domains.clone(), config.balance.clone());
        }
        if let Some(folder) = self.folder.as_mut().filter(|_| config.fold != self.config.fold) {
            folder.configure(config.fold.clone());
        }
        if let Some(guests) = &mut self.guests {
            guests.configure(config.guests.clone(), config.domains.is_enforced());
        }
        if let Some(balance) = &self.balance {
            balance.configure(config.balance.clone());
        }
        let limits = config.limits.clone();
        // A policy that is the same keeps its state, unless it depends on a file, which may have changed.
        let is_same = config.policy == self.config.policy && !config.policy.kind.has_file();
        self.guard.configure(config.domains.clone());
        self.config = config;
        self.start_folder();
        match &mut self.scan {
            // A scan in progress keeps its own limits; the new policy takes over after it.
            Some(_) if is_same => {}
            Some(scan) => scan.waiting.replace(policy),
            None if is_same => self.controller.set_limits(limits),
            None => {
                self.controller.replace(policy, limits);
            }
        }
        info!("configuration read again; policy {}", self.config.policy.kind.name());
    }
}
