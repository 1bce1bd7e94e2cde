//! Figures of the host: memory, events, CPU, pressure, and the CPU time of ksmd.

use std::time::Duration;

use ksmith_core::kernel::{HostReadings, RunState};
use ksmith_core::sample::Sample;

use super::kernel_files::KernelFiles;
use super::ksmd::KsmdThread;
use super::scratch::ReadBuffer;
use crate::root::Root;

/// Lifetime of the cached figures of `/proc`. They are counts of 10 ms and averages of ten seconds, and while ksmd
/// runs, samples are far more frequent.
const HOLD: Duration = Duration::from_millis(100);

/// The files of `/proc` that describe the host, and ksmd.
pub(super) struct HostFiles {
    /// The time of the last readings.
    read_at: Option<Duration>,
    last: HostReadings,
    files: KernelFiles,
    ksmd: KsmdThread,
}

impl HostFiles {
    pub(super) fn new(root: &Root) -> Self {
        let (files, ksmd) = (KernelFiles::of_host(root), KsmdThread::new(root));
        Self { read_at: None, last: HostReadings::default(), files, ksmd }
    }

    /// Fills in the host's figures of a sample.
    pub(super) fn read(&mut self, scratch: &mut ReadBuffer, sample: &mut Sample) {
        if self.read_at.is_none_or(|at| sample.at >= at.saturating_add(HOLD)) {
            self.read_at = Some(sample.at);
            self.last = HostReadings::read(&mut self.files.with(scratch));
        }
        sample.host = self.last.clone();
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
            (sample.host.memory.value().unwrap().total.unwrap() / 1024, sample.ksmd_cpu_ns.get().unwrap())
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
        assert_eq!(sample.host.memory.value().unwrap().total, Some(102_400));
        assert!(matches!(sample.host.vmstat, Reading::Malformed(_)));
        assert_eq!(sample.host.cpu.value().unwrap().cpus, 1);
        assert_eq!(sample.host.memory_pressure.value().unwrap().some.total_us, Some(5));
        assert_eq!(sample.host.cpu_pressure, Reading::Absent);
        assert_eq!(sample.ksmd_cpu_ns, Reading::Value(77));
    }
}
