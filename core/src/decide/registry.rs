//! The registry of policies: configuration, command line, lab and documents take the list from here.
//!
//! A policy is its folder under `decide/` and its line in `policies!` in `decide/mod.rs`. The folder holds a [`Policy`]
//! and its settings, which implement [`PolicySettings`].

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, Error};

use super::{NAMES, POLICIES, Policy, PolicyConfig};

/// The settings of a policy, as its `[policy.NAME]` table holds them.
pub trait PolicySettings: Default + Clone + fmt::Debug + PartialEq {
    /// The policy's behaviour, in one line of help.
    const HELP: &'static str;

    /// The lab's competitors under this policy: a name and the text of the `[policy.NAME]` table.
    const COMPETITORS: &'static [(&'static str, &'static str)];

    /// True if the policy depends on a file, which may have changed although the settings have not.
    const HAS_FILE: bool = false;

    /// Creates the policy. `read` reads a file that the settings name.
    ///
    /// # Errors
    /// A file cannot be read, or is refused.
    fn policy(&self, read: ReadFile<'_>) -> Made;
}

/// A policy that was created, or the fault of its file.
pub type Made = Result<Box<dyn Policy>, PolicyFileError>;

/// A fault of a file that a policy's settings name.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// It can't be read.
    #[error("can't read the configuration {}: {source}", .path.display())]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It is refused.
    #[error("{}: {source}", .path.display())]
    Bad {
        /// Its path.
        path: PathBuf,
        /// The fault in it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Reads the text of a file.
pub type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<String>;

/// One policy of the registry.
#[derive(Debug)]
pub struct PolicyEntry {
    /// The name in `[policy] kind = "…"`, in `[policy.NAME]` and on the command line.
    pub name: &'static str,
    /// The policy's behaviour, in one line of help.
    pub help: &'static str,
    /// The lab's competitors: a name and the text of the `[policy.NAME]` table.
    pub competitors: &'static [(&'static str, &'static str)],
    /// True if the policy depends on a file besides its settings.
    pub has_file: bool,
    pub(super) make: fn(&PolicyConfig, ReadFile<'_>) -> Made,
}

/// Declares the folder of each policy and the registry: `POLICIES` and `PolicyConfig`, from a line `name: settings` for each.
macro_rules! policies {
    ($($name:ident: $settings:ident,)*) => {
        $(mod $name;)*
        $(pub use $name::$settings;)*

        /// The policies, the default first.
        pub const POLICIES: &[PolicyEntry] = &[$(PolicyEntry {
            name: stringify!($name),
            help: <$settings as PolicySettings>::HELP,
            competitors: <$settings as PolicySettings>::COMPETITORS,
            has_file: <$settings as PolicySettings>::HAS_FILE,
            make: |config, read| config.$name.policy(read),
        },)*];

        /// The names of the policies.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// `[policy]`: the policy in charge, and a table of settings for each policy.
        #[derive(Debug, Clone, PartialEq, Default, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct PolicyConfig {
            /// The policy in charge.
            pub kind: PolicyKind,
            $(
                #[doc = concat!("The settings of `", stringify!($name), "`.")]
                pub $name: $settings,
            )*
        }
    };
}

impl PolicyConfig {
    /// Creates the policy in charge. `read` reads a file that its settings name.
    ///
    /// # Errors
    /// A file cannot be read, or is refused.
    pub fn policy(&self, read: ReadFile<'_>) -> Made {
        (self.kind.0.make)(self, read)
    }
}

/// A policy by name.
#[derive(Debug, Clone, Copy)]
pub struct PolicyKind(&'static PolicyEntry);

impl PolicyKind {
    /// Finds the policy of that name.
    pub fn find(name: &str) -> Option<Self> {
        POLICIES.iter().find(|entry| entry.name == name).map(Self)
    }

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Returns true if the policy depends on a file besides its settings.
    pub fn has_file(self) -> bool {
        self.0.has_file
    }
}

impl Default for PolicyKind {
    fn default() -> Self {
        Self(&POLICIES[0])
    }
}

impl PartialEq for PolicyKind {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for PolicyKind {}

impl<'de> Deserialize<'de> for PolicyKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::find(&name).ok_or_else(|| D::Error::unknown_variant(&name, NAMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_file(_: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    #[test]
    fn every_policy_is_made_under_its_name_from_default_settings_and_from_those_of_its_competitors() {
        for entry in POLICIES {
            let kind = format!("kind = \"{}\"\n", entry.name);
            for settings in entry.competitors.iter().map(|(_, settings)| *settings).chain([""]) {
                let text = format!("{kind}[{}]\n{settings}", entry.name);
                let config: PolicyConfig = toml::from_str(&text).unwrap();
                assert_eq!(config.policy(&no_file).unwrap().name(), entry.name);
            }
        }
    }

    #[test]
    fn names_are_unique_and_an_unknown_one_is_answered_with_the_list() {
        let mut competitors: Vec<_> =
            POLICIES.iter().flat_map(|entry| entry.competitors).map(|(name, _)| name).collect();
        competitors.sort_unstable();
        assert!(competitors.is_sorted_by(|one, other| one < other), "{competitors:?}");
        let error = toml::from_str::<PolicyConfig>("kind = \"best\"").unwrap_err().to_string();
        assert!(error.contains("unknown variant `best`") && error.contains("`profit`, `score`"), "{error}");
    }

    #[test]
    fn the_documents_list_every_policy() {
        let page = include_str!("../../../docs/internals/policies.md");
        for entry in POLICIES {
            let row = format!("| `{}` | {} |", entry.name, entry.help);
            assert!(page.contains(&row), "docs/internals/policies.md lacks this row:\n{row}");
        }
    }
}
