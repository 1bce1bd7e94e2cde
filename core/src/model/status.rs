//! The model of `ksmith status`: the host's KSM at one moment.

use serde::{Deserialize, Serialize};

use super::{BalanceStatus, HistoryStatus, SketchStatus};
use crate::account::{self, ProcessShare};
use crate::decide::domains::DomainsReport;
use crate::guest::Guest;
use crate::reading::Reading;
use crate::sample::Sample;
use crate::units::CountedNoun;

/// The directory of KSM's files.
const KSM: &str = "/sys/kernel/mm/ksm";

/// Everything that `ksmith status` shows, as the daemon sends it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct StatusReport {
    /// The newest sample.
    pub sample: Sample,
    /// Per cent of one CPU that ksmd uses. `None` where it can't be measured.
    pub ksmd_cpu_percent: Option<f64>,
    /// The daemon that controls KSM, if there is one.
    pub daemon: Option<DaemonStatus>,
    /// The trust domains, and what they may share. `None` where guests were not listed.
    pub domains: Option<DomainsReport>,
    /// The state of balance. `None` where no daemon balances.
    pub balance: Option<BalanceStatus>,
    /// The state of the history. `None` where no daemon records.
    #[serde(default)]
    pub history: Option<HistoryStatus>,
    /// The state of the sketch file. `None` where no daemon keeps one.
    #[serde(default)]
    pub sketch: Option<SketchStatus>,
    /// Memory that the virtual machines believe to have. `None` where guests were not listed, or none says.
    #[serde(default)]
    pub committed_bytes: Option<u64>,
}

/// The state of a running daemon and of its policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// The daemon's PID.
    pub pid: u32,
    /// The policy in charge.
    pub policy: String,
    /// The policy's state, in one word.
    pub state: String,
    /// The reason of its last decision, in a short line.
    pub reason: String,
    /// The arithmetic behind the reason, if there is any.
    #[serde(default)]
    pub reason_detail: Option<String>,
    /// CPU time the daemon itself has used, in seconds.
    pub cpu_seconds: f64,
    /// The daemon's resident memory.
    pub rss_bytes: u64,
    /// Seconds since it started.
    pub uptime_seconds: f64,
    /// The part of one CPU that ksmd may use: `[limits] max_cpu`.
    #[serde(default)]
    pub max_cpu: Option<f64>,
    /// The time at which a pause of merging ends, in seconds since 1970. `None` if none has an end.
    #[serde(default)]
    pub paused_until: Option<f64>,
}

/// Returns the memory that these guests believe to have; `None` if none says. Only verified guests count: any user can
/// write a size on a command line.
pub fn committed_bytes(guests: &[Guest]) -> Option<u64> {
    guests
        .iter()
        .filter(|guest| guest.is_verified)
        .filter_map(|guest| guest.memory_bytes)
        .reduce(u64::saturating_add)
}

/// One process with mergeable memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The process's PID.
    pub pid: u32,
    /// The guest's or the program's name.
    pub name: String,
    /// Resident bytes; merged pages count in full. `None` if the kernel shows an impossible number.
    pub rss_bytes: Option<u64>,
    /// Its part of what the host saves.
    pub share: ProcessShare,
}

impl StatusReport {
    /// The processes with their shares, and the bytes saved in processes that hide their figures.
    pub fn processes(&self) -> (Vec<ProcessStatus>, u64) {
        let (shares, unattributed) = account::shares(&self.sample);
        let processes = self.sample.processes.iter().zip(shares).map(|(process, share)| ProcessStatus {
            pid: process.id.pid,
            name: process.name.to_string(),
            rss_bytes: process.rss_bytes,
            share,
        });
        (processes.collect(), unattributed)
    }

    /// Memory that the virtual machines believe to have, divided by the host's.
    pub fn overcommit_ratio(&self) -> Option<f64> {
        let total = self.sample.host.memory.value()?.total.filter(|total| *total > 0)?;
        Some(self.committed_bytes? as f64 / total as f64)
    }

    /// The most mappings that one merged page can have; 0 if nothing is merged. The kernel keeps no page with more than
    /// `max_page_sharing`, and all pages together have `pages_sharing` mappings beyond the first of each.
    pub fn most_sharers(&self) -> Option<u64> {
        let ksm = &self.sample.ksm;
        let sharing = *ksm.pages_sharing.value()?;
        let bound = ksm.max_page_sharing.value().copied().unwrap_or(u64::MAX);
        Some(if ksm.pages_shared.value() == Some(&0) { 0 } else { sharing.saturating_add(1).min(bound) })
    }

    /// The sources of the sample, each with its faults, one sentence each. A file that this kernel lacks has none.
    pub fn sources(&self) -> Vec<(&'static str, Vec<String>)> {
        let sample = &self.sample;
        let ksm = sample.ksm.entries();
        let of_ksm = ksm.filter_map(|(field, reading)| fault(&format!("{KSM}/{}", field.name), &reading)).collect();
        let of = |source: &'static str, fault: Option<String>| (source, Vec::from_iter(fault));
        let of_host = sample.host.outcomes().map(|(path, outcome)| of(path, fault(path, &outcome)));
        let of_ksmd = of("ksmd", fault("ksmd's schedstat", &sample.ksmd_cpu_ns));
        [(KSM, of_ksm), of_ksmd].into_iter().chain(of_host).collect()
    }

    /// Returns the read errors, one sentence each. Files that this kernel lacks are not among them.
    pub fn errors(&self) -> Vec<String> {
        let sample = &self.sample;
        let mut errors: Vec<String> = self.sources().into_iter().flat_map(|(_, faults)| faults).collect();
        if sample.hidden_processes > 0 {
            errors.push(describe_hidden(sample.hidden_processes));
        }
        errors.extend(sample.given_up.sentences());
        let problem = self.history.as_ref().and_then(|history| history.problem.as_ref());
        errors.extend(problem.map(|why| format!("the history is not recorded: {why}")));
        let problem = self.sketch.as_ref().and_then(|sketch| sketch.problem.as_ref());
        errors.extend(problem.map(|why| format!("no sketch file is written: {why}")));
        errors
    }
}

/// Describes processes that hide their figures.
pub(super) fn describe_hidden(processes: u64) -> String {
    let hidden =
        CountedNoun { count: processes, noun: "process" }.with_verb("does not show its", "do not show their");
    format!("{hidden} KSM figures to this user; run as root to see all")
}

fn fault<T>(source: &str, reading: &Reading<T>) -> Option<String> {
    match reading {
        Reading::Denied => Some(format!("{source}: permission denied; run as root")),
        Reading::Malformed(why) => Some(format!("{source}: {why}")),
        Reading::Value(_) | Reading::Absent => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Meminfo;
    use crate::sample::ProcessId;

    fn status(pages: [Option<u64>; 3]) -> StatusReport {
        let mut status = StatusReport::default();
        let [shared, sharing, bound] = pages.map(|pages| pages.map_or(Reading::Absent, Reading::Value));
        let ksm = &mut status.sample.ksm;
        (ksm.pages_shared, ksm.pages_sharing, ksm.max_page_sharing) = (shared, sharing, bound);
        status
    }

    #[test]
    fn the_sharers_of_a_page_are_bounded_by_the_kernel_and_by_what_is_merged() {
        let most = |pages| status(pages).most_sharers();
        assert_eq!(most([Some(10), Some(1000), Some(256)]), Some(256));
        assert_eq!(most([Some(10), Some(30), Some(256)]), Some(31));
        assert_eq!(most([Some(0), Some(0), Some(256)]), Some(0), "nothing is merged");
        assert_eq!(most([Some(10), Some(1000), None]), Some(1001), "before Linux 4.4");
        assert_eq!(most([None, None, Some(256)]), None);
    }

    #[test]
    fn one_hidden_process_is_singular() {
        let hidden = |hidden_processes| {
            let sample = Sample { hidden_processes, ..Sample::default() };
            StatusReport { sample, ..StatusReport::default() }.errors()
        };
        assert_eq!(hidden(0), Vec::<String>::new());
        assert_eq!(hidden(1), ["1 process does not show its KSM figures to this user; run as root to see all"]);
        assert_eq!(hidden(2), ["2 processes do not show their KSM figures to this user; run as root to see all"]);
    }

    #[test]
    fn virtual_machines_that_are_not_verified_or_do_not_say_their_memory_overcommit_nothing() {
        let guest = |memory_bytes| Guest {
            memory_bytes,
            is_verified: true,
            ..Guest::plain("a", ProcessId { pid: 1, start_ticks: 1 })
        };
        let any_users = Guest { is_verified: false, ..guest(Some(1 << 50)) };
        let committed_bytes =
            committed_bytes(&[guest(Some(3 << 30)), guest(None), any_users, guest(Some(3 << 30))]);
        let memory = Reading::Value(Meminfo { total: Some(4 << 30), ..Meminfo::default() });
        let mut status = StatusReport { committed_bytes, ..StatusReport::default() };
        assert_eq!(status.overcommit_ratio(), None);
        status.sample.host.memory = memory;
        assert_eq!(status.overcommit_ratio(), Some(1.5));
        assert_eq!(super::committed_bytes(&[guest(None)]), None);
    }
}
