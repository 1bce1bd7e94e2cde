//! The reasons for which ksmith switches the merging of a guest off.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason why a guest was switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SwitchOffReason {
    /// Its scanning costs more than its merging saves.
    Prune,
    /// Merging saves little of the huge pages that it splits. They are put together again meanwhile.
    Splits,
    /// It is outside the trust domain that may merge. It stays off as long as ksmd may scan.
    Domain,
}

impl SwitchOffReason {
    /// Returns true if pruning has switched it off, and so switches it on.
    pub fn is_of_pruning(self) -> bool {
        matches!(self, Self::Prune | Self::Splits)
    }
}

/// The word for columns and JSON.
impl fmt::Display for SwitchOffReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prune => "prune",
            Self::Splits => "splits",
            Self::Domain => "domain",
        })
    }
}
