//! Pausing and continuing another controller.

use std::io;

use ksmith_core::reading::Reading;
use ksmith_core::sample::ProcessId;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::identity;
use crate::root::Root;

/// A process that was stopped with `SIGSTOP` and is to be continued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PausedProcess {
    /// The process's PID.
    pub pid: u32,
    /// Its start, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its name, for messages.
    pub what: String,
}

/// A process that could not be stopped or continued.
#[derive(Debug, thiserror::Error)]
#[error("can't {verb} {what} (pid {pid}): {source}; do it by hand: kill -{signal} {pid}")]
pub struct PauseError {
    verb: &'static str,
    signal: &'static str,
    what: String,
    pid: u32,
    source: io::Error,
}

impl PausedProcess {
    fn id(&self) -> ProcessId {
        ProcessId { pid: self.pid, start_ticks: self.start_ticks }
    }

    /// Stops the process. Returns true if it was still there.
    pub(super) fn stop(&self) -> Result<bool, PauseError> {
        self.signal(Signal::STOP).map_err(|source| self.fail("pause", "STOP", source))
    }

    /// Continues the process; a no-op if it runs. Returns true if it was still there.
    pub(super) fn go_on(&self) -> Result<bool, PauseError> {
        self.signal(Signal::CONT).map_err(|source| self.fail("continue", "CONT", source))
    }

    fn signal(&self, signal: Signal) -> io::Result<bool> {
        match self.open()? {
            Some(process) => match pidfd_send_signal(process, signal) {
                Ok(()) => Ok(true),
                Err(Errno::SRCH) => Ok(false),
                Err(other) => Err(other.into()),
            },
            None => Ok(false),
        }
    }

    /// Opens a pidfd for this process. The start time is checked after opening: if the PID was reused before, it would
    /// be another process's.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let process = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(Errno::SRCH) => return Ok(None),
            Err(other) => return Err(other.into()),
        };
        Ok((identity::read_id(&Root::host(), self.pid) == Reading::Value(self.id())).then_some(process))
    }

    fn fail(&self, verb: &'static str, signal: &'static str, source: io::Error) -> PauseError {
        PauseError { verb, signal, what: self.what.clone(), pid: self.pid, source }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A process that does nothing, ended on drop.
    struct PausableProcess(Child);

    impl PausableProcess {
        fn start() -> (Self, PausedProcess) {
            let child = Command::new("sleep").arg("1000").stdout(Stdio::null()).spawn().unwrap();
            let id = *identity::read_id(&Root::host(), child.id()).value().unwrap();
            (Self(child), PausedProcess { pid: id.pid, start_ticks: id.start_ticks, what: "sleep".to_owned() })
        }
    }

    impl Drop for PausableProcess {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn wait_for_state(pid: u32, wanted: &[&str]) {
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            if wanted.contains(&stat.rsplit_once(") ").unwrap().1.split(' ').next().unwrap()) {
                return;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_is_stopped_and_continued() {
        let (sleeper, process) = PausableProcess::start();
        assert!(process.stop().unwrap());
        wait_for_state(sleeper.0.id(), &["T"]);
        assert!(process.go_on().unwrap());
        wait_for_state(sleeper.0.id(), &["S", "R"]);
        drop(sleeper);
        assert!(!process.go_on().unwrap());
    }

    #[test]
    fn another_process_with_the_same_pid_is_left_alone() {
        let (sleeper, mut process) = PausableProcess::start();
        process.start_ticks += 1;
        assert!(!process.stop().unwrap());
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.0.id())).unwrap();
        assert!(!stat.contains(") T "), "{stat}");
        assert!(!PausedProcess { pid: 0, start_ticks: 0, what: String::new() }.go_on().unwrap());
        assert!(!PausedProcess { pid: u32::MAX, start_ticks: 0, what: String::new() }.stop().unwrap());
    }
}
