//! The configuration file: TOML in which every key has a meaning. A key or value without one is refused, with
//! its line and column.

mod renamed_keys;

use std::fs;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ksmith_core::balance::BalanceConfig;
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::decide::{Limits, Policy, PolicyConfig, PruneLimits};
use ksmith_core::field::KernelVersion;
use ksmith_core::kernel::nodes;
use serde::Deserialize;

use crate::notifier::NotifyConfig;
use crate::recorder::HistoryConfig;
use crate::sketcher::SketchConfig;
use crate::user_socket::{OptinConfig, PassLimit};
use crate::view_socket::ViewConfig;
use ksmith_host::bad_file::BadFile;
use ksmith_host::guests::Uri;
use ksmith_host::root::Root;

/// Where the configuration is looked for when none is named. That it is not there is no error.
pub const DEFAULT_PATH: &str = "/etc/ksmith.toml";

/// Everything an operator may set.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which policy is in charge.
    pub policy: PolicyConfig,
    /// What no policy may exceed.
    pub limits: Limits,
    /// Which guests may share pages.
    pub domains: DomainsConfig,
    /// The daemon itself.
    pub daemon: DaemonConfig,
    /// The settings about guests.
    pub guests: GuestsConfig,
    /// Programs of ordinary users.
    pub optin: OptinConfig,
    /// The read-only socket.
    pub view: ViewConfig,
    /// Which guests give memory, and which get it.
    pub balance: BalanceConfig,
    /// What is recorded, and for how long.
    pub history: HistoryConfig,
    /// The sketch file of this host.
    pub sketch: SketchConfig,
    /// How an operator is told of alarms.
    pub notify: NotifyConfig,
}

/// The table `[guests]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestsConfig {
    /// Which libvirt to ask, on this host: `qemu:///system`.
    pub libvirt_uri: Uri,
    /// Switch off guests that cost more than they bring, and those with memory that can't merge.
    pub prune: bool,
    /// Full passes over which a guest must have been at a loss.
    pub prune_after_passes: NonZeroU64,
    /// How long such a guest stays off before it is tried again; doubles each time.
    pub prune_retry_seconds: u64,
}

impl Default for GuestsConfig {
    fn default() -> Self {
        Self {
            libvirt_uri: Uri::default(),
            prune: false,
            prune_after_passes: NonZeroU64::MIN.saturating_add(9),
            prune_retry_seconds: 6 * 3600,
        }
    }
}

impl GuestsConfig {
    /// What pruning goes by. `None`: guests are left alone.
    pub fn prune_limits(&self) -> Option<PruneLimits> {
        self.prune.then(|| PruneLimits {
            after_passes: self.prune_after_passes.get(),
            retry: Duration::from_secs(self.prune_retry_seconds),
        })
    }
}

/// The table `[daemon]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonConfig {
    /// Where `ksmith status` asks a running daemon.
    pub control_socket: PathBuf,
    /// The CPUs that ksmd may use, such as `0-1`. Without it, any.
    pub ksmd_cpus: Option<String>,
    /// Whether pages of different NUMA nodes are merged. Without it, as the host has it.
    pub merge_across_nodes: Option<bool>,
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self { control_socket: PathBuf::from("/run/ksmith/control"), ksmd_cpus: None, merge_across_nodes: None }
    }
}

const NEEDS_ONE_DOMAIN: &str = "[optin] passes_per_hour: without a limit any member of the group can find out what \
                                others have in memory: declare one trust domain ([domains] default, and a rule that \
                                gives user = \"*\" the same domain; or mode = \"one\" with admit), or name a number";

/// Why there is no configuration to go by.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is of no use.
    #[error(transparent)]
    File(#[from] BadFile),
    /// Something else than a socket is where the control socket should be.
    #[error("control_socket = {path:?} names something that is no socket; it is left alone: name another path")]
    Occupied {
        /// What is there.
        path: PathBuf,
    },
    /// This kernel can't do what the configuration promises.
    #[error("{0}")]
    Kernel(String),
    /// The policy in charge refuses a file that its settings name.
    #[error("{0}")]
    Policy(String),
}

fn unreadable(path: &Path, source: io::Error) -> ConfigError {
    BadFile::Unreadable { what: "configuration", path: path.to_owned(), source }.into()
}

impl Config {
    /// Reads the named file, or where none is named the default one if it is there.
    ///
    /// # Errors
    /// The file can't be read or is refused.
    pub fn load(named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = named.unwrap_or(Path::new(DEFAULT_PATH));
        match fs::read_to_string(path) {
            Ok(text) => {
                for warning in renamed_keys::warnings(&text) {
                    tracing::warn!("{}: {warning}", path.display());
                }
                Self::parse(path, &text)
            }
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(unreadable(path, source)),
        }
    }

    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// A key that does not exist, or a value that its key does not take.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let meaningless =
            |message: String| ConfigError::from(BadFile::Meaningless { path: path.to_owned(), message });
        let config: Self =
            toml::from_str(text).map_err(|error| meaningless(error.to_string().trim_end().to_owned()))?;
        let no_list = |cpus: &&String| nodes(cpus).is_none();
        if let Some(cpus) = config.daemon.ksmd_cpus.as_ref().filter(no_list) {
            return Err(meaningless(format!("[daemon] ksmd_cpus: {cpus:?} is no list of CPUs: write it as 0-1,4")));
        }
        if !(0.0..=3600.0).contains(&config.optin.cpu_seconds_per_hour) {
            return Err(meaningless("[optin] cpu_seconds_per_hour: an hour has 0 to 3600 seconds".to_owned()));
        }
        if config.optin.passes_per_hour == PassLimit::Unlimited && !config.domains.declares_one_domain() {
            return Err(meaningless(NEEDS_ONE_DOMAIN.to_owned()));
        }
        let profit = &config.policy.profit;
        if profit.pressed_price_mib_per_cpu_second > profit.price_mib_per_cpu_second {
            return Err(meaningless(
                "[policy.profit] pressed_price_mib_per_cpu_second is over price_mib_per_cpu_second: ksmd would scan less \
                 while memory is short; name a price that is not over the other"
                    .to_owned(),
            ));
        }
        config
            .domains
            .fault()
            .or_else(|| config.balance.fault())
            .or_else(|| config.history.fault())
            .or_else(|| config.sketch.fault())
            .or_else(|| config.notify.fault())
            .map_or(Ok(config), |fault| Err(meaningless(fault)))
    }

    /// Refuses what the kernel of this host can't do.
    ///
    /// # Errors
    /// Domains are to be kept apart, and this kernel merges a new guest's pages before that guest can be looked at.
    pub fn check_kernel(&self, root: &Root) -> Result<(), ConfigError> {
        let release = root.text("proc/sys/kernel/osrelease");
        let kernel = release.value().and_then(|text| KernelVersion::parse(text));
        self.domains.refused_on(kernel).map_or(Ok(()), |why| Err(ConfigError::Kernel(why)))
    }

    /// What the configuration names and this host does not have: CPUs and NUMA nodes. A host that does not show which it
    /// has refuses none.
    pub fn missing_on(&self, root: &Root) -> Vec<String> {
        let listed = |file: &str| root.text(file).value().and_then(|text| nodes(text.trim()));
        let mut missing = Vec::new();
        let cpus = listed("sys/devices/system/cpu/present");
        if let (Some(here), Some(wanted)) = (cpus, self.daemon.ksmd_cpus.as_deref().and_then(nodes)) {
            let lacking =
                wanted.difference(&here).map(|cpu| format!("[daemon] ksmd_cpus: there is no CPU {cpu} here"));
            missing.extend(lacking);
        }
        if let Some(here) = listed("sys/devices/system/node/online") {
            let lacking = self.domains.nodes.iter().filter(|(_, node)| !here.contains(node));
            missing.extend(lacking.map(|(domain, node)| {
                format!("[domains] nodes: {domain} = {node}: there is no NUMA node {node} here")
            }));
        }
        missing
    }

    /// The policy in charge, ready to decide.
    ///
    /// # Errors
    /// A file that the policy needs is refused.
    pub fn policy(&self) -> Result<Box<dyn Policy>, ConfigError> {
        self.policy.policy(&|path| fs::read_to_string(path)).map_err(ConfigError::Policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("ksmith.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_file_means_the_defaults() {
        assert_eq!(parse("").unwrap(), Config::default());
        assert_eq!(Config::default().policy().unwrap().name(), "profit");
    }

    #[test]
    fn every_mistake_is_refused_with_line_and_column() {
        for (text, place, why) in [
            ("polcy = 1", "line 1, column 1", "unknown field `polcy`"),
            ("[policy]\nkind = \"best\"", "line 2, column 8", "unknown variant `best`"),
            ("[policy]\nkind = 3", "line 2, column 8", "invalid type: integer"),
            ("[policy.profit]\nprice = 1", "line 2, column 1", "unknown field `price`"),
            ("[policy.profit]\nbusy_cpu_percent = 0", "line 2, column 20", "must be over 0 and at most 100"),
            ("[policy.profit]\ngrowth_mib = \"4\"", "line 2, column 14", "invalid type: string"),
            ("[limits]\nmax_cpu = \"120%\"", "line 2, column 11", "is not a percentage"),
            ("[limits]\nmax_pages_to_scan = -1", "line 2, column 21", "invalid value: integer `-1`"),
            ("[policy.fixed]\nsettings = { pages_shared = 1 }", "line 2, column 12", "pages_shared"),
            ("[daemon]\ncontrol_socket = \"/a\"\ncontrol_socket = \"/b\"", "line 3, column 1", "duplicate key"),
            ("[limits\nmax_cpu = \"20%\"", "line 1, column 8", "unclosed table"),
            ("[policy.score]\nsharing_pages_per_point = 0", "line 2, column 27", "nonzero"),
            ("[policy.advisor]\nmax_cpu_percent = 101", "line 2, column 19", "a number from 0 to 100"),
            ("[guests]\nlibvirt_uri = \"qemu+ssh://other/system\"", "line 2, column 15", "no libvirt URI"),
            ("[balance]\npolicy = \"swap\"", "line 2, column 10", "unknown variant `swap`"),
            ("[balance]\nlow_percent = 0", "line 2, column 15", "must be over 0 and at most 100"),
            ("[balance.squeeze]\nrest = 1", "line 2, column 1", "unknown field `rest`"),
            ("[[balance.rule]]\nclass = \"gold\"", "line 1, column 1", "names a guest"),
            ("[policy.fixed]\npreset = \"slow\"", "line 2, column 10", "there is no preset \"slow\""),
            ("[view]\nport = 9797", "line 2, column 1", "unknown field `port`"),
            ("[optin]\npasses_per_hour = 0", "line 2, column 19", "over 0, or \"unlimited\""),
            ("[optin]\npasses_per_hour = \"many\"", "line 2, column 19", "over 0, or \"unlimited\""),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("ksmith.toml: "), "{error}");
            assert!(error.contains(place) && error.contains(why), "{text:?} gave {error}");
        }
    }

    #[test]
    fn each_kind_is_the_policy_of_that_name() {
        for kind in ["fixed", "ksmtuned", "score", "advisor", "profit"] {
            let file = "[policy.ksmtuned]\nfile = \"/nonexistent/ksmtuned.conf\"";
            let config = parse(&format!("[policy]\nkind = \"{kind}\"\n{file}")).unwrap();
            assert_eq!((config.policy().unwrap().name(), config.policy.kind.name()), (kind, kind));
        }
    }

    #[test]
    fn the_packaged_file_says_the_defaults() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/ksmith.toml");
        assert_eq!(Config::load(Some(&path)).unwrap(), Config::default());
    }

    #[test]
    fn numbers_may_be_written_as_people_write_them() {
        let config = parse("[policy.profit]\ngrowth_mib = 16\n[limits]\nmax_cpu = \"20 %\"").unwrap();
        assert_eq!(config.policy.profit.growth_mib, 16.0);
        assert_eq!(config.limits.max_cpu.part(), 0.2);
    }

    #[test]
    fn passes_are_unlimited_only_in_one_declared_trust_domain() {
        let unlimited = "\n[optin]\npasses_per_hour = \"unlimited\"";
        for (domains, is_one) in [
            ("", false),
            // Programs of other users than these guests' are in no domain.
            ("[domains]\ndefault = \"node\"", false),
            ("[[domains.rule]]\ndomain = \"node\"\nuser = \"*\"", false),
            ("[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"node\"\nuser = \"*\"", true),
            ("[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"a\"\nuser = \"*\"", false),
            ("[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"node\"\nuser = \"a*\"", false),
            (
                "[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"node\"\nuser = \"*\"\ncgroup = \"/a/*\"",
                false,
            ),
            (
                "[domains]\ndefault = \"node\"\n[[domains.rule]]\ndomain = \"a\"\nname = \"a-*\"\n\
                 [[domains.rule]]\ndomain = \"node\"\nuser = \"*\"",
                false,
            ),
            ("[domains]\nmode = \"one\"", false),
            ("[domains]\nmode = \"one\"\nadmit = \"a\"", true),
            ("[domains]\nmode = \"one\"\nadmit = \"a\"\nunswitchable = \"allow\"", false),
        ] {
            let read = parse(&format!("{domains}{unlimited}"));
            assert_eq!(read.is_ok(), is_one, "{domains}: {read:?}");
            if let Err(error) = read {
                assert!(error.contains("declare one trust domain"), "{error}");
            }
        }
        assert_eq!(parse("[optin]\npasses_per_hour = 6").unwrap().optin.passes_per_hour.number(), Some(6));
    }

    #[test]
    fn guests_are_pruned_only_when_told_to() {
        assert_eq!(Config::default().guests.prune_limits(), None);
        let config = parse("[guests]\nprune = true\nprune_after_passes = 2\nprune_retry_seconds = 60").unwrap();
        let limits = config.guests.prune_limits().unwrap();
        assert_eq!((limits.after_passes, limits.retry.as_secs()), (2, 60));
        assert!(parse("[guests]\nprune_after_passes = 0").is_err());
    }

    #[test]
    fn a_file_that_is_named_must_be_there() {
        let error = Config::load(Some(Path::new("/nonexistent/ksmith.toml"))).unwrap_err();
        assert!(error.to_string().starts_with("can't read the configuration /nonexistent/ksmith.toml"));
    }
}
