//! The kernel thread ksmd: its PID and its CPU time.

use ksmith_core::kernel;
use ksmith_core::reading::Reading;

use super::kept_file::KeptFile;
use super::scratch::{ReadBuffer, TextEnd};
use crate::ksmd;
use crate::root::Root;

/// The kernel thread ksmd. It is searched for once, because it starts with the kernel and never ends. In a container
/// with its own PID namespace it is invisible, and its CPU time is absent.
pub(super) struct KsmdThread {
    root: Root,
    schedstat: Option<KeptFile>,
    is_sought: bool,
}

impl KsmdThread {
    pub(super) fn new(root: &Root) -> Self {
        Self { root: root.clone(), schedstat: None, is_sought: false }
    }

    /// Reads its CPU time since boot, in nanoseconds (`/proc/PID/schedstat`, `CONFIG_SCHED_INFO`).
    pub(super) fn cpu_ns(&mut self, scratch: &mut ReadBuffer) -> Reading<u64> {
        if !self.is_sought {
            self.is_sought = true;
            let pid = ksmd::pid(&self.root);
            self.schedstat =
                pid.map(|pid| KeptFile::new(&self.root, &format!("proc/{pid}/schedstat"), TextEnd::ShortRead));
        }
        match &mut self.schedstat {
            Some(file) => file.read(scratch).and_then(kernel::cpu_ns),
            None => Reading::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_process_that_calls_itself_ksmd_is_not_taken_for_it() {
        let tree = tempfile::tempdir().unwrap();
        for (pid, flags, time) in [(5, 0x40_0040, 1), (70, 0x20_0040, 2)] {
            let directory = tree.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&directory).unwrap();
            let stat = format!("{pid} (ksmd) S 2 0 0 0 -1 {flags} 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 1");
            fs::write(directory.join("stat"), stat).unwrap();
            fs::write(directory.join("schedstat"), format!("{time} 0 0")).unwrap();
        }
        let mut ksmd = KsmdThread::new(&Root::at(tree.path()));
        assert_eq!(ksmd.cpu_ns(&mut ReadBuffer::new()), Reading::Value(2));
    }

    #[test]
    fn without_ksmd_its_time_is_absent() {
        let tree = tempfile::tempdir().unwrap();
        assert_eq!(KsmdThread::new(&Root::at(tree.path())).cpu_ns(&mut ReadBuffer::new()), Reading::Absent);
    }
}
