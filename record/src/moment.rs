//! What is recorded at one moment.

use ksmith_core::figures::Value;
use ksmith_core::guest::Guest;

use crate::columns;

/// The host at one moment, with what was decided and what happened since the moment before.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Moment {
    /// Milliseconds since 1970 by the clock of the day.
    pub time: i64,
    /// The host's figures, in the order of [`columns::host`]. Empty: they are not recorded this time.
    pub host: Vec<Value>,
    /// The guests of the host. `None`: they are not recorded this time.
    pub guests: Option<Vec<GuestFigures>>,
    /// The decisions since the moment before.
    pub decisions: Vec<DecisionMade>,
    /// The events since the moment before.
    pub events: Vec<Event>,
}

/// A guest with its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestFigures {
    /// What does not change in the guest's life, but for what is learned of it.
    pub life: Life,
    /// Its figures, in the order of [`columns::guest`].
    pub values: Vec<Value>,
}

/// A guest from its start to its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    /// Its key, `PID:START`, which is its own until the host is started again.
    pub key: String,
    /// Name of the guest.
    pub name: String,
    /// UUID of the guest.
    pub uuid: Option<String>,
    /// Its kind, such as `qemu`.
    pub kind: String,
    /// The program of its first process.
    pub program: String,
    /// The user of its first process.
    pub user: Option<String>,
    /// The cgroup of its first process.
    pub cgroup: Option<String>,
    /// Its trust domain.
    pub domain: Option<String>,
}

/// Characters of a text that a guest's user chose, at most.
const LONGEST: usize = 200;

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

impl From<&Guest> for GuestFigures {
    fn from(guest: &Guest) -> Self {
        let life = Life {
            key: guest.id().to_string(),
            name: cut(&guest.name),
            uuid: guest.uuid.as_deref().map(cut),
            kind: guest.kind.to_string(),
            program: cut(&guest.program),
            user: guest.user.as_deref().map(cut),
            cgroup: guest.cgroup.as_deref().map(cut),
            domain: guest.domain.clone(),
        };
        Self { life, values: columns::guest_values(guest) }
    }
}

/// The policy that decisions to fold are recorded under.
pub const FOLD_POLICY: &str = "fold";

/// A decision with what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionMade {
    /// Milliseconds since 1970.
    pub time: i64,
    /// Name of the policy.
    pub policy: String,
    /// Its state, in a word.
    pub state: String,
    /// The reason, in a sentence.
    pub reason: String,
    /// The settings that were changed: `run 0 -> 1, pages_to_scan 100 -> 4000`.
    pub settings: String,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Milliseconds since 1970.
    pub time: i64,
    /// What kind of event it is.
    pub kind: EventKind,
    /// What happened, in a sentence.
    pub text: String,
}

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The daemon began to record.
    DaemonStarted,
    /// The daemon ended.
    DaemonStopped,
    /// Another program changed a setting.
    SettingChangedByOthers,
    /// A setting could not be written, or a source could not be read.
    Problem,
    /// An alarm began or ended.
    Alarm,
    /// The clock of the day was set.
    ClockSet,
    /// Samples were not recorded.
    Gap,
}

impl EventKind {
    /// Its word in the file and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::DaemonStarted => "daemon_started",
            Self::DaemonStopped => "daemon_stopped",
            Self::SettingChangedByOthers => "setting_changed_by_others",
            Self::Problem => "problem",
            Self::Alarm => "alarm",
            Self::ClockSet => "clock_set",
            Self::Gap => "gap",
        }
    }
}
