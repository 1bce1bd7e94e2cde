//! Figures of the host: memory, events, CPU, pressure, and the CPU time of ksmd.

use std::time::Duration;

use ksmith_core::kernel::{CpuTimes, Meminfo, Psi, RunState, Vmstat};
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;

use super::kept_file::KeptFile;
use super::ksmd::KsmdThread;
use super::scratch::{ReadBuffer, TextEnd};
use crate::root::Root;

/// Lifetime of the cached figures of `/proc`. They are counts of 10 ms and averages of ten seconds, and while ksmd
/// runs, samples are far more frequent.
const HOLD: Duration = Duration::from_millis(100);

/// Cached figures of the host, with the time of reading.
#[derive(Default)]
struct ProcFigures {
    at: Option<Duration>,
    memory: Reading<Meminfo>,
    vmstat: Reading<Vmstat>,
    cpu: Reading<CpuTimes>,
    memory_pressure: Reading<Psi>,
    cpu_pressure: Reading<Psi>,
}

/// The files of `/proc` that describe the host.
pub(super) struct HostFiles {
    last: ProcFigures,
    memory: KeptFile,
    vmstat: KeptFile,
    cpu: KeptFile,
    memory_pressure: KeptFile,
    cpu_pressure: KeptFile,
    ksmd: KsmdThread,
}

impl HostFiles {
    pub(super) fn new(root: &Root) -> Self {
        let whole = |relative| KeptFile::new(root, relative, TextEnd::ShortRead);
        Self {
            last: ProcFigures::default(),
            memory: whole("proc/meminfo"),
            vmstat: KeptFile::new(root, "proc/vmstat", TextEnd::EmptyRead),
            // On a large host the lines of interrupts, after those of the CPUs, are many times as long.
            cpu: KeptFile::new(root, "proc/stat", TextEnd::Before("\nintr ")),
            memory_pressure: whole("proc/pressure/memory"),
            cpu_pressure: whole("proc/pressure/cpu"),
            ksmd: KsmdThread::new(root),
        }
    }

    /// Fills in the host's figures of a sample.
    pub(super) fn read(&mut self, scratch: &mut ReadBuffer, sample: &mut Sample) {
        if self.last.at.is_none_or(|at| sample.at >= at.saturating_add(HOLD)) {
            self.last = ProcFigures {
                at: Some(sample.at),
                memory: self.memory.read(scratch).and_then(Meminfo::parse),
                vmstat: self.vmstat.read(scratch).and_then(Vmstat::parse),
                cpu: self.cpu.read(scratch).and_then(CpuTimes::parse),
                memory_pressure: self.memory_pressure.read(scratch).and_then(Psi::parse),
                cpu_pressure: self.cpu_pressure.read(scratch).and_then(Psi::parse),
            };
        }
        sample.memory = self.last.memory.clone();
        sample.vmstat = self.last.vmstat.clone();
        sample.cpu = self.last.cpu.clone();
        sample.memory_pressure = self.last.memory_pressure.clone();
        sample.cpu_pressure = self.last.cpu_pressure.clone();
        sample.ksmd_cpu_ns = self.ksmd.cpu_ns(scratch);
        sample.is_ksmd_in_batch =
            sample.ksm.run_state() == Some(RunState::Running) && self.ksmd.is_in_batch(scratch);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ksmith_core::reading::Reading;

    use super::*;

    #[test]
    fn figures_hold_for_a_tenth_of_a_second_and_the_time_of_ksmd_does_not() {
        let tree = tempfile::tempdir().unwrap();
        let put = |relative: &str, text: &str| {
            let path = tree.path().join(relative);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/33/stat", "33 (ksmd) S 2 0 0 0 -1 2097216 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 1");
        let mut host = HostFiles::new(&Root::at(tree.path()));
        let mut total_and_ksmd = |at: u64, kib: u64| {
            put("proc/meminfo", &format!("MemTotal: {kib} kB\n"));
            put("proc/33/schedstat", &format!("{kib} 1 1\n"));
            let mut sample = Sample { at: Duration::from_millis(at), ..Sample::default() };
            host.read(&mut ReadBuffer::new(), &mut sample);
            (sample.memory.value().unwrap().total.unwrap() / 1024, sample.ksmd_cpu_ns.get().unwrap())
        };
        assert_eq!(total_and_ksmd(1000, 10), (10, 10));
        assert_eq!(total_and_ksmd(1099, 11), (10, 11));
        assert_eq!(total_and_ksmd(1100, 12), (12, 12));
        assert_eq!(total_and_ksmd(1101, 13), (12, 13));
    }

    #[test]
    fn one_bad_source_leaves_the_others_alone() {
        let tree = tempfile::tempdir().unwrap();
        let put = |relative: &str, text: &str| {
            let path = tree.path().join(relative);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/meminfo", "MemTotal: 100 kB\n");
        put("proc/vmstat", "cow_ksm x\n");
        put("proc/stat", "cpu  1 2 3 4\ncpu0 1 2 3 4\n");
        put("proc/pressure/memory", "some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n");
        put("proc/33/stat", "33 (ksmd) S 2 0 0 0 -1 2097216 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 1");
        put("proc/33/schedstat", "77 1 1\n");
        let mut host = HostFiles::new(&Root::at(tree.path()));
        let mut sample = Sample::default();
        host.read(&mut ReadBuffer::new(), &mut sample);
        assert_eq!(sample.memory.value().unwrap().total, Some(102_400));
        assert!(matches!(sample.vmstat, Reading::Malformed(_)));
        assert_eq!(sample.cpu.value().unwrap().cpus, 1);
        assert_eq!(sample.memory_pressure.value().unwrap().some.total_us, Some(5));
        assert_eq!(sample.cpu_pressure, Reading::Absent);
        assert_eq!(sample.ksmd_cpu_ns, Reading::Value(77));
    }
}
