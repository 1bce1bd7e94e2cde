//! The origin of the configuration, and its reload.

use std::path::PathBuf;

use sd_notify::NotifyState;
use tracing::{error, info, warn};

use super::{Daemon, DaemonHost};
use crate::config::{Config, ConfigError};
use crate::user_socket::OptinConfig;
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

    /// Hands each table that has changed to its owners, and logs the ones that need a restart.
    fn configure(&mut self, config: Config, policy: Box<dyn Policy>) {
        let old = std::mem::replace(&mut self.config, config);
        // These patterns have no `..`: a table, or a key of [optin], that is not handled here does not compile.
        let Config {
            policy: policies,
            limits,
            domains,
            daemon,
            guests,
            optin,
            view,
            balance,
            history,
            sketch,
            fold,
            huge_pages,
            notify,
        } = self.config.clone();
        let OptinConfig { socket, group, cpu_seconds_per_hour, passes_per_hour, max_cpu, worth_permille } = optin;

        let needs_restart = [
            ("daemon", daemon != old.daemon),
            ("view", view != old.view),
            ("history", history != old.history),
            ("sketch", sketch != old.sketch),
        ];
        for (table, _) in needs_restart.into_iter().filter(|(_, is_changed)| *is_changed) {
            warn!("[{table}] has changed; that takes effect when the daemon is restarted");
        }
        if (socket, group, worth_permille) != (old.optin.socket, old.optin.group, old.optin.worth_permille) {
            warn!("[optin] has changed; its socket, group and worth take effect when the daemon is restarted");
        }

        let mut applied = Vec::new();
        let mut apply = |table: &str, is_changed: bool| {
            applied.extend(is_changed.then(|| format!("[{table}]")));
            is_changed
        };
        let has_new_policy = apply("policy", policies != old.policy);
        apply("limits", limits != old.limits);
        let has_new_domains = apply("domains", domains != old.domains);
        let has_new_balance = apply("balance", balance != old.balance);
        let has_new_guests = apply("guests", guests != old.guests);
        // The next scan for users reads `max_cpu`.
        let user_budget = (cpu_seconds_per_hour, passes_per_hour, max_cpu);
        if apply(
            "optin",
            user_budget != (old.optin.cpu_seconds_per_hour, old.optin.passes_per_hour, old.optin.max_cpu),
        ) {
            self.budget.configure(cpu_seconds_per_hour, passes_per_hour);
        }
        if apply("notify", notify != old.notify) {
            self.alarms.configure(notify.profit_after());
            if let Some(notifier) = &mut self.notifier {
                notifier.configure(notify);
            }
        }
        if apply("huge_pages", huge_pages != old.huge_pages) {
            let terms = huge_pages.keep_terms(self.controller.host().root());
            self.controller.set_keep_terms(terms);
            self.controller.host_mut().set_split_losses(huge_pages.split_loss_cpus);
        }
        let has_new_fold = fold != old.fold;
        let is_busy = self.folder.as_mut().filter(|_| has_new_fold).is_some_and(|folder| !folder.configure(fold));
        if is_busy {
            // The next reload tries again.
            self.config.fold = old.fold;
        }
        apply("fold", has_new_fold && !is_busy);
        self.start_folder();
        if let Some(registry) = self.guests.as_mut().filter(|_| has_new_guests || has_new_domains) {
            registry.configure(guests, domains.is_enforced());
        }
        if let Some(recorder) = self.recorder.as_mut().filter(|_| has_new_guests || has_new_domains) {
            recorder.configure(self.config.guest_rules());
        }
        // In any case: the fleet's secret may have changed.
        if let Some(sketcher) = &mut self.sketcher {
            sketcher.configure(domains.clone(), balance.clone());
        }
        if has_new_domains {
            self.guard.configure(domains);
            self.breach.0 = None;
        }
        if let Some(service) = self.balance.as_ref().filter(|_| has_new_balance) {
            service.configure(balance);
        }
        // A policy that depends on a file is replaced in any case: the file may have changed.
        let is_same_policy = !has_new_policy && !policies.kind.has_file();
        match &mut self.scan {
            // A scan in progress keeps its own limits; the new policy takes over after it.
            Some(_) if is_same_policy => {}
            Some(scan) => scan.waiting.replace(policy),
            None if is_same_policy => self.controller.set_limits(limits),
            None => {
                if let Some(policy) = self.replace_paused(policy) {
                    drop(self.controller.replace(policy, limits));
                }
            }
        }
        let applied = if applied.is_empty() { "nothing".to_owned() } else { applied.join(", ") };
        info!("configuration read again; policy {}; applied: {applied}", policies.kind.name());
    }
}
