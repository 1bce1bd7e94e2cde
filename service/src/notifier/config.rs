//! The table `[notify]` of the configuration.

use std::time::Duration;

use ksmith_core::contradiction::Contradiction;
use serde::Deserialize;

/// The table `[notify]`: notifications of alarms to an operator.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NotifyConfig {
    /// A program with its arguments. Empty: none is started.
    pub command: Vec<String>,
    /// True to send alarms to the journal, each with its message ID.
    pub journal: bool,
    /// Minutes of negative profit before an alarm.
    pub profit_minutes: u32,
}

impl Default for NotifyConfig {
    fn default() -> Self {
        Self { command: Vec::new(), journal: true, profit_minutes: 60 }
    }
}

impl NotifyConfig {
    /// Returns the time of negative profit before an alarm.
    pub fn profit_after(&self) -> Duration {
        Duration::from_secs(u64::from(self.profit_minutes) * 60)
    }

    /// Finds a setting that makes no sense.
    pub fn contradiction(&self) -> Option<Contradiction> {
        let program = self.command.first().filter(|program| !program.starts_with('/'))?;
        let message = format!("[notify] command: {program:?} is not an absolute path");
        Some(Contradiction::new(&[&["notify", "command"]], message))
    }
}
