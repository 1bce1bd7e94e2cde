//! The form of an alert: everything that its row in [`ALERTS`](super::ALERTS) says.

use std::time::Duration;

use super::AlarmInput;

/// An alert: its rule for Prometheus, its runbook, its tests, and the daemon's own alarm where it has one.
#[derive(Debug)]
pub struct AlertRow {
    /// The name of the rule, and of the runbook's file.
    pub name: &'static str,
    /// The urgency.
    pub severity: AlertSeverity,
    /// The condition in PromQL; further lines go on with it.
    pub condition: &'static str,
    /// The minutes for which the condition holds before the alert fires; with 0 it fires at once.
    pub minutes: u32,
    /// The annotation `summary`, a template of Prometheus on one line.
    pub summary: &'static str,
    /// The annotation `description`, a template of Prometheus.
    pub description: &'static str,
    /// The page that `runbook_url` names.
    pub runbook: AlertRunbook,
    /// The daemon's own alarm for the same condition.
    pub alarm: Option<DaemonAlarm>,
    /// The test of the rule by `promtool`.
    pub rule_test: AlertRuleTest,
    /// The fault of a made-up host that fires the rule in a real Prometheus; `None` where
    /// `packaging/tests/alerts.test.mjs` has a test of its own.
    pub fault: Option<HostFault>,
}

/// The urgency of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertSeverity {
    /// Guests are at risk now.
    Critical,
    /// Something should be mended soon.
    Warning,
    /// Something to know.
    Info,
}

impl AlertSeverity {
    /// Returns the value of the label `severity`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// The text of a runbook, in Markdown.
#[derive(Debug)]
pub struct AlertRunbook {
    /// The condition in a sentence.
    pub headline: &'static str,
    /// The paragraph "Meaning".
    pub meaning: &'static str,
    /// The commands that show the condition, one a line.
    pub commands: &'static str,
    /// The sentence on where the web page and Prometheus show it.
    pub elsewhere: Option<&'static str>,
    /// The steps under "What to do".
    pub steps: &'static [&'static str],
}

/// The alarm that the daemon itself raises, without Prometheus.
#[derive(Debug)]
pub struct DaemonAlarm {
    /// The stable name.
    pub name: &'static str,
    /// The message ID of its entries in the journal (sd_journal_send(3)). It never changes.
    pub message_id: &'static str,
    /// The condition, for the table of alarms in `docs/how-to/alerts.md`.
    pub condition: &'static str,
    /// The time for which the cause lasts before the alarm begins.
    pub onset: AlarmOnset,
    /// Returns the cause, as a sentence with its figures and the remedy.
    pub cause: fn(&AlarmInput<'_>) -> AlarmCause,
    /// Returns what holds again, behind "for 1 min".
    pub end: fn(&AlarmInput<'_>) -> String,
}

/// The time for which the cause of an alarm lasts before the alarm begins.
#[derive(Debug, Clone, Copy)]
pub enum AlarmOnset {
    /// A fixed time.
    After(Duration),
    /// The time of `[notify] profit_minutes`.
    ProfitMinutes,
}

/// The cause of an alarm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AlarmCause {
    /// A figure is missing: no alarm begins, and none ends.
    Unknown,
    /// All is well.
    Absent,
    /// The cause, with its figures and the remedy.
    Present(String),
}

impl AlarmCause {
    /// Returns the cause if it is there.
    pub fn present_if(is_present: bool, cause: impl FnOnce() -> String) -> Self {
        if is_present { Self::Present(cause()) } else { Self::Absent }
    }
}

/// A test of a rule by `promtool test rules`, with a sample of each series a minute.
#[derive(Debug)]
pub struct AlertRuleTest {
    /// The name of the test.
    pub name: &'static str,
    /// The series with their values, in promtool's notation.
    pub series: &'static [(&'static str, &'static str)],
    /// The minute at which the alert does not fire yet.
    pub quiet: u32,
    /// The minute at which it fires.
    pub firing: u32,
    /// The minute at which it has resolved.
    pub resolved: u32,
    /// The alerts that fire.
    pub alerts: &'static [FiringAlert],
}

/// An alert that fires in a test.
#[derive(Debug)]
pub struct FiringAlert {
    /// The labels besides `job` and `severity`.
    pub labels: &'static [(&'static str, &'static str)],
    /// The text of `$value` in the templates, formatted as they ask for.
    pub value: &'static str,
}

/// A fault of a made-up host.
#[derive(Debug)]
pub struct HostFault {
    /// The host that has it: `a` or `b`.
    pub host: &'static str,
    /// The setting of `Host` in `serve/tests/page/host.js`, or the path of a value in the daemon's answers, as in
    /// `status.sample.hidden_processes`.
    pub key: &'static str,
    /// The value with the fault, as JSON.
    pub bad: &'static str,
    /// The value without it, as JSON.
    pub good: &'static str,
}
