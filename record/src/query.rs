//! A question about a stretch of time.

use crate::tier::Tier;

/// What is asked of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The beginning, in milliseconds since 1970.
    pub since: i64,
    /// The end, in the same unit.
    pub until: i64,
    /// The guest: its key, UUID, name or PID. `None`: the host.
    pub guest: Option<String>,
    /// The figures, by the names of their columns. Empty: those that [`Query::shown`] names.
    pub columns: Vec<String>,
    /// How fine the answer is.
    pub resolution: Resolution,
}

/// How fine an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// So many rows at most; rows that are too many are brought together.
    Rows(usize),
    /// The rows of this tier as they are.
    Tier(Tier),
}

/// A stretch up to this is answered from samples, in milliseconds.
const FROM_SAMPLES: i64 = 2 * 3_600_000;

/// A stretch up to this is answered from minutes.
const FROM_MINUTES: i64 = 7 * 24 * 3_600_000;

impl Query {
    /// The columns that are shown unless others are named.
    pub fn shown(&self) -> &'static [&'static str] {
        match self.guest {
            None => &[
                "saved_bytes",
                "profit_bytes",
                "exposure_bytes",
                "headroom_bytes",
                "ksmd_cpu_percent",
                "memory_pressure_percent",
                "daemon_cpu_seconds",
            ],
            Some(_) => &["rss_bytes", "merged_bytes", "saved_bytes", "profit_bytes"],
        }
    }

    /// The tier that most of the answer comes from.
    pub(crate) fn tier(&self) -> Tier {
        match (self.resolution, self.until.saturating_sub(self.since)) {
            (Resolution::Tier(tier), _) => tier,
            (_, ..=FROM_SAMPLES) => Tier::Sample,
            (_, ..=FROM_MINUTES) => Tier::Minute,
            _ => Tier::Hour,
        }
    }
}
