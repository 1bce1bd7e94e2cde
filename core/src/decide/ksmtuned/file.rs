//! The file that ksmtuned reads.

use std::io::ErrorKind;
use std::path::PathBuf;

use serde::Deserialize;

use super::{KsmtunedConfig, KsmtunedPolicy};
use crate::decide::{Policy, PolicySettings, ReadFile};

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

    fn policy(&self, read: ReadFile<'_>) -> Result<Box<dyn Policy>, String> {
        let path = self.file.display();
        let config = match read(&self.file) {
            Ok(text) => KsmtunedConfig::parse(&text).map_err(|error| format!("{path}: {error}"))?,
            Err(error) if error.kind() == ErrorKind::NotFound => KsmtunedConfig::default(),
            Err(error) => return Err(format!("can't read the configuration {path}: {error}")),
        };
        Ok(Box::new(KsmtunedPolicy::new(config)))
    }
}
