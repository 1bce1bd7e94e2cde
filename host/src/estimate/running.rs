//! The effect of merging on processes that run all the time, such as ranks of a job that spin while they wait for each
//! other: what ksmd takes from one of them delays all.

use std::collections::BTreeSet;
use std::time::Duration;

use ksmith_core::diagnose::KsmdPlacement;
use ksmith_core::kernel::is_running;

use super::report::{GuestReport, JobAdvice, RunningReport, WORTH_FOLDING};
use crate::cpus::{allowed_cpus, cpu_loads, isolated_cpus, online_cpus};
use crate::root::Root;

/// The looks at the states of processes.
const LOOKS: u32 = 10;

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// The most looks at which a process that runs all the time may be seen asleep.
const ASLEEP: u32 = 1;

/// The least part of the memory, saved besides by ksmd, for which a running job is to be merged.
const WORTH_MERGING: f64 = 0.1;

/// Bytes that a CPU second of ksmd must save (`price_mib_per_cpu_second` in `packaging/hpc.toml`).
const PRICE: f64 = (100 << 20) as f64;

/// Processes that were running at nearly all looks, and the CPUs for them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RunningProcesses {
    /// Their number.
    pub count: u64,
    /// The CPUs that they may use.
    pub cpus: BTreeSet<u32>,
    /// The other CPUs that are online and that nobody keeps busy.
    pub spare_cpus: BTreeSet<u32>,
}

impl RunningProcesses {
    /// Looks at the states of these processes. `None` if fewer than two run all the time: no process waits for another then.
    ///
    /// Source: the state in `/proc/PID/stat`, which is R also for a process that waits for a CPU.
    pub fn observe(root: &Root, pids: impl IntoIterator<Item = u32>) -> Option<Self> {
        let loads = cpu_loads(root);
        let mut asleep: Vec<(u32, u32)> = pids.into_iter().map(|pid| (pid, 0)).collect();
        for look in 0..LOOKS {
            if look > 0 {
                std::thread::sleep(PAUSE);
            }
            let pids: Vec<u32> = asleep.iter().map(|(pid, _)| *pid).collect();
            for ((_, count), stat) in asleep.iter_mut().zip(root.texts_of(&pids, "stat")) {
                *count += u32::from(!stat.value().is_some_and(|text| is_running(text)));
            }
            asleep.retain(|(_, count)| *count <= ASLEEP);
            if asleep.len() < 2 {
                return None;
            }
        }
        let cpus: BTreeSet<u32> = asleep.iter().filter_map(|(pid, _)| allowed_cpus(root, *pid)).flatten().collect();
        let online = online_cpus(root)?;
        let busy = cpu_loads(root).busy_since(&loads);
        let placement = KsmdPlacement {
            online,
            of_guests: cpus,
            busy,
            isolated: isolated_cpus(root),
            ..KsmdPlacement::default()
        };
        Some(Self {
            count: asleep.len() as u64,
            spare_cpus: placement.spare_cpus(),
            cpus: placement.of_guests.intersection(&placement.online).copied().collect(),
        })
    }

    /// Judges what merging the memory of `total` would do to them.
    pub fn judge(&self, total: &GuestReport) -> RunningReport {
        let is_full = self.spare_cpus.is_empty() && self.count >= self.cpus.len() as u64;
        let delay_seconds = if is_full { total.ksmd_cpu_seconds } else { 0.0 };
        let present = total.present_bytes.max(1) as f64;
        let besides = total.low_bytes.saturating_sub(total.foldable_bytes) as f64;
        let folds = total.foldable_bytes as f64 >= WORTH_FOLDING * present;
        let merges = besides >= WORTH_MERGING * present && besides >= delay_seconds * PRICE;
        RunningReport {
            processes: self.count,
            cpus: self.cpus.len() as u64,
            spare_cpus: self.spare_cpus.len() as u64,
            delay_seconds,
            advice: match (folds, merges) {
                (true, true) => JobAdvice::FoldAndMerge,
                (true, false) => JobAdvice::Fold,
                (false, true) => JobAdvice::Merge,
                (false, false) => JobAdvice::Neither,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sums::GuestScanSums;
    use super::*;
    use crate::root::put_file;
    use ksmith_core::sketch::GuestOutcome;

    fn running(count: u64, cpus: u32, spare: u32) -> RunningProcesses {
        RunningProcesses { count, cpus: (0..cpus).collect(), spare_cpus: (cpus..cpus + spare).collect() }
    }

    /// 1,000 MiB, of which so many can be folded and so many are saved in all, for 2 s of ksmd.
    fn memory(foldable_mib: u64, saved_mib: u64) -> GuestReport {
        let outcome = GuestOutcome { pages: 256_000, ..GuestOutcome::default() };
        let mut report =
            GuestReport::new("total".to_owned(), None, Vec::new(), &outcome, &GuestScanSums::default(), 4096);
        report.foldable_bytes = foldable_mib << 20;
        (report.low_bytes, report.expected_saved_bytes) = (saved_mib << 20, saved_mib << 20);
        report.ksmd_cpu_seconds = 2.0;
        report
    }

    #[test]
    fn the_price_is_that_of_compute_nodes() {
        let line = format!("price_mib_per_cpu_second = {:.1}", PRICE / f64::from(1 << 20));
        let nodes = include_str!("../../../packaging/hpc.toml");
        assert!(nodes.lines().any(|known| known == line), "{line}");
    }

    #[test]
    fn ksmd_delays_processes_that_leave_it_no_cpu() {
        let delay = |running: RunningProcesses| running.judge(&memory(0, 300)).delay_seconds;
        assert_eq!(delay(running(4, 2, 0)), 2.0);
        assert_eq!(delay(running(2, 2, 0)), 2.0);
        assert_eq!(delay(running(2, 3, 0)), 0.0, "one of their CPUs is idle");
        assert_eq!(delay(running(4, 2, 1)), 0.0, "ksmd can be bound to the other");
    }

    #[test]
    fn the_advice_is_to_fold_to_merge_both_or_neither() {
        let advice = |foldable, saved| running(4, 2, 0).judge(&memory(foldable, saved)).advice;
        assert_eq!(advice(140, 150), JobAdvice::Fold);
        assert_eq!(advice(0, 210), JobAdvice::Merge);
        assert_eq!(advice(100, 310), JobAdvice::FoldAndMerge);
        assert_eq!(advice(0, 190), JobAdvice::Neither, "2 s of all ranks are worth 200 MiB");
        let spare = |saved| running(4, 2, 1).judge(&memory(0, saved)).advice;
        assert_eq!((spare(190), spare(90)), (JobAdvice::Merge, JobAdvice::Neither));
    }

    #[test]
    fn processes_that_run_are_counted_with_their_cpus() {
        let tree = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| put_file(tree.path(), file, text);
        put("sys/devices/system/cpu/online", "0-3\n");
        for (pid, state) in [(5, 'R'), (6, 'S'), (7, 'R'), (8, 'R')] {
            put(&format!("proc/{pid}/stat"), &format!("{pid} (a) b) {state} 1 1"));
            put(&format!("proc/{pid}/status"), "Cpus_allowed:\t3\nCpus_allowed_list:\t0-1\n");
        }
        let root = Root::at(tree.path());
        let seen = RunningProcesses::observe(&root, [5, 6, 7, 8]).unwrap();
        assert_eq!(seen, RunningProcesses { count: 3, ..running(3, 2, 2) });
        assert_eq!(RunningProcesses::observe(&root, [5, 6, 9]), None);
    }
}
