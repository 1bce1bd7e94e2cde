//! The state machine of `profit`, as one table.
//!
//! At each sample the state and the [`MachineEvent`] select rows of [`TRANSITIONS`]. The first row whose guard holds is
//! taken, and its [`MachineAction`] is carried out by [`super::ProfitPolicy`]. Guards only read: beliefs are in
//! [`super::model`], what a scan is worth in [`super::worth`].

use super::arrivals::ArrivalModel;
use super::config::ProfitConfig;
use super::guests::GuestChanges;
use super::model::ProfitModel;
use super::scan_reason::ScanReason;
use super::situation::HostSituation;
use super::state::{ParkedPhase, ProfitState};
use super::unfinished::may_have_missed;
use super::worth;
use crate::scan::{ScanReport, ScanStatus};

/// The kind of a [`ProfitState`], by which rows are selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// In any state.
    Any,
    Forgotten,
    Parked,
    Scanning,
}

/// The news of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineEvent {
    /// No process has mergeable memory, and ksmd tracks no page.
    NoMemory,
    /// A sample without news of a scan.
    Sample,
    /// ksmd has pages left to visit.
    ScanGoesOn,
    /// ksmd has visited all pages as often as the scan says.
    ScanEnds,
    /// ksmd makes no progress: it found no page, or another program stops it.
    ScanStalls,
    /// `full_scans` was reset, so that the end of the scan can't be told.
    ScanIsLost,
}

/// The effect of a transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineAction {
    /// Leaves ksmd parked, and forgets what was scanned.
    Forget,
    /// Leaves ksmd parked.
    Watch,
    /// Starts a scan.
    Start(ScanReason),
    /// Starts the scan for which ksmd was parked.
    StartNext,
    /// Goes on with the scan.
    CarryOn,
    /// Makes it a burst, and begins the count of its passes anew.
    BeginAnew,
    /// Gives the scan up, and parks until a probe.
    GiveUp,
    /// Learns from the scan, and parks until a scan of that reason is due.
    Judge(ScanReason),
}

/// A guard: a condition on the turn.
type Guard = fn(&Turn<'_>) -> bool;

/// A row of the table.
pub struct Transition {
    pub state: StateKind,
    pub event: MachineEvent,
    guard: Guard,
    pub action: MachineAction,
    /// The guard in words, as docs/internals/policies.md has it.
    #[cfg_attr(not(test), allow(dead_code, reason = "a test compares the documentation with it"))]
    pub when: &'static str,
}

/// All that a guard may read.
pub struct Turn<'a> {
    pub state: &'a ProfitState,
    pub event: MachineEvent,
    /// The report on the scan, while ksmd scans.
    pub report: Option<&'a ScanReport>,
    /// True if the memory that has grown during a scan is worth that its count of passes begins anew.
    pub begins_anew: bool,
    pub changes: GuestChanges,
    pub model: &'a ProfitModel,
    pub config: &'a ProfitConfig,
    pub now: &'a HostSituation,
}

use MachineAction::{BeginAnew, CarryOn, Forget, GiveUp, Judge, Start, StartNext, Watch};
use MachineEvent::{NoMemory, Sample, ScanEnds, ScanGoesOn, ScanIsLost, ScanStalls};
use ScanReason::{Burst, Finish, Probe, Retry, Revisit, Sustain, Tidy};
use StateKind::{Any, Forgotten, Parked, Scanning};

const fn row(
    state: StateKind,
    event: MachineEvent,
    when: &'static str,
    guard: Guard,
    action: MachineAction,
) -> Transition {
    Transition { state, event, guard, action, when }
}

/// The table. Scans that may be started from `Parked` stand in the order of how surely their gain is known.
#[rustfmt::skip]
pub const TRANSITIONS: &[Transition] = &[
    row(Any,       NoMemory,   "always",                                           always,          Forget),
    row(Forgotten, Sample,     "guests have ended, and ksmd still tracks pages",   has_no_guests,   Start(Tidy)),
    row(Forgotten, Sample,     "ksmd waits",                                      waits,           Watch),
    row(Forgotten, Sample,     "new guests still fill their memory",               fills,           Watch),
    row(Forgotten, Sample,     "always",                                           always,          Start(Burst)),
    row(Parked,    Sample,     "ksmd waits, and a tidying pass is worth it",       waits_and_tidies, Start(Tidy)),
    row(Parked,    Sample,     "ksmd waits, and split huge pages are unfinished",  waits_to_finish, StartNext),
    row(Parked,    Sample,     "ksmd waits",                                      waits,           Watch),
    row(Parked,    Sample,     "new memory is worth two passes",                   burst_pays,      Start(Burst)),
    row(Parked,    Sample,     "ended guests' metadata is worth a smart pass",     tidy_pays,       Start(Tidy)),
    row(Parked,    Sample,     "stable changed pages are worth two visits of all", revisit_pays,    Start(Revisit)),
    row(Parked,    Sample,     "the next scan is due",                             next_is_due,     StartNext),
    row(Parked,    Sample,     "always",                                           always,          Watch),
    row(Scanning,  ScanIsLost, "always",                                           always,          BeginAnew),
    row(Scanning,  ScanGoesOn, "memory grew, and the burst pays so far",           begins_anew,     BeginAnew),
    row(Scanning,  ScanGoesOn, "always",                                           always,          CarryOn),
    row(Scanning,  ScanStalls, "memory grew, and the burst pays so far",           begins_anew,     BeginAnew),
    row(Scanning,  ScanStalls, "always",                                           always,          GiveUp),
    row(Scanning,  ScanEnds,   "memory grew, and the burst pays so far",           begins_anew,     BeginAnew),
    row(Scanning,  ScanEnds,   "it has split huge pages",                         has_split,       Judge(Finish)),
    row(Scanning,  ScanEnds,   "ksmd waits",                                      waits,           Judge(Probe)),
    row(Scanning,  ScanEnds,   "new guests have likely missed equal pages",        has_missed,      Judge(Retry)),
    row(Scanning,  ScanEnds,   "no samples, and changing pages are worth a pass",  sustain_pays,    Judge(Sustain)),
    row(Scanning,  ScanEnds,   "always",                                           always,          Judge(Probe)),
];

impl Turn<'_> {
    /// Returns the action of the first row that applies. A turn without a row leaves ksmd as it is.
    pub fn action(&self) -> MachineAction {
        let kind = self.state.kind();
        let applies = |row: &&Transition| {
            (row.state == Any || row.state == kind) && row.event == self.event && (row.guard)(self)
        };
        TRANSITIONS.iter().find(applies).map_or(Watch, |row| row.action)
    }
}

impl ProfitState {
    fn kind(&self) -> StateKind {
        match self {
            Self::Forgotten => Forgotten,
            Self::Scanning(_) => Scanning,
            Self::Parked(_) => Parked,
        }
    }
}

impl MachineEvent {
    /// Derives the news from the guests and, while ksmd scans, from the scan's report.
    pub fn from_report(report: Option<&ScanReport>, now: &HostSituation) -> Self {
        match report.map(|report| report.status) {
            _ if now.processes.is_empty() && now.ksmd.tracked == 0 => NoMemory,
            None => Sample,
            Some(ScanStatus::Running) => ScanGoesOn,
            Some(ScanStatus::Done) => ScanEnds,
            Some(ScanStatus::Stalled) => ScanStalls,
            Some(ScanStatus::Lost) => ScanIsLost,
        }
    }
}

fn always(_: &Turn<'_>) -> bool {
    true
}

fn waits(turn: &Turn<'_>) -> bool {
    turn.now.waits.is_some()
}

/// With `after_init` what guests have obtained counts once they have filled their memory.
fn fills(turn: &Turn<'_>) -> bool {
    turn.config.after_init && turn.changes.grown_bytes == 0
}

/// A pass that tidies up splits little, and KSM's counters need it.
fn waits_and_tidies(turn: &Turn<'_>) -> bool {
    waits(turn) && tidy_pays(turn)
}

/// A burst finishes its splits, also where it has ended the shortage itself.
fn waits_to_finish(turn: &Turn<'_>) -> bool {
    let is_due = |parked: &ParkedPhase| parked.next == Finish && turn.now.ksmd.at >= parked.until;
    waits(turn) && parked(turn).is_some_and(is_due)
}

fn has_no_guests(turn: &Turn<'_>) -> bool {
    turn.now.processes.is_empty()
}

fn burst_pays(turn: &Turn<'_>) -> bool {
    worth::of_burst(turn.model, turn.changes, turn.now) >= 1.0
}

fn tidy_pays(turn: &Turn<'_>) -> bool {
    parked(turn).is_some_and(|parked| worth::of_tidying(parked, turn.changes, turn.config, turn.now) >= 1.0)
}

fn revisit_pays(turn: &Turn<'_>) -> bool {
    worth::of_revisit(turn.model, turn.now) >= 1.0
}

fn next_is_due(turn: &Turn<'_>) -> bool {
    parked(turn).is_some_and(|parked| worth::is_next_due(parked, turn.model, turn.changes, turn.config, turn.now))
}

fn begins_anew(turn: &Turn<'_>) -> bool {
    turn.begins_anew && !waits(turn)
}

fn has_split(turn: &Turn<'_>) -> bool {
    let (ProfitState::Scanning(running), Some(report)) = (turn.state, turn.report) else { return false };
    let pass_pays = |bytes: u64| bytes as f64 >= turn.now.ksmd.clean_pass_seconds * turn.now.price;
    let saved = u64::try_from(report.outcome.saved_bytes).unwrap_or(0);
    let may_finish = match running.reason {
        Tidy => false,
        Burst => running.scan.job().coverage.is_clean() || !ArrivalModel::is_dear(turn.now),
        // Others split huge pages too: a pass that merged little is not repeated for them.
        _ => saved >= turn.now.growth_bytes && pass_pays(saved),
    };
    let split_bytes = report.split_huge_pages.saturating_mul(turn.now.ksmd.huge_page_bytes);
    may_finish && split_bytes >= turn.now.growth_bytes && pass_pays(split_bytes)
}

fn has_missed(turn: &Turn<'_>) -> bool {
    let (ProfitState::Scanning(running), Some(report)) = (turn.state, turn.report) else { return false };
    may_have_missed(running, report, &turn.model.growth, turn.changes, turn.now)
}

fn sustain_pays(turn: &Turn<'_>) -> bool {
    let ProfitState::Scanning(running) = turn.state else { return false };
    running.scan.job().coverage.is_clean() && worth::of_sustaining(turn.model, turn.now) >= 1.0
}

fn parked<'a>(turn: &Turn<'a>) -> Option<&'a ParkedPhase> {
    match turn.state {
        ProfitState::Parked(parked) => Some(parked),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_row_of_each_state_and_event_always_applies() {
        for row in TRANSITIONS {
            let last = TRANSITIONS.iter().rfind(|other| (other.state, other.event) == (row.state, row.event));
            assert_eq!(last.map(|last| last.when), Some("always"), "{:?} {:?}", row.state, row.event);
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a page of this repository")]
    fn the_documentation_has_the_table() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/policies.md");
        let page = std::fs::read_to_string(page).unwrap();
        for row in TRANSITIONS {
            let line = format!("| {:?} | {:?} | {} | {:?} |", row.state, row.event, row.when, row.action);
            assert!(page.contains(&line), "docs/internals/policies.md lacks this line:\n{line}");
        }
    }
}
