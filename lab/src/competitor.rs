//! The competitors of a run: each policy with its default settings, other controllers, and no controller.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use ksmith_core::decide::{POLICIES, PolicyLimits};

/// A controller of KSM for one run, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Competitor {
    /// The name on the command line.
    pub name: String,
    /// The way in which the competitor controls KSM.
    pub kind: CompetitorKind,
}

/// The ways in which a competitor controls KSM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompetitorKind {
    /// No controller: ksmd stays off, which shows what the guests do without KSM.
    Off,
    /// Runs `ksmith daemon` with this `[policy]` table.
    Daemon {
        /// The text of the table, its heading included.
        policy: String,
    },
    /// Runs `ksmith daemon` with a given configuration file.
    Configured {
        /// Path of the configuration file.
        file: PathBuf,
    },
    /// Runs the distribution's ksmtuned script.
    Ksmtuned {
        /// Path of the script.
        script: PathBuf,
        /// True if the script's thresholds make it always find memory short.
        is_eager: bool,
    },
}

/// Name of the reference, which visits every page all the time. Savings are compared with its savings.
pub const REFERENCE: &str = "reference";
/// Name of the competitor without KSM. Its guests lose no CPU to merging.
pub const NO_KSM: &str = "none";

/// The names of all competitors: those of the policies' registry, the ksmtuned script and none.
pub fn names() -> impl Iterator<Item = &'static str> {
    let of_policies = POLICIES.iter().flat_map(|entry| entry.competitors).map(|(name, _)| *name);
    of_policies.chain(["script:ksmtuned", "script:ksmtuned-eager", NO_KSM])
}

/// An error of looking up a competitor by its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownCompetitor {
    /// No competitor has this name.
    #[error("there is no competitor {0:?}; there are: {known}, config:FILE", known = names().collect::<Vec<_>>().join(", "))]
    Name(String),
    /// The competitor is not installed on this host.
    #[error("the ksmtuned script is not here (Debian: package ksmtuned; or name it in KSMTUNED)")]
    NoScript,
}

impl Competitor {
    /// Returns the competitor of this name.
    ///
    /// # Errors
    /// No competitor has this name, or it is not installed.
    pub fn parse(name: &str) -> Result<Self, UnknownCompetitor> {
        let unknown = || UnknownCompetitor::Name(name.chars().take(60).collect());
        let script = |is_eager| match ksmtuned() {
            Some(script) => Ok(CompetitorKind::Ksmtuned { script, is_eager }),
            None => Err(UnknownCompetitor::NoScript),
        };
        let kind = match (name, name.split_once(':')) {
            (NO_KSM, _) => CompetitorKind::Off,
            ("script:ksmtuned", _) => script(false)?,
            ("script:ksmtuned-eager", _) => script(true)?,
            (_, Some(("config", file))) if !file.is_empty() => {
                CompetitorKind::Configured { file: PathBuf::from(file) }
            }
            _ => CompetitorKind::Daemon { policy: policy_table(name).ok_or_else(unknown)? },
        };
        Ok(Self { name: name.to_owned(), kind })
    }

    /// The competitors that are available here.
    pub fn defaults() -> Vec<Self> {
        names().filter_map(|name| Self::parse(name).ok()).collect()
    }

    /// The name with only characters that a file name may hold.
    pub(super) fn file_name(&self) -> String {
        self.name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
    }
}

impl fmt::Display for Competitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// The `[policy]` table of a competitor of the registry. `None` if there is none of that name.
fn policy_table(name: &str) -> Option<String> {
    POLICIES.iter().find_map(|entry| {
        let (_, settings) = entry.competitors.iter().find(|(competitor, _)| *competitor == name)?;
        let kind = entry.name;
        Some(format!("[policy]\nkind = \"{kind}\"\n[policy.{kind}]\n{settings}\n"))
    })
}

/// The `[limits]` table of a configuration file.
pub(super) fn limits_table(limits: &PolicyLimits) -> String {
    format!(
        "[limits]\nmax_cpu = \"{}%\"\nmax_pages_to_scan = {}\nmin_sleep_milliseconds = {}\n",
        limits.max_cpu.part() * 100.0,
        limits.max_pages_to_scan,
        limits.min_sleep_milliseconds
    )
}

/// The script: the one that `KSMTUNED` names, an installed one, or the one that `make test` has unpacked.
fn ksmtuned() -> Option<PathBuf> {
    let named = env::var_os("KSMTUNED").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = env::split_paths(&path).collect();
    places.extend(["/usr/sbin", "target/peers/usr/sbin"].map(PathBuf::from));
    let installed = places.into_iter().map(|place| place.join("ksmtuned"));
    named.into_iter().chain(installed).find(|path| Path::new(path).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ksmith_service::config::Config;

    #[test]
    fn every_policy_of_a_competitor_is_a_configuration() {
        for name in names() {
            let Ok(competitor) = Competitor::parse(name) else {
                assert!(name.starts_with("script:"), "{name}");
                continue;
            };
            if let CompetitorKind::Daemon { policy } = competitor.kind {
                let limits = PolicyLimits { max_pages_to_scan: 7, ..PolicyLimits::default() };
                let text = format!("{policy}{}", limits_table(&limits));
                let config = Config::parse(Path::new("lab.toml"), &text).unwrap();
                assert_eq!(config.limits, limits);
                let kind = name.split(':').next().unwrap().replace(REFERENCE, "scan");
                assert_eq!(config.policy.kind.name(), kind);
            }
        }
    }

    #[test]
    fn an_unknown_competitor_is_refused_with_the_list() {
        for name in ["", "best", "fixed:best", "config:"] {
            let error = Competitor::parse(name).unwrap_err().to_string();
            assert!(error.contains("profit, score") && error.contains("config:FILE"), "{error}");
        }
        assert_eq!(Competitor::parse("config:a/b.toml").unwrap().file_name(), "config_a_b_toml");
    }
}
