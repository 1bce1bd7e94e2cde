//! Alerts: the table of all, and the daemon's own alarms, each reported once when it begins and once when it ends.

mod alert;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use crate::account::HostTotals;
use crate::units::TimeSpan;

pub use alert::{
    AlarmCause, AlarmOnset, AlertRow, AlertRuleTest, AlertRunbook, AlertSeverity, DaemonAlarm, FiringAlert,
    HostFault,
};
pub use table::ALERTS;

/// The runbooks on a host with the package.
const RUNBOOKS: &str = "/usr/share/doc/ksmith/docs/how-to/runbooks";

/// The subject of an alarm: an alert that the daemon raises itself.
#[derive(Debug, Clone, Copy)]
pub struct AlarmKind {
    /// The alert's name, which is also its runbook's.
    alert: &'static str,
    alarm: &'static DaemonAlarm,
}

impl AlarmKind {
    /// Returns all alarms, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        ALERTS.iter().filter_map(|row| Some(Self { alert: row.name, alarm: row.alarm.as_ref()? }))
    }

    /// Finds the alarm of that name.
    pub fn find(name: &str) -> Option<Self> {
        Self::all().find(|kind| kind.word() == name)
    }

    /// Returns its stable name.
    pub fn word(self) -> &'static str {
        self.alarm.name
    }

    /// Returns the message ID of its entries in the journal (sd_journal_send(3)). It never changes.
    pub fn message_id(self) -> &'static str {
        self.alarm.message_id
    }

    /// Returns the time for which its cause must last before it begins.
    fn onset(self, profit: Duration) -> Duration {
        match self.alarm.onset {
            AlarmOnset::After(time) => time,
            AlarmOnset::ProfitMinutes => profit,
        }
    }
}

impl PartialEq for AlarmKind {
    fn eq(&self, other: &Self) -> bool {
        self.word() == other.word()
    }
}

impl Eq for AlarmKind {}

/// The time for which its cause must be absent before an alarm ends: hysteresis for a figure near the threshold.
const CALM: Duration = Duration::from_secs(60);

/// The input of all alarms.
#[derive(Debug, Clone, Copy)]
pub struct AlarmInput<'a> {
    /// Time since boot.
    pub at: Duration,
    /// The host's totals.
    pub totals: HostTotals,
    /// The reason why guests of different domains may share pages although they are to be kept apart, if they may.
    pub breach: Option<&'a str>,
}

/// An alarm that begins or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlarmTransition {
    /// The subject of the alarm.
    pub alarm: AlarmKind,
    /// True if the alarm begins, false if it ends.
    pub begins: bool,
    /// The message for the operator: the cause with its figures, and the remedy.
    pub text: String,
}

impl AlarmTransition {
    /// Returns the word for a beginning or an end.
    pub fn state(&self) -> &'static str {
        if self.begins { "begins" } else { "ends" }
    }
}

impl fmt::Display for AlarmTransition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "alarm {} {}: {}", self.alarm.word(), self.state(), self.text)
    }
}

/// The state of one alarm.
#[derive(Debug, Clone, Copy, Default)]
struct AlarmState {
    /// The time since which the cause is present, or absent after the alarm has begun.
    since: Option<Duration>,
    has_begun: bool,
}

/// The states of all alarms.
#[derive(Debug, Clone)]
pub struct AlarmTracker {
    states: Vec<(AlarmKind, AlarmState)>,
    profit_after: Duration,
}

impl AlarmTracker {
    /// Creates the state in which no alarm has begun. The profit alarm begins after `profit_after` of negative profit.
    pub fn new(profit_after: Duration) -> Self {
        Self { states: AlarmKind::all().map(|kind| (kind, AlarmState::default())).collect(), profit_after }
    }

    /// Changes the time for which profit must be negative.
    pub fn configure(&mut self, profit_after: Duration) {
        self.profit_after = profit_after;
    }

    /// Updates all alarms, and returns those that begin or end.
    pub fn update(&mut self, facts: &AlarmInput<'_>) -> Vec<AlarmTransition> {
        let profit_after = self.profit_after;
        let of_one = |(kind, state): &mut (AlarmKind, AlarmState)| {
            let cause = match (kind.alarm.cause)(facts) {
                AlarmCause::Unknown => return None,
                AlarmCause::Absent => None,
                AlarmCause::Present(cause) => Some(cause),
            };
            // The clock runs while what is seen differs from what was said.
            if cause.is_some() == state.has_begun {
                state.since = None;
                return None;
            }
            let since = *state.since.get_or_insert(facts.at);
            let wait = if state.has_begun { CALM } else { kind.onset(profit_after) };
            if facts.at.saturating_sub(since) < wait {
                return None;
            }
            *state = AlarmState { since: None, has_begun: !state.has_begun };
            let text = match cause {
                Some(cause) => format!("{cause} ({RUNBOOKS}/{}.md)", kind.alert),
                None => format!("for {} {}", TimeSpan(CALM), (kind.alarm.end)(facts)),
            };
            Some(AlarmTransition { alarm: *kind, begins: state.has_begun, text })
        };
        self.states.iter_mut().filter_map(of_one).collect()
    }
}
