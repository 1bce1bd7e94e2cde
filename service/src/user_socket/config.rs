//! The configuration of the user socket.

use std::path::PathBuf;

use ksmith_core::decide::Share;
use serde::Deserialize;

use super::protocol;

/// The table `[optin]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptinConfig {
    /// Where programs of ordinary users ask the daemon.
    pub socket: PathBuf,
    /// The group of users that may ask. While there is no group of that name, only root may.
    pub group: String,
    /// CPU seconds of ksmd that each user may have spent on scans in an hour.
    pub cpu_seconds_per_hour: f64,
    /// The most CPU that ksmd may use in such a scan.
    pub max_cpu: Share,
    /// Of a thousand pages so many must have an equal for a range to be worth marking.
    pub worth_permille: u64,
}

impl Default for OptinConfig {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(protocol::DEFAULT_PATH),
            group: "ksmith".to_owned(),
            cpu_seconds_per_hour: 60.0,
            max_cpu: Share::WHOLE,
            worth_permille: 50,
        }
    }
}
