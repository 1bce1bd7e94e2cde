//! Decisions and events of turns, until a moment takes them along.

use std::collections::BTreeMap;

use ksmith_core::printable::OneLine;
use ksmith_record::{DecisionMade, EventKind, FOLD_POLICY, HistoryEvent, PRUNE_POLICY};

use super::RecordedTurn;
use crate::decision_rate::DecisionRate;

/// The most decisions, and events, that wait for a moment. The oldest are lost.
const MOST: usize = 256;

/// The shortest time between two events about the same thing, in milliseconds.
const SAME: i64 = 60_000;

/// The most subjects of recent events that are remembered.
const ABOUT: usize = 256;

/// The difference from the clock of the samples beyond which the wall clock counts as set, in milliseconds.
const SET: i64 = 5_000;

/// Decisions and events that wait to be recorded.
#[derive(Debug, Default)]
pub(super) struct TurnNotes {
    decisions: Vec<DecisionMade>,
    events: Vec<HistoryEvent>,
    state: Option<&'static str>,
    /// Time of the last event about each subject.
    about: BTreeMap<String, i64>,
    /// The wall clock less that of the samples.
    offset: Option<i64>,
    lost: u64,
    rate: DecisionRate,
}

impl TurnNotes {
    /// Collects the decisions and events of a turn.
    pub(super) fn collect_turn(&mut self, seen: &RecordedTurn<'_>) {
        let RecordedTurn { tick, policy, day_clock: time, .. } = *seen;
        self.watch_clock(seen);
        let reason = &tick.decision.reason;
        let has_set = tick.applied.changes.iter().any(|change| !change.knob.is_pace());
        if has_set || self.state != Some(reason.state) {
            self.state = Some(reason.state);
            if let Some(left_out) = self.rate.admit(tick.sample.at) {
                let note = match left_out {
                    0 => String::new(),
                    _ => format!(" ({left_out} decisions before it are not recorded: there were too many)"),
                };
                self.decisions.push(DecisionMade {
                    time,
                    policy: policy.to_owned(),
                    state: reason.state.to_owned(),
                    reason: format!("{}{note}", OneLine(&reason.text)),
                    reason_detail: reason.detail.as_ref().map(|detail| OneLine(detail).to_string()),
                    settings: tick.applied.changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
                });
            }
        }
        let folds = seen.folds.iter().map(|fold| (FOLD_POLICY, fold.state, &fold.text));
        let prunes = seen.prunes.iter().map(|prune| (PRUNE_POLICY, prune.state, &prune.text));
        for (policy, state, text) in folds.chain(prunes) {
            self.decisions.push(DecisionMade {
                time,
                policy: policy.to_owned(),
                state: state.to_owned(),
                reason: OneLine(text).to_string(),
                reason_detail: None,
                settings: String::new(),
            });
        }
        for change in &tick.foreign {
            let text = format!("another program changed {change}");
            self.event(time, EventKind::SettingChangedByOthers, change.knob.name(), text);
        }
        for notice in seen.notices {
            self.events.push(HistoryEvent { time, kind: EventKind::Alarm, text: OneLine(notice).to_string() });
        }
        for error in &tick.applied.errors {
            self.event(time, EventKind::Problem, error, OneLine(error).to_string());
        }
        keep_newest(&mut self.decisions);
        keep_newest(&mut self.events);
    }

    fn event(&mut self, time: i64, kind: EventKind, about: &str, text: String) {
        let then = self.about.get(about).copied();
        if then.is_some_and(|then| (0..SAME).contains(&time.saturating_sub(then))) {
            return;
        }
        if self.about.len() >= ABOUT {
            self.about.clear();
        }
        self.about.insert(about.to_owned(), time);
        self.events.push(HistoryEvent { time, kind, text });
    }

    fn watch_clock(&mut self, seen: &RecordedTurn<'_>) {
        let at = i64::try_from(seen.tick.sample.at.as_millis()).unwrap_or(i64::MAX);
        let offset = seen.day_clock.saturating_sub(at);
        let before = self.offset.replace(offset).unwrap_or(offset);
        let step = offset.saturating_sub(before);
        if step.abs() > SET {
            let text = format!("the wall clock was set by {:+.0} s", step as f64 / 1000.0);
            self.events.push(HistoryEvent { time: seen.day_clock, kind: EventKind::ClockSet, text });
        }
    }

    /// Counts a moment that was lost.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
    }

    /// Returns all decisions and events that wait, and the number of moments lost before.
    pub(super) fn hand_over(&mut self) -> (Vec<DecisionMade>, Vec<HistoryEvent>, u64) {
        let lost = std::mem::take(&mut self.lost);
        (std::mem::take(&mut self.decisions), std::mem::take(&mut self.events), lost)
    }

    /// Puts back decisions and events that found no room.
    pub(super) fn take_back(&mut self, decisions: Vec<DecisionMade>, events: Vec<HistoryEvent>, lost: u64) {
        self.decisions.splice(0..0, decisions);
        self.events.splice(0..0, events);
        self.lost += lost;
    }
}

fn keep_newest<T>(list: &mut Vec<T>) {
    let surplus = list.len().saturating_sub(MOST);
    list.drain(..surplus);
}
