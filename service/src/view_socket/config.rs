//! The configuration of the read-only socket.

use std::path::PathBuf;

use serde::Deserialize;

/// The table `[view]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ViewConfig {
    /// The socket at which `ksmith serve` asks for figures.
    pub socket: PathBuf,
    /// The group of users that may ask. While there is no group of that name, only root may.
    pub group: String,
}

impl Default for ViewConfig {
    fn default() -> Self {
        Self { socket: PathBuf::from("/run/ksmith/view"), group: "ksmith-view".to_owned() }
    }
}
