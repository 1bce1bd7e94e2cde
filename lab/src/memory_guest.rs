//! A memory guest as its parent handles it: start, commands, end.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::contents::GuestContents;
use super::pages::GuestPages;

/// An error of a memory guest that did not start or did not obey.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The process could not be started.
    #[error("can't start a memory guest with {program}: {source}")]
    Start {
        /// Path of the program.
        program: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The pipe to the guest broke because the guest has ended.
    #[error("memory guest {pid} does not answer: {source}")]
    Gone {
        /// PID of the guest.
        pid: u32,
        /// The error of the pipe.
        source: io::Error,
    },
    /// The guest gave an unexpected answer.
    #[error("memory guest {pid} answered {answer:?} to {command:?}")]
    Refused {
        /// PID of the guest.
        pid: u32,
        /// The command, or empty while the guest started.
        command: String,
        /// The answer of the guest.
        answer: String,
    },
}

/// A running memory guest, which is ended on drop.
#[derive(Debug)]
pub struct MemoryGuest {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    contents: GuestContents,
}

impl MemoryGuest {
    /// Starts `program` (the ksmith binary) as a guest with these contents, on small pages. The guest fills its memory in the
    /// background; [`MemoryGuest::wait_ready`] waits for that.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn start(program: &Path, contents: &GuestContents) -> Result<Self, GuestError> {
        Self::start_on(program, contents, GuestPages::Small)
    }

    /// Starts a guest as [`start`](Self::start) does, on such pages, where the host gives them.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn start_on(program: &Path, contents: &GuestContents, pages: GuestPages) -> Result<Self, GuestError> {
        Self::start_by(program, Command::new(program), None, pages == GuestPages::Huge, contents)
    }

    /// Starts a guest by the caller's command, to which the guest's arguments and name are added. `is_huge` has its memory be in
    /// transparent huge pages, where the host has them.
    ///
    /// # Errors
    /// The program can't be started.
    pub(super) fn start_by(
        program: &Path,
        mut command: Command,
        name: Option<&str>,
        is_huge: bool,
        contents: &GuestContents,
    ) -> Result<Self, GuestError> {
        let fail = |source| GuestError::Start { program: program.display().to_string(), source };
        let mut child = command
            .arg("memory-guest")
            .args(is_huge.then_some("--huge"))
            .args(name.map(|name| format!("--name={name}")))
            .args(contents.0.iter().map(ToString::to_string))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (commands, answers) = pipes.ok_or_else(|| fail(io::Error::other("no pipes")))?;
        Ok(Self { child, commands, answers: BufReader::new(answers), contents: contents.clone() })
    }

    /// Waits until the guest's memory holds its contents.
    ///
    /// # Errors
    /// The guest ended or could not get its memory.
    pub fn wait_ready(&mut self) -> Result<(), GuestError> {
        let answer = self.read_answer()?;
        self.expect("", "ready", answer)
    }

    /// PID of the guest.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The contents that the guest was started with.
    pub fn contents(&self) -> &GuestContents {
        &self.contents
    }

    /// Counts the pages with wrong content. More than 0 means that merging has damaged memory.
    ///
    /// # Errors
    /// The guest has ended.
    pub fn wrong_pages(&mut self) -> Result<usize, GuestError> {
        let answer = self.send_command("verify")?;
        match answer.strip_prefix("bad ").map(str::parse) {
            Some(Ok(wrong)) => Ok(wrong),
            _ => self.expect("verify", "ok", answer).map(|()| 0),
        }
    }

    /// Writes new content into a part, unique to this guest, so that its merged pages diverge.
    ///
    /// # Errors
    /// The guest has ended or has no such part.
    pub fn rewrite(&mut self, part: usize) -> Result<(), GuestError> {
        self.run_command(&format!("rewrite {part}"))
    }

    /// Restores a part's first content.
    ///
    /// # Errors
    /// The guest has ended or has no such part.
    pub fn refill(&mut self, part: usize) -> Result<(), GuestError> {
        self.run_command(&format!("refill {part}"))
    }

    /// Keeps some pages of a part in a pipe, as I/O in flight does.
    ///
    /// # Errors
    /// The guest has ended, has no such part, or was refused the pipes.
    pub fn hold(&mut self, part: usize) -> Result<(), GuestError> {
        self.run_command(&format!("hold {part}"))
    }

    /// Sets the load of the guest's worker, from 0 to 100.
    ///
    /// # Errors
    /// The guest has ended or has no part for work.
    pub fn work(&mut self, percent: u8) -> Result<(), GuestError> {
        self.run_command(&format!("work {percent}"))
    }

    /// Counts the pages that the guest's worker has processed: 0 without a worker.
    ///
    /// # Errors
    /// The guest has ended.
    pub fn work_done(&mut self) -> Result<u64, GuestError> {
        let answer = self.send_command("done")?;
        match answer.strip_prefix("done ").and_then(|count| count.parse().ok()) {
            Some(count) => Ok(count),
            None => self.expect("done", "done N", answer).map(|()| 0),
        }
    }

    /// Sends one command to several guests and waits for all answers, so that the guests obey at the same time.
    ///
    /// # Errors
    /// A guest has ended or refused.
    pub(super) fn command_all<'a>(
        guests: impl IntoIterator<Item = &'a mut Self>,
        command: &str,
    ) -> Result<(), GuestError> {
        let mut told = Vec::new();
        for guest in guests {
            guest.write_command(command)?;
            told.push(guest);
        }
        for guest in told {
            let answer = guest.read_answer()?;
            guest.expect(command, "ok", answer)?;
        }
        Ok(())
    }

    fn run_command(&mut self, command: &str) -> Result<(), GuestError> {
        let answer = self.send_command(command)?;
        self.expect(command, "ok", answer)
    }

    fn expect(&self, command: &str, expected: &str, answer: String) -> Result<(), GuestError> {
        if answer == expected {
            return Ok(());
        }
        Err(GuestError::Refused { pid: self.pid(), command: command.to_owned(), answer })
    }

    fn send_command(&mut self, command: &str) -> Result<String, GuestError> {
        self.write_command(command)?;
        self.read_answer()
    }

    fn write_command(&mut self, command: &str) -> Result<(), GuestError> {
        let pid = self.pid();
        writeln!(self.commands, "{command}").map_err(|source| GuestError::Gone { pid, source })
    }

    fn read_answer(&mut self) -> Result<String, GuestError> {
        let pid = self.pid();
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(0) => Err(GuestError::Gone { pid, source: io::ErrorKind::UnexpectedEof.into() }),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(source) => Err(GuestError::Gone { pid, source }),
        }
    }
}

impl Drop for MemoryGuest {
    fn drop(&mut self) {
        // A failure means that the guest has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
