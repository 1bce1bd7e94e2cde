//! What happened: the question, and where the answer comes from.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer};
use serde_json::Value as Json;

/// Rows of a history at most, where the question does not say.
const POINTS: usize = 1000;

/// Rows of a history at most, whatever the question says.
const MOST_POINTS: usize = 10_000;

/// Where the history comes from. Called from a thread of its own.
pub trait History: Send + Sync + 'static {
    /// The rows, decisions, events and guests of a time, as `ksmith history --json` prints them.
    ///
    /// # Errors
    /// There is no history, or none of that guest.
    fn history(&self, query: &HistoryQuery) -> Result<Json, HistoryError>;
}

/// Why there is no history to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// There is no store, or it can't be read.
    #[error("{0}")]
    Unavailable(String),
    /// The question makes no sense.
    #[error("{0}")]
    Meaningless(String),
    /// There is no such guest.
    #[error("{0}")]
    Unknown(String),
}

/// A moment: so long ago, or at so many seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Moment {
    /// So long before now.
    Ago(Duration),
    /// Unix time in seconds.
    At(f64),
}

/// What is asked of the history.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub struct HistoryQuery {
    /// The first moment.
    pub since: Moment,
    /// The last moment.
    pub until: Moment,
    /// The guest, by its id `PID.STARTTICKS`. `None`: the host.
    pub guest: Option<String>,
    /// Rows at most.
    #[serde(deserialize_with = "bounded")]
    pub points: usize,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        let since = Moment::Ago(Duration::from_secs(2 * 3600));
        Self { since, until: Moment::Ago(Duration::ZERO), guest: None, points: POINTS }
    }
}

/// The text is no moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoMoment(String);

impl fmt::Display for NoMoment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no time: write 30m, 2h, 1d or seconds since 1970", self.0)
    }
}

impl FromStr for Moment {
    type Err = NoMoment;

    fn from_str(text: &str) -> Result<Self, NoMoment> {
        let bad = || NoMoment(text.chars().take(40).collect());
        let unit = match text.bytes().last() {
            Some(b's') => 1.0,
            Some(b'm') => 60.0,
            Some(b'h') => 3600.0,
            Some(b'd') => 86400.0,
            _ => {
                let at: f64 = text.parse().map_err(|_| bad())?;
                return if at.is_finite() && at >= 0.0 { Ok(Self::At(at)) } else { Err(bad()) };
            }
        };
        let number: f64 = text.get(..text.len() - 1).and_then(|number| number.parse().ok()).ok_or_else(bad)?;
        Duration::try_from_secs_f64(number * unit).map(Self::Ago).map_err(|_| bad())
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    usize::deserialize(deserializer).map(|points| points.clamp(1, MOST_POINTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_people_write_them() {
        let ago = |seconds| Ok(Moment::Ago(Duration::from_secs(seconds)));
        assert_eq!("30m".parse(), ago(1800));
        assert_eq!("2h".parse(), ago(7200));
        assert_eq!("1d".parse(), ago(86400));
        assert_eq!("0.5h".parse(), ago(1800));
        assert_eq!("1795466794.5".parse(), Ok(Moment::At(1_795_466_794.5)));
        for bad in ["", "h", "-1h", "NaN", "inf", "1e400d", "-5", "2 h", "ü"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }
}
