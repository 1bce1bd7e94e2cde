//! The decisions of the policy while `ksmith top` runs, and before.

use std::collections::VecDeque;
use std::time::Duration;

use ksmith_core::model::DaemonStatus;

/// Most decisions that are kept.
const KEPT: usize = 500;

/// A state of the policy, or a note on the daemon.
#[derive(Debug, Clone, PartialEq)]
pub struct ShownDecision {
    /// The time of the first sample that had it, in seconds since `ksmith top` started; negative before.
    pub at: f64,
    /// The policy with its state, or `daemon`.
    pub state: String,
    /// The newest reason in this state, or the note.
    pub reason: String,
    /// The arithmetic behind the reason, if there is any.
    pub detail: Option<String>,
}

/// The latest decisions, the newest first.
#[derive(Debug, Clone, Default)]
pub struct DecisionLog(VecDeque<ShownDecision>);

impl DecisionLog {
    /// Records the state of the daemon. A reason that differs from the one before only in its figures replaces it.
    pub fn push(&mut self, at: Duration, daemon: &DaemonStatus) {
        let (state, reason) = (format!("{}: {}", daemon.policy, daemon.state), daemon.reason.clone());
        let detail = daemon.reason_detail.clone();
        match self.0.iter_mut().find(|last| last.state != NOTE) {
            Some(last) if last.state == state && shape(&last.reason) == shape(&reason) => {
                (last.reason, last.detail) = (reason, detail);
            }
            _ => self.add(ShownDecision { at: at.as_secs_f64(), state, reason, detail }),
        }
    }

    /// Puts decisions of the history, the oldest first, before those that were seen. The first that was seen may be the
    /// last of the history.
    pub fn prefill(&mut self, past: Vec<ShownDecision>) {
        let first = self.0.back().map_or(f64::INFINITY, |decision| decision.at);
        let mut before = past.into_iter().rev().filter(|decision| decision.at < first).peekable();
        if let Some(seen) = self.0.back_mut()
            && let Some(same) = before.next_if(|last| last.state == seen.state)
        {
            seen.at = same.at;
        }
        self.0.extend(before);
        self.0.truncate(KEPT);
    }

    /// Records a note on the source of the figures. A repeated note is recorded once.
    pub fn record_note(&mut self, at: Duration, note: &str) {
        if self.0.front().is_none_or(|last| last.state != NOTE || last.reason != note) {
            let (state, reason) = (NOTE.to_owned(), note.to_owned());
            self.add(ShownDecision { at: at.as_secs_f64(), state, reason, detail: None });
        }
    }

    /// Returns the decisions up to a moment, the newest first.
    pub fn until(&self, moment: f64) -> impl Iterator<Item = &ShownDecision> {
        self.0.iter().filter(move |decision| decision.at <= moment)
    }

    /// Returns the times of the decisions, the newest first.
    pub fn times(&self) -> impl Iterator<Item = f64> {
        self.0.iter().map(|decision| decision.at)
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
            paused_until: None,
        };
        let mut decisions = DecisionLog::default();
        let at = Duration::from_secs;
        decisions.push(at(1), &daemon("burst", "10.5 MiB are new"));
        decisions.push(at(2), &daemon("burst", "9 MiB are new"));
        decisions.record_note(at(3), "it was restarted");
        decisions.record_note(at(4), "it was restarted");
        decisions.push(at(5), &daemon("burst", "8 MiB are new"));
        decisions.push(at(6), &daemon("quiet", "no guest is new"));
        let seen = |until: f64| -> Vec<(f64, String)> {
            decisions.until(until).map(|seen| (seen.at, seen.reason.clone())).collect()
        };
        let expected = [(6.0, "no guest is new"), (3.0, "it was restarted"), (1.0, "8 MiB are new")];
        let expected = expected.map(|(at, reason)| (at, reason.to_owned()));
        assert_eq!(seen(6.0), expected);
        assert_eq!(seen(5.0), expected[1..], "a replay shows what was known");
    }

    #[test]
    fn decisions_of_the_history_come_before_those_that_were_seen() {
        let decision = |at: f64| ShownDecision {
            at,
            state: "profit: parked".to_owned(),
            reason: at.to_string(),
            detail: None,
        };
        let mut decisions = DecisionLog::default();
        decisions.record_note(Duration::from_secs(1), "it was restarted");
        decisions.prefill([-20.0, -10.0, 2.0].map(decision).to_vec());
        assert_eq!(decisions.times().collect::<Vec<_>>(), [1.0, -10.0, -20.0]);
        decisions.prefill([-40.0, -30.0].map(decision).to_vec());
        assert_eq!(decisions.times().collect::<Vec<_>>(), [1.0, -10.0, -30.0, -40.0], "one state went on");
    }
}
