//! The decisions of the policy while `ksmith top` runs.

use std::collections::VecDeque;
use std::time::Duration;

use ksmith_core::model::DaemonStatus;

/// Most decisions that are kept.
const KEPT: usize = 500;

/// A state of the policy, or a note on the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownDecision {
    /// Time of the first sample that had it.
    pub at: Duration,
    /// The policy with its state, or `daemon`.
    pub state: String,
    /// The newest reason in this state, or the note.
    pub reason: String,
}

/// The latest decisions, the newest first.
#[derive(Debug, Clone, Default)]
pub struct DecisionLog(VecDeque<ShownDecision>);

impl DecisionLog {
    /// Records the state of the daemon. A reason that differs from the one before only in its figures replaces it.
    pub fn push(&mut self, at: Duration, daemon: &DaemonStatus) {
        let (state, reason) = (format!("{}: {}", daemon.policy, daemon.state), daemon.reason.clone());
        match self.0.iter_mut().find(|last| last.state != NOTE) {
            Some(last) if last.state == state && shape(&last.reason) == shape(&reason) => last.reason = reason,
            _ => self.add(ShownDecision { at, state, reason }),
        }
    }

    /// Records a note on the source of the figures. A repeated note is recorded once.
    pub fn record_note(&mut self, at: Duration, note: &str) {
        if self.0.front().is_none_or(|last| last.state != NOTE || last.reason != note) {
            self.add(ShownDecision { at, state: NOTE.to_owned(), reason: note.to_owned() });
        }
    }

    /// Returns the decisions, the newest first.
    pub fn iter(&self) -> impl Iterator<Item = &ShownDecision> {
        self.0.iter()
    }

    fn add(&mut self, decision: ShownDecision) {
        self.0.push_front(decision);
        self.0.truncate(KEPT);
    }
}

/// The state of a note.
const NOTE: &str = "daemon";

/// Returns a sentence without its figures.
fn shape(sentence: &str) -> String {
    sentence.chars().filter(|c| !c.is_ascii_digit() && *c != '.').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_only_counts_on_is_one_decision() {
        let daemon = |state: &str, reason: &str| DaemonStatus {
            pid: 1,
            policy: "profit".to_owned(),
            state: state.to_owned(),
            reason: reason.to_owned(),
            reason_detail: None,
            cpu_seconds: 0.0,
            rss_bytes: 0,
            uptime_seconds: 0.0,
            max_cpu: None,
        };
        let mut decisions = DecisionLog::default();
        let at = Duration::from_secs;
        decisions.push(at(1), &daemon("burst", "10.5 MiB are new"));
        decisions.push(at(2), &daemon("burst", "9 MiB are new"));
        decisions.record_note(at(3), "it was restarted");
        decisions.record_note(at(4), "it was restarted");
        decisions.push(at(5), &daemon("burst", "8 MiB are new"));
        decisions.push(at(6), &daemon("quiet", "no guest is new"));
        let seen: Vec<_> = decisions.iter().map(|seen| (seen.at.as_secs(), seen.reason.as_str())).collect();
        assert_eq!(seen, [(6, "no guest is new"), (3, "it was restarted"), (1, "8 MiB are new")]);
    }
}
