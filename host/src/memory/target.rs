//! Processes to read, and the guests to which they belong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{EstimateError, SkippedProcess, UnreadableProcess};
use super::process::{MappingDetail, OpenProcess, ProcessMemory};
use crate::users::user_name;

/// The user's selection of processes.
#[derive(Debug, Clone, Default)]
pub struct TargetSelection {
    /// The PIDs of processes to read.
    pub pids: Vec<u32>,
    /// True for every process with mergeable memory, or every virtual machine if there is none. Implied by an empty
    /// selection.
    pub all: bool,
    /// The grouping of processes into guests.
    pub by: GuestGrouping,
    /// For [`GuestGrouping::Domain`]: the domain of each process, by its PID. A process that is missing here has no domain and
    /// counts by itself.
    pub domains: BTreeMap<u32, String>,
}

/// A grouping of processes into guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestGrouping {
    /// Each process is one guest.
    #[default]
    Process,
    /// All processes of a program.
    Program,
    /// All processes of a user.
    User,
    /// All processes of a control group.
    Cgroup,
    /// All processes of a trust domain.
    Domain,
}

/// A process to read.
#[derive(Debug)]
pub struct ReadTarget {
    /// The process's PID.
    pub pid: u32,
    /// The index of its guest.
    pub guest: u32,
    /// The process's memory.
    pub memory: ProcessMemory,
    exited: AtomicBool,
}

impl ReadTarget {
    /// Returns true if it ended while it was read.
    pub fn has_exited(&self) -> bool {
        self.exited.load(Ordering::Relaxed)
    }

    /// Records that it ended.
    pub fn note_exit(&self) {
        self.exited.store(true, Ordering::Relaxed);
    }
}

/// A guest: one process, or those that are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetGuest {
    /// The guest's name.
    pub name: Arc<str>,
    /// The PIDs of its processes.
    pub pids: Vec<u32>,
}

/// All processes to read, by guest.
#[derive(Debug, Default)]
pub struct TargetSet {
    /// Guests, in the order of the report.
    pub guests: Vec<TargetGuest>,
    /// The processes of the guests.
    pub targets: Vec<ReadTarget>,
    /// Selected processes that can't be read.
    pub skipped: Vec<SkippedProcess>,
}

impl TargetSet {
    /// Finds the processes and opens their memory.
    ///
    /// # Errors
    /// Nothing can be read.
    pub fn select(selection: &TargetSelection) -> Result<Self, EstimateError> {
        let mut found = Self::default();
        let mut processes = Vec::new();
        for &pid in &selection.pids {
            match OpenProcess::open(pid) {
                Ok(process) => processes.push(process),
                Err(why) => found.skipped.push(SkippedProcess { pid, why }),
            }
        }
        if selection.all || selection.pids.is_empty() {
            processes.extend(mergeable_or_machines()?);
        }
        processes.sort_by_key(|process| process.pid);
        processes.dedup_by_key(|process| process.pid);
        found.open(processes, selection);
        let denied = found.skipped.iter().filter(|skipped| skipped.why == UnreadableProcess::Denied).count();
        match found.targets.is_empty() {
            true if denied > 0 => Err(EstimateError::NoPrivilege(found.skipped.len())),
            true => Err(EstimateError::NoneLeft(std::mem::take(&mut found.skipped))),
            false => Ok(found),
        }
    }

    fn open(&mut self, processes: Vec<OpenProcess>, selection: &TargetSelection) {
        let mut numbers: BTreeMap<(bool, String), u32> = BTreeMap::new();
        for process in processes {
            let memory = match process.memory(MappingDetail::Figures) {
                Ok(memory) => memory,
                Err(why) => {
                    self.skipped.push(SkippedProcess { pid: process.pid, why });
                    continue;
                }
            };
            let domain = selection.domains.get(&process.pid).filter(|_| selection.by == GuestGrouping::Domain);
            let is_alone =
                domain.is_none() && matches!(selection.by, GuestGrouping::Process | GuestGrouping::Domain);
            let key = match selection.by {
                GuestGrouping::Process | GuestGrouping::Domain => {
                    domain.map_or_else(|| process.pid.to_string(), Clone::clone)
                }
                GuestGrouping::Program => process.program.to_string(),
                GuestGrouping::User => process.user().map_or_else(
                    || "unknown user".to_owned(),
                    |uid| user_name(uid).unwrap_or_else(|| uid.to_string()),
                ),
                GuestGrouping::Cgroup => process.cgroup().map_or_else(|| "unknown cgroup".to_owned(), printable),
            };
            let guest = *numbers.entry((is_alone, key.clone())).or_insert_with(|| {
                let name = if is_alone { Arc::clone(&process.name) } else { key.into() };
                self.guests.push(TargetGuest { name, pids: Vec::new() });
                (self.guests.len() - 1) as u32
            });
            if let Some(guest) = self.guests.get_mut(guest as usize) {
                guest.pids.push(process.pid);
            }
            self.targets.push(ReadTarget { pid: process.pid, guest, memory, exited: AtomicBool::new(false) });
        }
    }
}

/// Opens every process of this host except kernel threads and this process.
fn every_process() -> Vec<OpenProcess> {
    let own = std::process::id();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|&pid| pid != own).filter_map(|pid| OpenProcess::open(pid).ok()).collect()
}

fn mergeable_or_machines() -> Result<Vec<OpenProcess>, EstimateError> {
    let (mergeable, others): (Vec<_>, Vec<_>) = every_process().into_iter().partition(OpenProcess::is_involved);
    if !mergeable.is_empty() {
        return Ok(mergeable);
    }
    let hidden = others.iter().filter(|process| process.hides_ksm()).count();
    let machines: Vec<_> = others.into_iter().filter(|process| process.is_vm).collect();
    match machines.is_empty() {
        false => Ok(machines),
        true if hidden > 0 && !rustix::process::geteuid().is_root() => Err(EstimateError::NoPrivilege(hidden)),
        true => Err(EstimateError::NothingFound),
    }
}

/// Returns the text without control characters: any user who may make a control group chooses its name.
fn printable(text: String) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}
