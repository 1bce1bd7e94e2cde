//! Snapshots that the store records.

use ksmith_core::figures::FigureScalar;
use ksmith_core::guest::Guest;

use crate::columns;

/// A snapshot of the host, with the decisions and events since the previous snapshot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HistorySnapshot {
    /// Wall-clock time in milliseconds since 1970.
    pub time: i64,
    /// The host's figures, in the order of [`columns::host`]. Empty if this snapshot records none.
    pub host: Vec<FigureScalar>,
    /// The guests of the host. `None` if this snapshot records none.
    pub guests: Option<Vec<GuestFigures>>,
    /// The decisions since the previous snapshot.
    pub decisions: Vec<DecisionMade>,
    /// The events since the previous snapshot.
    pub events: Vec<HistoryEvent>,
}

/// A guest with its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct GuestFigures {
    /// Identity and metadata, which rarely change in the guest's life.
    pub life: GuestIdentity,
    /// Its figures, in the order of [`columns::guest`].
    pub values: Vec<FigureScalar>,
}

/// A guest's identity and metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GuestIdentity {
    /// Its key, `PID:START`, unique until the host reboots.
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
    /// Its labels as a JSON object, such as `{"role":"db"}`; `None` if it has none.
    pub labels: Option<String>,
}

/// Limit of characters in text that a guest's user chose.
const LONGEST: usize = 200;

fn cut(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

impl From<&Guest> for GuestFigures {
    fn from(guest: &Guest) -> Self {
        let life = GuestIdentity {
            key: guest.id().to_string(),
            name: cut(&guest.name),
            uuid: guest.uuid.as_deref().map(cut),
            kind: guest.kind.to_string(),
            program: cut(&guest.program),
            user: guest.user.as_deref().map(cut),
            cgroup: guest.cgroup.as_deref().map(cut),
            domain: guest.domain.clone(),
            labels: (!guest.labels.is_empty()).then(|| serde_json::json!(guest.labels).to_string()),
        };
        Self { life, values: columns::guest_values(guest) }
    }
}

/// The policy name under which fold decisions are recorded.
pub const FOLD_POLICY: &str = "fold";

/// The policy name under which the switches of pruning are recorded.
pub const PRUNE_POLICY: &str = "prune";

/// Returns true if decisions under this policy name go on beside the policy, and end no decision of it.
pub fn is_beside_the_policy(policy: &str) -> bool {
    [FOLD_POLICY, PRUNE_POLICY].contains(&policy)
}

/// A decision and the settings that it changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionMade {
    /// Milliseconds since 1970.
    pub time: i64,
    /// Name of the policy.
    pub policy: String,
    /// Its state, in a word.
    pub state: String,
    /// The reason, in a short line.
    pub reason: String,
    /// The arithmetic behind the reason, if there is any.
    pub reason_detail: Option<String>,
    /// The settings that were changed: `run 0 -> 1, pages_to_scan 100 -> 4000`.
    pub settings: String,
}

/// A recorded event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEvent {
    /// Milliseconds since 1970.
    pub time: i64,
    /// The kind of the event.
    pub kind: EventKind,
    /// Description of the event, in a sentence.
    pub text: String,
}

/// The kind of an event.
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
    /// The wall clock was set.
    ClockSet,
    /// Samples were not recorded.
    Gap,
}

impl EventKind {
    /// Returns the kind's name in the file and in JSON.
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
