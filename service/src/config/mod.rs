//! The configuration file: TOML in which every key has a meaning. A key or value without one is refused, with
//! its line and column. All faults of a file are found at once.

mod document;
mod fault;
mod host_checks;
mod table;
#[cfg(test)]
mod tests;
mod words;

use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ksmith_core::balance::BalanceConfig;
use ksmith_core::contradiction::Contradiction;
use ksmith_core::controller::KeepTerms;
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::decide::{Policy, PolicyConfig, PolicyFileError, PolicyLimits, PruneLimits};
use ksmith_core::field::KernelVersion;
use ksmith_core::figures;
use ksmith_core::guest::{Guest, GuestLabelRule, assign_labels};
use ksmith_core::huge_worth::SplitLosses;
use serde::Deserialize;

pub use self::fault::{ConfigFault, ConfigFaults};
pub use self::table::parse_table;

use self::document::{ConfigDocument, WrittenAmounts};
use crate::folder::FoldConfig;
use crate::notifier::NotifyConfig;
use crate::recorder::{GuestRules, HistoryConfig};
use crate::sketcher::SketchConfig;
use crate::user_socket::{OptinConfig, PassLimit};
use crate::view_socket::ViewConfig;
use ksmith_host::bad_file::{BadFile, read_any_text, read_text};
use ksmith_host::fold::frees_zeros;
use ksmith_host::guests::LibvirtUri;
use ksmith_host::root::Root;

/// Path of the configuration file, unless another is named. A missing file is no error.
pub const DEFAULT_PATH: &str = "/etc/ksmith.toml";

/// The configuration of the daemon.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The policy in charge, with its settings.
    pub policy: PolicyConfig,
    /// Limits that no policy may exceed.
    pub limits: PolicyLimits,
    /// Trust domains: the guests that may share pages.
    pub domains: DomainsConfig,
    /// The daemon itself.
    pub daemon: DaemonConfig,
    /// The settings about guests.
    pub guests: GuestsConfig,
    /// Programs of ordinary users.
    pub optin: OptinConfig,
    /// The read-only socket.
    pub view: ViewConfig,
    /// The balance of memory between guests.
    pub balance: BalanceConfig,
    /// The recorded history and its retention.
    pub history: HistoryConfig,
    /// The sketch file of this host.
    pub sketch: SketchConfig,
    /// The folding of zero pages, and its cost limits.
    pub fold: FoldConfig,
    /// The hold on khugepaged, which puts split huge pages together again, and the loss by splits.
    pub huge_pages: HugePagesConfig,
    /// Notifications of alarms to an operator.
    pub notify: NotifyConfig,
}

/// The table `[huge_pages]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HugePagesConfig {
    /// True to hold khugepaged's `max_ptes_shared` and `max_ptes_none` at 0 once pages merge, and to restore them at
    /// the end; false never to touch them.
    pub keep: bool,
    /// CPU-seconds a second that a program loses by reading 8 MiB, 64 MiB, and 256 MiB or more at random once their huge pages
    /// are split.
    pub split_loss_cpus: SplitLosses,
}

impl Default for HugePagesConfig {
    fn default() -> Self {
        Self { keep: true, split_loss_cpus: SplitLosses::default() }
    }
}

impl HugePagesConfig {
    /// Returns the terms on which khugepaged's settings are held on this host.
    pub fn keep_terms(&self, root: &Root) -> KeepTerms {
        KeepTerms { keep: self.keep, splits_free_zeros: frees_zeros(root) }
    }
}

/// The table `[guests]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GuestsConfig {
    /// The libvirt to ask, on this host: `qemu:///system`.
    pub libvirt_uri: LibvirtUri,
    /// Switch off guests that cost more than they bring, and those with memory that can't merge.
    pub prune: bool,
    /// Full passes over which a guest must have been at a loss.
    pub prune_after_passes: NonZeroU64,
    /// Per cent of the huge pages that merging has split in a guest that it must save while memory is not short. 0: not judged.
    pub prune_split_saves_percent: f64,
    /// Seconds that such a guest stays off before it is tried again; doubles each time.
    pub prune_retry_seconds: u64,
    /// The labels of guests, by rules in their order.
    pub label: Vec<GuestLabelRule>,
}

impl Default for GuestsConfig {
    fn default() -> Self {
        Self {
            libvirt_uri: LibvirtUri::default(),
            prune: false,
            prune_after_passes: NonZeroU64::MIN.saturating_add(9),
            prune_split_saves_percent: 5.0,
            prune_retry_seconds: 6 * 3600,
            label: Vec::new(),
        }
    }
}

impl GuestsConfig {
    /// Returns the limits of pruning; `None` if guests are left alone.
    pub fn prune_limits(&self) -> Option<PruneLimits> {
        self.prune.then(|| PruneLimits {
            after_passes: self.prune_after_passes.get(),
            retry: Duration::from_secs(self.prune_retry_seconds),
            split_saves_percent: self.prune_split_saves_percent,
        })
    }

    /// Returns true if guests are switched off where merging splits huge pages for little.
    pub fn prunes_for_splits(&self) -> bool {
        self.prune && self.prune_split_saves_percent > 0.0
    }

    /// Finds a per cent out of bounds, and labels whose names mean something else already: `ksmith guests --by`, metrics
    /// and JSON could not tell them apart.
    fn contradictions(&self) -> Vec<Contradiction> {
        let key: &[&str] = &["guests", "prune_split_saves_percent"];
        let message = "[guests] prune_split_saves_percent: it must be 0 to 100".to_owned();
        let is_wrong = !(0.0..=100.0).contains(&self.prune_split_saves_percent);
        let out_of_bounds = is_wrong.then(|| Contradiction::new(&[key], message));
        let told = self.label.iter().map(GuestLabelRule::label).filter_map(|name| {
            let meaning = figures::reserved_meaning(name)?;
            let message = format!("[[guests.label]]: {name:?} is {meaning}: choose another label");
            Some(Contradiction::new(&[&["guests", "label"]], message))
        });
        told.chain(out_of_bounds).collect()
    }
}

/// The table `[daemon]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DaemonConfig {
    /// The socket at which `ksmith status` asks a running daemon.
    pub control_socket: PathBuf,
    /// The CPUs that ksmd may use. Without it, any.
    pub ksmd_cpus: Option<KsmdCpus>,
    /// True to merge pages of different NUMA nodes; without it, the host's setting stays.
    pub merge_across_nodes: Option<bool>,
}

/// The CPUs that ksmd may use.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum KsmdCpus {
    /// Those on which no process with mergeable memory may run, at each scan; any if there are none (`auto`).
    Spare,
    /// A list, such as `0-1`.
    Listed(String),
}

impl From<String> for KsmdCpus {
    fn from(text: String) -> Self {
        if text == "auto" { Self::Spare } else { Self::Listed(text) }
    }
}

impl KsmdCpus {
    /// Returns the list, if it is one.
    pub fn listed(&self) -> Option<&str> {
        match self {
            Self::Spare => None,
            Self::Listed(cpus) => Some(cpus),
        }
    }
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self { control_socket: PathBuf::from("/run/ksmith/control"), ksmd_cpus: None, merge_across_nodes: None }
    }
}

const NEEDS_ONE_DOMAIN: &str = "[optin] passes_per_hour: without a limit any member of the group can find out \
    what others have in memory: declare one trust domain ([domains] default, and a rule that gives user = \"*\" \
    the same domain; or mode = \"one\" with admit), or name a number";

/// An error of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is of no use.
    #[error(transparent)]
    File(#[from] BadFile),
    /// The file has faults.
    #[error(transparent)]
    Faults(#[from] ConfigFaults),
    /// Another file than a socket is in the place of the control socket.
    #[error("control_socket = {path:?} names something that is no socket; it is left alone: name another path")]
    Occupied {
        /// The path of that file.
        path: PathBuf,
    },
    /// This kernel lacks what the configuration requires.
    #[error("{0}")]
    Kernel(String),
    /// The policy in charge refuses a file that its settings name.
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
}

/// Returns the path of a host's configuration; the host may be a captured tree.
pub fn path_of(root: &Root) -> PathBuf {
    match root.is_host() {
        true => PathBuf::from(DEFAULT_PATH),
        false => root.path(DEFAULT_PATH.trim_start_matches('/')),
    }
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
        Self::load_of(&Root::host(), named)
    }

    /// Reads the named file, or where none is named that of a host, which may be a captured tree.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_of(root: &Root, named: Option<&Path>) -> Result<Self, ConfigError> {
        let path = &named.map_or_else(|| path_of(root), Path::to_owned);
        match read_text(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(unreadable(path, source)),
        }
    }

    /// Reads what is sound in the configuration of a host, which has faults. Faulty keys have their defaults, and a text
    /// that is no TOML has none but these.
    pub fn load_sound(root: &Root) -> Self {
        let text = read_text(&path_of(root)).unwrap_or_default();
        ConfigDocument::read(&text, &WrittenAmounts::from_text(&text)).0.config
    }

    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// All keys that do not exist, values that their keys do not take, and settings that contradict each other.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let amounts = WrittenAmounts::from_text(text);
        let (document, mut faults) = ConfigDocument::read(text, &amounts);
        faults.extend(document.faults_of(&document.config.contradictions()));
        ConfigFaults::refuse(path, faults)?;
        Ok(document.config)
    }

    /// Reads the text of the file at `path`, and checks that it fits this host: all that the daemon would refuse at its
    /// start, and all names that this host does not have.
    ///
    /// # Errors
    /// All faults that are found, each with its place.
    pub fn check(path: &Path, text: &str, root: &Root) -> Result<Self, ConfigError> {
        let amounts = WrittenAmounts::from_text(text);
        let (document, mut faults) = ConfigDocument::read(text, &amounts);
        let config = &document.config;
        let mut misfits = config.contradictions();
        misfits.extend(config.domains.unknown_domains());
        misfits.extend(host_checks::misfits(config, root));
        if let Err(why) = config.policy() {
            let policy = config.policy.kind.name();
            misfits.push(Contradiction::new(&[&["policy", policy, "file"], &["policy", "kind"]], why.to_string()));
        }
        faults.extend(document.faults_of(&misfits));
        let kernel = config
            .check_kernel(root)
            .err()
            .map(|why| document.faults_of(&[Contradiction::new(&[&["domains", "mode"]], why.to_string())]));
        let kernel = kernel.unwrap_or_default();
        if faults.is_empty() && !kernel.is_empty() {
            return Err(ConfigError::Kernel(ConfigFaults::new(path, kernel).to_string()));
        }
        faults.extend(kernel);
        ConfigFaults::refuse(path, faults)?;
        Ok(document.config)
    }

    /// Sets the domain and the labels of each guest.
    pub fn assign_to(&self, guests: &mut [Guest]) {
        self.domains.assign(guests);
        assign_labels(&self.guests.label, guests);
    }

    /// Returns the rules that the recorder applies to guests.
    pub fn guest_rules(&self) -> GuestRules {
        GuestRules { domains: self.domains.clone(), labels: self.guests.label.clone() }
    }

    /// Finds settings that contradict each other.
    fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let no_list = |cpus: &&str| ksmith_core::kernel::nodes(cpus).is_none();
        if let Some(cpus) = self.daemon.ksmd_cpus.as_ref().and_then(KsmdCpus::listed).filter(no_list) {
            let message = format!("[daemon] ksmd_cpus: {cpus:?} is not a list of CPUs: write it as 0-1,4, or auto");
            found.push(Contradiction::new(&[&["daemon", "ksmd_cpus"]], message));
        }
        if !(0.0..=3600.0).contains(&self.optin.cpu_seconds_per_hour) {
            let message = "[optin] cpu_seconds_per_hour: an hour has 0 to 3600 seconds";
            found.push(Contradiction::new(&[&["optin", "cpu_seconds_per_hour"]], message));
        }
        if self.optin.passes_per_hour == PassLimit::Unlimited && !self.domains.declares_one_domain() {
            found.push(Contradiction::new(&[&["optin", "passes_per_hour"], &["domains"]], NEEDS_ONE_DOMAIN));
        }
        found.extend(self.policy.profit.contradiction());
        found.extend(self.guests.contradictions());
        found.extend(self.domains.contradictions());
        found.extend(self.balance.contradictions());
        found.extend(self.history.contradictions());
        found.extend(self.fold.contradictions());
        found.extend(self.sketch.contradiction());
        found.extend(self.notify.contradiction());
        found
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

    /// Creates the policy in charge.
    ///
    /// # Errors
    /// A file that the policy needs is refused.
    pub fn policy(&self) -> Result<Box<dyn Policy>, ConfigError> {
        Ok(self.policy.policy(&read_any_text)?)
    }
}
