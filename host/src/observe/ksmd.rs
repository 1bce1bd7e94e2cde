//! The kernel thread ksmd: its PID and its CPU time.

use ksmith_core::kernel::{self, TextEnd};
use ksmith_core::reading::Reading;

use super::kept_file::KeptFile;
use super::scratch::ReadBuffer;
use crate::ksmd;
use crate::root::Root;

/// The kernel thread ksmd. It is searched for once, because it starts with the kernel and never ends. In a container
/// with its own PID namespace it is invisible, and its CPU time is absent.
pub(super) struct KsmdThread {
    root: Root,
    /// `schedstat` and `stat`.
    files: Option<[KeptFile; 2]>,
    is_sought: bool,
}

impl KsmdThread {
    pub(super) fn new(root: &Root) -> Self {
        Self { root: root.clone(), files: None, is_sought: false }
    }

    /// Reads its CPU time since boot, in nanoseconds (`/proc/PID/schedstat`, `CONFIG_SCHED_INFO`).
    pub(super) fn cpu_ns(&mut self, scratch: &mut ReadBuffer) -> Reading<u64> {
        match self.files() {
            Some([schedstat, _]) => schedstat.read(scratch).and_then(kernel::cpu_ns),
            None => Reading::Absent,
        }
    }

    /// Returns true if it does not sleep (`/proc/PID/stat`).
    pub(super) fn is_in_batch(&mut self, scratch: &mut ReadBuffer) -> bool {
        let Some([_, stat]) = self.files() else { return false };
        stat.read(scratch).value().is_some_and(|text| !kernel::is_asleep(text))
    }

    fn files(&mut self) -> Option<&mut [KeptFile; 2]> {
        if !self.is_sought {
            self.is_sought = true;
            let kept = |pid, file| KeptFile::new(&self.root, &format!("proc/{pid}/{file}"), TextEnd::ShortRead);
            self.files = ksmd::pid(&self.root).map(|pid| ["schedstat", "stat"].map(|file| kept(pid, file)));
        }
        self.files.as_mut()
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
    fn it_is_in_a_batch_unless_it_sleeps() {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join("proc/70");
        fs::create_dir_all(&directory).unwrap();
        let in_state = |state| {
            let stat = format!("70 (ksmd) {state} 2 0 0 0 -1 2097216 0 0 0 0 0 4 0 0 25 5 1 0 18 0 0 1");
            fs::write(directory.join("stat"), stat).unwrap();
            KsmdThread::new(&Root::at(tree.path())).is_in_batch(&mut ReadBuffer::new())
        };
        assert_eq!(['S', 'R', 'D'].map(in_state), [false, true, true]);
    }

    #[test]
    fn without_ksmd_its_time_is_absent() {
        let tree = tempfile::tempdir().unwrap();
        assert_eq!(KsmdThread::new(&Root::at(tree.path())).cpu_ns(&mut ReadBuffer::new()), Reading::Absent);
    }
}
