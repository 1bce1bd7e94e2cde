//! The tiers of the history: samples, minutes and hours.

/// The resolution at which a part of the history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HistoryTier {
    /// Raw samples.
    Sample,
    /// A row for each minute: the mean of gauges, and the last value of all others.
    Minute,
    /// A row for each hour.
    Hour,
}

/// Longest time before a sample that counts as recorded, in milliseconds. A parked daemon samples once a minute.
pub(crate) const LONGEST_STEP: i64 = 90_000;

/// The column of minute and hour rows with the recorded time in them, in milliseconds.
pub(crate) const RECORDED: &str = "recorded_ms";

impl HistoryTier {
    /// All tiers, the finest first.
    pub const ALL: [Self; 3] = [Self::Sample, Self::Minute, Self::Hour];

    /// Returns the duration of a row, in milliseconds.
    pub const fn milliseconds(self) -> i64 {
        match self {
            Self::Sample => 1000,
            Self::Minute => 60_000,
            Self::Hour => 3_600_000,
        }
    }

    /// Returns the tier's name, as used in table names.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Sample => "sample",
            Self::Minute => "minute",
            Self::Hour => "hour",
        }
    }

    /// Returns the name of the table with the host's figures.
    pub(crate) fn host_table(self) -> String {
        format!("host_{}", self.word())
    }

    /// Returns the name of the table with the guests' figures.
    pub(crate) fn guest_table(self) -> String {
        format!("guest_{}", self.word())
    }
}
