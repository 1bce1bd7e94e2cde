//! The overview that `ksmith` alone shows: KSM's state here, its potential, and the next command.

use std::collections::BTreeMap;

use ksmith_core::account::HostTotals;
use ksmith_core::guest::Guest;
use ksmith_core::kernel::RunState;
use ksmith_core::model::{GuestsReport, StatusReport};
use ksmith_core::other_controllers::{ControllerConflict, FoundController};
use ksmith_core::printable::{TextPage, TextTone};
use ksmith_core::reading::Reading;
use ksmith_core::units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// The state of KSM on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KsmState {
    /// KSM scans memory now.
    On,
    /// It does not scan, and what is merged stays merged.
    Off,
    /// It does not scan, and everything was unmerged.
    Unmerged,
    /// The kernel has no KSM.
    Absent,
    /// The kernel does not say so to this user.
    Unknown,
}

/// Guests that look equal: of one kind and program, with the same memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AlikeGuests {
    /// The number of guests.
    pub guests: usize,
    /// The kind of these guests.
    pub kind: String,
    /// The program of these guests.
    pub program: String,
    /// The memory that each of them believes to have.
    pub memory_bytes: u64,
}

/// The overview of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HostOverview {
    /// The state of KSM: on, off, unmerged, absent or unknown.
    #[schemars(with = "String")]
    pub state: KsmState,
    /// Memory that merging saves now; null if KSM's counters can't be read.
    pub saved_bytes: Option<u64>,
    /// The controllers of KSM, one name each: ksmith first.
    pub controlled_by: Vec<String>,
    /// The number of guests with mergeable memory.
    pub guests: usize,
    /// Resident memory of these guests.
    pub mergeable_bytes: u64,
    /// The number of guests that offer no memory to KSM.
    pub not_mergeable_guests: usize,
    /// Guests that look equal, the largest group first.
    pub alike: Vec<AlikeGuests>,
    /// Upper bound on what merging could save besides: all memory of these guests.
    pub upper_bound_bytes: u64,
    /// Processes that this user can't see.
    pub hidden_processes: u64,
    /// True if there may be more guests, with figures that can't be read.
    pub has_unknown_guests: bool,
    /// The next command to type.
    pub next: String,
    /// The effect of that command.
    pub next_does: String,
}

/// The inputs of the overview.
#[derive(Debug, Clone, Copy)]
pub struct OverviewInputs<'a> {
    /// The status of the host.
    pub status: &'a StatusReport,
    /// The guests of the host.
    pub guests: &'a GuestsReport,
    /// Other controllers of KSM.
    pub others: &'a [FoundController],
    /// True if the service of ksmith is active.
    pub is_service_active: bool,
    /// True if this user is root.
    pub is_root: bool,
}

impl HostOverview {
    /// Makes the overview.
    pub fn new(seen: OverviewInputs) -> Self {
        let sample = &seen.status.sample;
        let state = match (&sample.ksm.run, sample.ksm.run_state()) {
            (Reading::Absent, _) => KsmState::Absent,
            (_, Some(RunState::Running)) => KsmState::On,
            (_, Some(RunState::Stopped)) => KsmState::Off,
            (_, Some(RunState::Unmerged)) => KsmState::Unmerged,
            (_, None) => KsmState::Unknown,
        };
        let totals = HostTotals::from_sample(sample);
        let saved_bytes = (!totals.is_unknown).then_some(totals.saved_bytes);
        let (can, can_not): (Vec<&Guest>, Vec<&Guest>) = seen
            .guests
            .guests
            .iter()
            .partition(|guest| guest.mergeable != Some(false) && guest.lasting_obstacle().is_none());
        let mergeable_bytes =
            can.iter().fold(0_u64, |sum, guest| sum.saturating_add(guest.figures.known_rss_bytes()));
        let mut overview = Self {
            state,
            saved_bytes,
            controlled_by: controlled_by(seen),
            guests: can.len(),
            mergeable_bytes,
            not_mergeable_guests: can_not.len(),
            alike: alike(&can),
            upper_bound_bytes: mergeable_bytes.saturating_sub(totals.saved_bytes),
            hidden_processes: sample.hidden_processes,
            has_unknown_guests: sample.has_unknown_figures(),
            next: String::new(),
            next_does: String::new(),
        };
        let (command, does) = overview.next(seen);
        // A command that needs root is typed by root as it is.
        overview.next =
            if seen.is_root { command.trim_start_matches("sudo ").to_owned() } else { command.to_owned() };
        overview.next_does = does.to_owned();
        overview
    }

    fn next(&self, seen: OverviewInputs) -> (&'static str, &'static str) {
        let has_rival = seen
            .others
            .iter()
            .any(|found| found.runs() && found.controller.conflict == ControllerConflict::Certain);
        match self.state {
            KsmState::Absent | KsmState::Unknown => ("ksmith doctor", "says why, and what to do"),
            _ if seen.status.daemon.is_some() => ("ksmith top", "shows each guest, live"),
            _ if seen.is_service_active => ("sudo ksmith top", "shows each guest, live"),
            _ if has_rival => ("ksmith doctor", "says what controls KSM here, and how it hands over"),
            _ if self.guests > 0 => ("sudo ksmith estimate", "reads the memory and says what KSM would save"),
            _ if self.not_mergeable_guests > 0 => ("ksmith doctor", "says why no guest offers its memory"),
            _ if self.hidden_processes > 0 => ("sudo ksmith", "sees the processes of all users"),
            _ => ("sudo ksmith demo", "shows merging on four small guests"),
        }
    }
}

fn controlled_by(seen: OverviewInputs) -> Vec<String> {
    let own = match &seen.status.daemon {
        Some(daemon) => Some(format!("ksmith (pid {}), policy {}: {}", daemon.pid, daemon.policy, daemon.state)),
        None => seen.is_service_active.then(|| "ksmith.service; only root may ask it".to_owned()),
    };
    let is_meant = |found: &&FoundController| {
        found.runs()
            && !matches!(found.controller.conflict, ControllerConflict::AtStart | ControllerConflict::Possible)
    };
    own.into_iter().chain(seen.others.iter().filter(is_meant).map(ToString::to_string)).collect()
}

fn alike(guests: &[&Guest]) -> Vec<AlikeGuests> {
    let mut groups: BTreeMap<(String, String, u64), usize> = BTreeMap::new();
    for guest in guests {
        if let Some(memory) = guest.memory_bytes {
            *groups.entry((guest.kind.word().to_owned(), guest.program.clone(), memory)).or_default() += 1;
        }
    }
    let mut alike: Vec<AlikeGuests> = groups
        .into_iter()
        .filter(|(_, guests)| *guests > 1)
        .map(|((kind, program, memory_bytes), guests)| AlikeGuests { guests, kind, program, memory_bytes })
        .collect();
    alike.sort_by_key(|group| std::cmp::Reverse((group.guests, group.memory_bytes)));
    alike
}

/// Most groups of equal-looking guests in the text; JSON has all.
const SHOWN: usize = 3;

/// Returns the text for people.
pub fn text(overview: &HostOverview) -> TextPage {
    let mut page = TextPage::new();
    let saved = overview.saved_bytes.map_or("an unknown amount".to_owned(), |bytes| Bytes::from(bytes).to_string());
    match overview.state {
        KsmState::On => page.toned(TextTone::Good, format_args!("KSM       on; saves {saved} now")),
        KsmState::Off if overview.saved_bytes == Some(0) => page.line("KSM       off; saves nothing"),
        KsmState::Off => page.line(format_args!("KSM       off; {saved} stay saved from before")),
        KsmState::Unmerged => page.line("KSM       off; everything was unmerged"),
        KsmState::Absent => {
            page.toned(TextTone::Problem, "KSM       this kernel has none: no memory can be merged here")
        }
        KsmState::Unknown => page.toned(TextTone::Problem, "KSM       its state can't be read"),
    }
    let by = match overview.controlled_by.as_slice() {
        [] => "no program".to_owned(),
        names => names.join("; "),
    };
    if overview.state != KsmState::Absent {
        page.line(format_args!("control   {by}"));
    }
    page.line(format_args!("guests    {}", guests(overview)));
    let groups = overview.alike.iter().take(SHOWN);
    page.lines(groups.map(|group| {
        format!(
            "          {} look equal: {} ({}), {} each",
            group.guests,
            group.program,
            group.kind,
            Bytes::from(group.memory_bytes)
        )
    }));
    if overview.guests > 0 && overview.state != KsmState::Absent {
        page.line(format_args!(
            "could     save at most {} besides, if all of that had equals; only an estimate tells",
            Bytes::from(overview.upper_bound_bytes)
        ));
    }
    if overview.hidden_processes > 0 {
        page.line(format_args!(
            "not seen  {} processes of other users: `sudo ksmith` sees them",
            overview.hidden_processes
        ));
    }
    page.line(format_args!("next      `{}` {}", overview.next, overview.next_does));
    page.line("");
    page.toned(TextTone::Faint, "`ksmith --help` lists all commands");
    page
}

fn guests(overview: &HostOverview) -> String {
    let not = match overview.not_mergeable_guests {
        0 => String::new(),
        guests => format!("; {guests} without: `ksmith doctor NAME` says why"),
    };
    match overview.guests {
        guests if overview.state == KsmState::Absent => {
            format!("{guests}, {} resident", Bytes::from(overview.mergeable_bytes))
        }
        0 if overview.has_unknown_guests => format!("none that can be read{not}"),
        0 => format!("none with mergeable memory{not}"),
        guests => {
            format!("{guests} with mergeable memory, {} resident{not}", Bytes::from(overview.mergeable_bytes))
        }
    }
}
