//! Who competes: every policy in its default settings, other people's controllers, and nobody.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use ksmith_core::decide::{Limits, Preset};

/// Somebody, or nobody, to control KSM during a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Competitor {
    /// As on the command line.
    pub name: String,
    /// How it works.
    pub kind: CompetitorKind,
}

/// How a competitor works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompetitorKind {
    /// ksmd stays off: what the guests do without KSM.
    Nobody,
    /// `ksmith daemon` with this `[policy]` table.
    Daemon {
        /// The text of the table, its heading included.
        policy: String,
    },
    /// `ksmith daemon` with somebody's configuration file.
    Configured {
        /// The file.
        file: PathBuf,
    },
    /// The distribution's ksmtuned script.
    Ksmtuned {
        /// The script.
        script: PathBuf,
        /// Whether it is told that memory is always short.
        is_eager: bool,
    },
}

/// The competitor whose savings the others are measured by: ksmd visits every page all the time.
pub const REFERENCE: &str = "reference";
/// The competitor whose guests lose nothing.
pub const NOBODY: &str = "none";

/// Those who compete when nobody is named, if they are to be had.
pub const DEFAULT: [&str; 11] = [
    "profit",
    "score",
    "ksmtuned",
    "advisor",
    "fixed:kernel-default",
    "fixed:morfik",
    "fixed:still",
    "script:ksmtuned",
    "script:ksmtuned-eager",
    REFERENCE,
    NOBODY,
];

/// A name that stands for nobody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownCompetitor {
    /// There is none of that name.
    #[error("there is no competitor {0:?}; there are: {known}, config:FILE", known = DEFAULT.join(", "))]
    Name(String),
    /// There is, but not on this host.
    #[error("the ksmtuned script is not here (Debian: package ksmtuned; or name it in KSMTUNED)")]
    NoScript,
}

impl Competitor {
    /// The competitor of that name.
    ///
    /// # Errors
    /// There is none, or it is not installed.
    pub fn parse(name: &str) -> Result<Self, UnknownCompetitor> {
        let unknown = || UnknownCompetitor::Name(name.chars().take(60).collect());
        let table = |policy: String| CompetitorKind::Daemon { policy: format!("[policy]\n{policy}") };
        let script = |is_eager| match ksmtuned() {
            Some(script) => Ok(CompetitorKind::Ksmtuned { script, is_eager }),
            None => Err(UnknownCompetitor::NoScript),
        };
        let kind = match name {
            NOBODY => CompetitorKind::Nobody,
            "profit" | "score" | "ksmtuned" | "advisor" => table(format!("kind = \"{name}\"\n")),
            REFERENCE => table(
                "kind = \"fixed\"\nfixed = { preset = \"still\", settings = { smart_scan = 0 } }\n".to_owned(),
            ),
            "script:ksmtuned" => script(false)?,
            "script:ksmtuned-eager" => script(true)?,
            _ => match name.split_once(':') {
                Some(("fixed", preset)) => {
                    let preset: Preset = preset.parse().map_err(|_| unknown())?;
                    table(format!("kind = \"fixed\"\nfixed = {{ preset = \"{preset}\" }}\n"))
                }
                Some(("config", file)) if !file.is_empty() => {
                    CompetitorKind::Configured { file: PathBuf::from(file) }
                }
                _ => return Err(unknown()),
            },
        };
        Ok(Self { name: name.to_owned(), kind })
    }

    /// Those of [`DEFAULT`] that are to be had here.
    pub fn defaults() -> Vec<Self> {
        DEFAULT.iter().filter_map(|name| Self::parse(name).ok()).collect()
    }

    /// What may stand in a file's name.
    pub(super) fn file_name(&self) -> String {
        self.name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
    }
}

impl fmt::Display for Competitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// `[limits]` as the configuration file has it.
pub(super) fn limits_table(limits: &Limits) -> String {
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
    use crate::config::Config;

    #[test]
    fn every_policy_of_a_competitor_is_a_configuration() {
        for name in DEFAULT {
            let Ok(competitor) = Competitor::parse(name) else {
                assert!(name.starts_with("script:"), "{name}");
                continue;
            };
            if let CompetitorKind::Daemon { policy } = competitor.kind {
                let limits = Limits { max_pages_to_scan: 7, ..Limits::default() };
                let text = format!("{policy}{}", limits_table(&limits));
                let config = Config::parse(Path::new("lab.toml"), &text).unwrap();
                assert_eq!(config.limits, limits);
                let kind = name.split(':').next().unwrap().replace(REFERENCE, "fixed");
                assert_eq!(config.policy.kind.name(), kind);
            }
        }
    }

    #[test]
    fn an_unknown_one_is_answered_with_the_list() {
        for name in ["", "best", "fixed:best", "config:"] {
            let error = Competitor::parse(name).unwrap_err().to_string();
            assert!(error.contains("profit, score") && error.contains("config:FILE"), "{error}");
        }
        assert_eq!(Competitor::parse("config:a/b.toml").unwrap().file_name(), "config_a_b_toml");
    }
}
