//! A child of a bench: the bench's own program by another name, which answers line by line.

#![allow(dead_code, reason = "each bench uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a bench ends by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use ksmith_core::kernel::SmapsRollup;

/// A running child. It ends with its input, on drop.
pub struct BenchChild {
    child: Child,
    replies: BufReader<ChildStdout>,
}

impl BenchChild {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Self { child, replies }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends an order.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for a reply.
    pub fn reply(&mut self) -> String {
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Sends an order and waits for the reply.
    pub fn order(&mut self, line: &str) -> String {
        self.tell(line);
        self.reply()
    }

    /// Its memory by kind.
    pub fn sums(&self) -> SmapsRollup {
        let text = fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        SmapsRollup::parse(&text).unwrap()
    }
}

impl Drop for BenchChild {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
