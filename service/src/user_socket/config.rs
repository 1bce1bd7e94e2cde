//! The configuration of the user socket.

use std::num::NonZeroU32;
use std::path::PathBuf;

use ksmith_core::decide::CpuShare;
use serde::Deserialize;

use super::protocol;

/// The table `[optin]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptinConfig {
    /// The socket at which programs of ordinary users ask the daemon.
    pub socket: PathBuf,
    /// The group of users that may ask. While there is no group of that name, only root may.
    pub group: String,
    /// CPU seconds of ksmd that each user may have spent on scans in an hour.
    pub cpu_seconds_per_hour: f64,
    /// Passes that each user may ask for in any hour.
    pub passes_per_hour: PassLimit,
    /// The most CPU that ksmd may use in such a scan.
    pub max_cpu: CpuShare,
    /// Equal pages in a thousand from which a range is worth marking.
    pub worth_permille: u64,
}

/// The limit of passes of a user in any hour. After each pass a user learns which of its pages another process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(from = "NumberOrWord")]
pub enum PassLimit {
    /// A number of passes in any hour.
    Most(NonZeroU32),
    /// As many as the CPU time allows. Only where all belong to one trust domain.
    Unlimited,
}

/// The limit as it is written.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "a number of passes over 0, or \"unlimited\"")]
enum NumberOrWord {
    Number(NonZeroU32),
    Word(LimitWord),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LimitWord {
    Unlimited,
}

impl From<NumberOrWord> for PassLimit {
    fn from(written: NumberOrWord) -> Self {
        match written {
            NumberOrWord::Number(number) => Self::Most(number),
            NumberOrWord::Word(LimitWord::Unlimited) => Self::Unlimited,
        }
    }
}

impl PassLimit {
    /// Returns the number, if there is a limit.
    pub fn number(self) -> Option<u64> {
        match self {
            Self::Most(number) => Some(u64::from(number.get())),
            Self::Unlimited => None,
        }
    }
}

impl Default for PassLimit {
    /// A job asks for two passes at the end of its start.
    fn default() -> Self {
        Self::Most(NonZeroU32::MIN.saturating_add(23))
    }
}

impl Default for OptinConfig {
    fn default() -> Self {
        Self {
            socket: PathBuf::from(protocol::DEFAULT_PATH),
            group: "ksmith".to_owned(),
            cpu_seconds_per_hour: 60.0,
            passes_per_hour: PassLimit::default(),
            max_cpu: CpuShare::WHOLE,
            worth_permille: 50,
        }
    }
}
