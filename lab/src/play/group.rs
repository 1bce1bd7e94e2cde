//! A program in a process group of its own. Ctrl-C at the terminal does not reach it, and it ends with all that
//! it started.

#![allow(unsafe_code, reason = "what a child does between fork and exec has no safe wrapper")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, set_parent_process_death_signal, test_kill_process_group};

/// A running program with all that it started, which are ended on drop.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    child: Child,
    ended: Option<ExitStatus>,
}

/// The longest that a program may take to end by itself, on drop.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest wait for killed processes to disappear. They stay longer if their adoptive parent does not reap
/// them.
const GONE: Duration = Duration::from_millis(500);

impl ProcessGroup {
    /// Starts `command`, which gets SIGTERM if the lab is killed.
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        apart(command);
        Ok(Self { child: command.spawn()?, ended: None })
    }

    /// PID of the program, which is the number of its group too.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Exit status of the program, if it has ended.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    /// Sends SIGTERM, waits up to `patience`, then kills the program. Processes that it left behind are killed.
    pub(super) fn end(&mut self, patience: Duration) -> io::Result<ExitStatus> {
        let asked = Instant::now();
        if self.ended()?.is_none() {
            self.signal(Signal::TERM);
        }
        while self.ended()?.is_none() && asked.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.signal(Signal::KILL);
        let status = match self.ended {
            Some(status) => status,
            None => self.child.wait()?,
        };
        self.ended = Some(status);
        let killed = Instant::now();
        while test_kill_process_group(Pid::from_child(&self.child)).is_ok() && killed.elapsed() < GONE {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(status)
    }

    /// Signals the group. A failure is ignored: it means that the group has no process left.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // An error can't be returned from drop.
            let _ = self.end(PATIENCE);
        }
    }
}

/// Makes the program of `command` the leader of its own group. The program ends with the thread that starts it.
pub(super) fn apart(command: &mut Command) {
    command.process_group(0);
    // SAFETY: between fork and exec the closure makes one system call (prctl) and allocates nothing.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_left_behind_is_ended_with_it() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & echo $!; exec sleep 1000"]).stdout(std::process::Stdio::piped());
        let mut group = ProcessGroup::start(&mut shell).unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(group.child.stdout.take().unwrap()), &mut line).unwrap();
        assert_eq!(group.ended().unwrap(), None);
        group.end(Duration::from_secs(60)).unwrap();
        // Its parent has ended: the process that adopts it may take a while to reap it.
        let stat = format!("/proc/{}/stat", line.trim());
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        while !is_gone() {
            std::thread::yield_now();
        }
    }
}
