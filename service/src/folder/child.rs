//! The child that reads and folds processes. It is killed when a process holds it up.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded};
use ksmith_core::kernel::PidStat;

use super::protocol::{FoldReply, FoldRequest};

/// The longest reply. A child that sends more counts as broken.
const LONGEST_REPLY: u64 = 64 << 10;

/// The longest wait for a killed child. One that can't end is collected later.
const LAST_PATIENCE: Duration = Duration::from_millis(200);

/// The number of killed children from which no other is started. Each may hold memory of a process that does not
/// answer.
const MOST_GRAVES: usize = 4;

/// Children that were killed and have not ended yet.
#[derive(Debug, Default)]
pub(super) struct KilledFoldChildren(Vec<Child>);

impl KilledFoldChildren {
    /// Collects those that have ended. Returns true if another child may be started.
    pub fn collect(&mut self) -> bool {
        self.0.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.0.len() < MOST_GRAVES
    }

    fn bury(&mut self, mut child: Child) {
        // It may have ended.
        let _ = child.kill();
        let deadline = Instant::now() + LAST_PATIENCE;
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.0.push(child);
    }
}

/// A running fold worker.
#[derive(Debug)]
pub(super) struct FoldChild {
    child: Child,
    requests: ChildStdin,
    /// Its replies, one each. Disconnected: it has ended, or said something else.
    pub replies: Receiver<FoldReply>,
    /// Its CPU time that is charged.
    charged: Duration,
}

impl FoldChild {
    /// Starts the program with its arguments. A thread reads what it says, and ends with it.
    pub fn start(command: &[String]) -> std::io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        let mut started = Command::new(program);
        started.args(arguments).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = started.spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let Some((requests, output)) = pipes else { return Err(std::io::ErrorKind::BrokenPipe.into()) };
        let (sender, replies) = bounded(1);
        let read = move || {
            let mut output = BufReader::new(output);
            let mut line = String::new();
            while matches!(output.by_ref().take(LONGEST_REPLY).read_line(&mut line), Ok(1..)) {
                let Ok(reply) = serde_json::from_str(&line) else { return };
                if sender.send(reply).is_err() {
                    return;
                }
                line.clear();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("fold replies".to_owned()).spawn(read) {
            KilledFoldChildren::default().bury(child);
            return Err(error);
        }
        Ok(Self { child, requests, replies, charged: Duration::ZERO })
    }

    /// Sends a request. It fits into a pipe, so this does not wait.
    pub fn send(&mut self, request: &FoldRequest) -> std::io::Result<()> {
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        self.requests.write_all(line.as_bytes())
    }

    /// Returns the CPU time since the last call, by the child's own figure in a reply.
    pub fn uncharged_cpu(&mut self, reply: &FoldReply) -> Duration {
        let used = Duration::try_from_secs_f64(reply.cpu_seconds).unwrap_or_default();
        let uncharged = used.saturating_sub(self.charged);
        self.charged = self.charged.max(used);
        uncharged
    }

    /// Returns the time in which the child was ready to run and had no CPU.
    pub fn starved(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id())).unwrap_or_default();
        let waited = text.split_ascii_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
        Duration::from_nanos(waited)
    }

    /// Ends the child by end of input, or kills it. Returns the CPU time that was not charged yet.
    pub fn end(self, graves: &mut KilledFoldChildren) -> Duration {
        let Self { child, requests, charged, .. } = self;
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok();
        let ticks = stat.and_then(|text| PidStat::parse(&text).ok()).map_or(0, |stat| stat.cpu_ticks);
        drop(requests);
        graves.bury(child);
        // USER_HZ is 100 everywhere.
        Duration::from_millis(ticks.saturating_mul(10)).saturating_sub(charged)
    }
}
