//! A program in Python that says "ready", and then obeys one order a line.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use ksmith_core::kernel::SmapsRollup;

/// A running program, which is killed when dropped.
pub struct ScriptedProgram {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl ScriptedProgram {
    /// Starts `python3` with these arguments, and waits until the program is ready. `None` if there is no Python.
    pub fn start(arguments: &[&str]) -> Option<Self> {
        let mut command = Command::new("python3");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, said };
        assert_eq!(program.hear(), "ready");
        Some(program)
    }

    /// Gives an order, and returns the answer.
    pub fn obey(&mut self, order: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
        self.hear()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The sums over its mappings.
    pub fn sums(&self) -> SmapsRollup {
        SmapsRollup::parse(&fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap()).unwrap()
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
}

impl Drop for ScriptedProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
