//! Alarms for an operator. Each is reported once when it begins, and once when it ends.

use std::fmt;
use std::time::Duration;

use crate::account::HostTotals;
use crate::units::{Bytes, TimeSpan};

/// The subject of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlarmKind {
    /// The exposure exceeds the headroom.
    Exposure,
    /// Merging costs more memory than it saves.
    Profit,
    /// Guests of different trust domains may share pages although they are to be kept apart.
    Domains,
}

impl AlarmKind {
    /// All alarms.
    pub const ALL: [Self; 3] = [Self::Exposure, Self::Profit, Self::Domains];

    /// Returns its stable name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exposure => "exposure",
            Self::Profit => "profit",
            Self::Domains => "domains",
        }
    }

    /// Returns the message ID of its entries in the journal (sd_journal_send(3)). It never changes.
    pub fn message_id(self) -> &'static str {
        match self {
            Self::Exposure => "5f1c0f3b1d8e4c53a3a5f7a4c9f6e101",
            Self::Profit => "5f1c0f3b1d8e4c53a3a5f7a4c9f6e102",
            Self::Domains => "5f1c0f3b1d8e4c53a3a5f7a4c9f6e103",
        }
    }

    /// Returns the time for which its cause must last before it begins.
    fn onset(self, profit: Duration) -> Duration {
        match self {
            Self::Exposure => Duration::from_secs(30),
            Self::Profit => profit,
            Self::Domains => Duration::ZERO,
        }
    }
}

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
    states: [AlarmState; AlarmKind::ALL.len()],
    profit_after: Duration,
}

impl AlarmTracker {
    /// Creates the state in which no alarm has begun. The profit alarm begins after `profit_after` of negative profit.
    pub fn new(profit_after: Duration) -> Self {
        Self { states: [AlarmState::default(); AlarmKind::ALL.len()], profit_after }
    }

    /// Changes the time for which profit must be negative.
    pub fn configure(&mut self, profit_after: Duration) {
        self.profit_after = profit_after;
    }

    /// Updates all alarms, and returns those that begin or end.
    pub fn update(&mut self, facts: &AlarmInput<'_>) -> Vec<AlarmTransition> {
        let profit_after = self.profit_after;
        let of_one = |(alarm, state): (AlarmKind, &mut AlarmState)| {
            // What is unknown begins no alarm, and ends none.
            if alarm == AlarmKind::Exposure && facts.totals.headroom_bytes.is_none() {
                return None;
            }
            let cause = cause(alarm, facts);
            // The clock runs while what is seen differs from what was said.
            if cause.is_some() == state.has_begun {
                state.since = None;
                return None;
            }
            let since = *state.since.get_or_insert(facts.at);
            let wait = if state.has_begun { CALM } else { alarm.onset(profit_after) };
            if facts.at.saturating_sub(since) < wait {
                return None;
            }
            *state = AlarmState { since: None, has_begun: !state.has_begun };
            let text = cause.unwrap_or_else(|| end(alarm, facts));
            Some(AlarmTransition { alarm, begins: state.has_begun, text })
        };
        AlarmKind::ALL.into_iter().zip(&mut self.states).filter_map(of_one).collect()
    }
}

/// Returns the cause in a sentence; `None` if the alarm is not due.
fn cause(alarm: AlarmKind, facts: &AlarmInput<'_>) -> Option<String> {
    let AlarmInput { totals, .. } = facts;
    match alarm {
        AlarmKind::Exposure => totals.headroom_bytes.filter(|_| totals.is_overexposed()).map(|headroom| {
            format!(
                "{} of memory are saved by merging and folding, and the host has {} if guests write to all of it: give it swap or \
                 memory, or merge less (ksmith status; /usr/share/doc/ksmith/docs/how-to/runbooks/KsmithExposureOverHeadroom.md)",
                Bytes::from(totals.exposure_bytes),
                Bytes::from(headroom)
            )
        }),
        AlarmKind::Profit => (totals.profit_bytes < 0).then(|| {
            format!(
                "merging saves {} and its metadata takes {}: find the guests that only cost (ksmith guests --sort \
                 profit_bytes), or switch KSM off",
                Bytes::from(totals.saved_bytes),
                Bytes::from(totals.overhead_bytes)
            )
        }),
        AlarmKind::Domains => facts.breach.map(|why| format!("trust domains are to be kept apart, and are not: {why}")),
    }
}

fn end(alarm: AlarmKind, facts: &AlarmInput<'_>) -> String {
    let AlarmInput { totals, .. } = facts;
    let calm = TimeSpan(CALM);
    match alarm {
        AlarmKind::Exposure => format!(
            "the host can bear it again for {calm} if guests write to all merged and folded memory ({} are saved)",
            Bytes::from(totals.exposure_bytes)
        ),
        AlarmKind::Profit => {
            format!("merging saves more than it costs again for {calm}: {}", Bytes::from(totals.profit_bytes))
        }
        AlarmKind::Domains => format!("trust domains are kept apart again for {calm}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn totals(saved: u64, overhead: u64, headroom: u64) -> HostTotals {
        HostTotals {
            saved_bytes: saved,
            overhead_bytes: overhead,
            profit_bytes: saved as i64 - overhead as i64,
            folded_bytes: 0,
            exposure_bytes: saved,
            headroom_bytes: Some(headroom),
            is_unknown: false,
        }
    }

    fn facts(seconds: u64, totals: HostTotals) -> AlarmInput<'static> {
        AlarmInput { at: Duration::from_secs(seconds), totals, breach: None }
    }

    fn alarms() -> AlarmTracker {
        AlarmTracker::new(Duration::from_secs(3600))
    }

    #[test]
    fn exposure_over_headroom_is_told_once_and_its_end_once() {
        let mut alarms = alarms();
        let (well, over) = (totals(10, 1, 20), totals(30, 1, 20));
        let mut told = Vec::new();
        for second in 0..1000 {
            let now = if (100..500).contains(&second) { over } else { well };
            told.extend(
                alarms.update(&facts(second, now)).into_iter().map(|notice| (second, notice.begins, notice.alarm)),
            );
        }
        assert_eq!(told, [(130, true, AlarmKind::Exposure), (560, false, AlarmKind::Exposure)]);
    }

    #[test]
    fn an_unknown_headroom_ends_no_alarm() {
        let mut alarms = alarms();
        let over = totals(30, 1, 20);
        (0..40).for_each(|second| drop(alarms.update(&facts(second, over))));
        let unknown = HostTotals { headroom_bytes: None, ..over };
        assert!((40..1000).all(|second| alarms.update(&facts(second, unknown)).is_empty()));
    }

    #[test]
    fn a_figure_about_the_threshold_is_no_flood() {
        let mut alarms = alarms();
        let told: usize =
            (0..10_000).map(|second| alarms.update(&facts(second, totals(20 + second % 3, 1, 21))).len()).sum();
        assert_eq!(told, 0);
    }

    #[test]
    fn profit_must_be_negative_for_its_time() {
        let mut alarms = alarms();
        let at_a_loss = totals(1, 5, 100);
        assert_eq!(alarms.update(&facts(0, at_a_loss)), []);
        assert_eq!(alarms.update(&facts(3599, at_a_loss)), []);
        let notices = alarms.update(&facts(3600, at_a_loss));
        assert!(
            notices[0].begins && notices[0].text.contains("saves 1 B and its metadata takes 5 B"),
            "{notices:?}"
        );
        // Nothing merged costs nothing.
        assert_eq!(alarms.update(&facts(3700, totals(0, 0, 100))), []);
        assert!(!alarms.update(&facts(3760, totals(0, 0, 100)))[0].begins);
    }

    #[test]
    fn a_breach_of_domains_is_told_at_once() {
        let mut alarms = alarms();
        let breach = AlarmInput { breach: Some("guest b can't be switched off"), ..facts(5, totals(0, 0, 1)) };
        let notices = alarms.update(&breach);
        assert_eq!(notices[0].alarm, AlarmKind::Domains);
        assert!(notices[0].text.ends_with("guest b can't be switched off"));
        assert_eq!(alarms.update(&breach), []);
    }

    #[test]
    fn each_alarm_has_a_message_id_of_its_own() {
        for alarm in AlarmKind::ALL {
            let id = alarm.message_id();
            assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
            assert_eq!(
                AlarmKind::ALL
                    .iter()
                    .filter(|other| other.message_id() == id || other.word() == alarm.word())
                    .count(),
                1
            );
        }
    }

    proptest! {
        /// Whatever happens, beginnings and ends of an alarm take turns.
        #[test]
        fn beginnings_and_ends_take_turns(
            steps in proptest::collection::vec((0_u64..4000, 0_u64..40, 0_u64..40, 0_u64..40, any::<bool>()), 0..200),
        ) {
            let mut alarms = alarms();
            let (mut at, mut begun) = (0, [false; 3]);
            for (step, saved, overhead, headroom, is_breached) in steps {
                at += step;
                let breach = is_breached.then_some("why");
                for notice in alarms.update(&AlarmInput { breach, ..facts(at, totals(saved, overhead, headroom)) }) {
                    let index = AlarmKind::ALL.iter().position(|alarm| *alarm == notice.alarm).unwrap();
                    prop_assert_ne!(begun[index], notice.begins);
                    begun[index] = notice.begins;
                }
            }
        }
    }
}
