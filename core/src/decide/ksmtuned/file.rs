//! The file that ksmtuned reads.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::Deserialize;

use super::{KsmtunedConfig, KsmtunedPolicy};
use crate::decide::{Made, PolicyFileError, PolicySettings, ReadFile};

/// The table `[policy.ksmtuned]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KsmtunedFile {
    /// The file of shell assignments that ksmtuned reads. A missing file is no error.
    pub file: PathBuf,
}

impl Default for KsmtunedFile {
    fn default() -> Self {
        Self { file: PathBuf::from("/etc/ksmtuned.conf") }
    }
}

impl PolicySettings for KsmtunedFile {
    const HELP: &'static str = "Do as the ksmtuned script does, with its configuration file";
    const COMPETITORS: &'static [(&'static str, &'static str)] = &[("ksmtuned", "")];
    const HAS_FILE: bool = true;

    fn policy(&self, read: ReadFile<'_>) -> Made {
        let path = self.file.clone();
        let config = match read(&path) {
            Ok(text) => {
                KsmtunedConfig::parse(&text).map_err(|bad| PolicyFileError::Bad { path, source: bad.into() })?
            }
            Err(error) if error.kind() == ErrorKind::NotFound => KsmtunedConfig::default(),
            Err(source) => return Err(PolicyFileError::Unreadable { path, source }),
        };
        Ok(Box::new(KsmtunedPolicy::new(config)))
    }
}
