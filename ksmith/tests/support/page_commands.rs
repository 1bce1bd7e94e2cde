//! Commands of the pages for users, run with real programs where there are some, else with strict stand-ins
//! (`support/platforms/`).
//!
//! A block `sh,run-by=FILE` is run by the tests in `ksmith/tests/FILE.rs`.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::program::PROGRAM;

/// Returns the text of a page below `docs/how-to/`.
pub fn page_text(page: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to").join(page);
    fs::read_to_string(path).unwrap()
}

/// Returns the blocks of a page behind a fence with this word, in their order.
pub fn blocks(page: &str, word: &str) -> Vec<String> {
    let text = page_text(page);
    let mut found: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(info) if !is_open && info == word => {
                found.push(String::new());
                is_open = true;
            }
            Some(_) => is_open = false,
            None if is_open => {
                let block = found.last_mut().unwrap();
                block.push_str(line);
                block.push('\n');
            }
            None => {}
        }
    }
    assert!(!found.is_empty(), "{page} has no block {word}");
    found
}

/// Programs in a directory of their own, which goes before all others on PATH.
pub struct CommandPath {
    pub directory: PathBuf,
}

impl CommandPath {
    /// A path with the tested program as `ksmith`, and these stand-ins.
    pub fn make(below: &Path, standins: &[&str]) -> Self {
        let directory = below.join("programs");
        fs::create_dir_all(&directory).unwrap();
        symlink(PROGRAM, directory.join("ksmith")).unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/platforms");
        for name in standins {
            symlink(from.join(name), directory.join(name)).unwrap();
        }
        Self { directory }
    }

    /// Adds a program that starts the real one of this name with `more` in front of its arguments, and `settings`, each
    /// `NAME=VALUE`, in its environment.
    pub fn add_wrapper(&self, name: &str, settings: &[&str], more: &[&str]) {
        let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .map(|directory| directory.join(name))
            .find(|path| path.exists())
            .unwrap_or_else(|| panic!("no {name}"));
        let (settings, more) = (settings.join(" "), more.join(" "));
        let script = format!("#!/bin/sh\nexec env {settings} {} {more} \"$@\"\n", real.display());
        // Renamed into place: a file that another test's child has open for writing can't be started.
        let written = self.directory.join("written");
        fs::write(&written, script).unwrap();
        fs::set_permissions(&written, fs::Permissions::from_mode(0o755)).unwrap();
        let copied = Command::new("cp").arg("-p").args([&written, &self.directory.join(name)]).status();
        assert!(copied.unwrap().success());
    }

    fn command(&self, block: &str, directory: &Path) -> Command {
        let path = format!("{}:/usr/sbin:{}", self.directory.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("/bin/sh");
        command
            .args(["-eu", "-c", block])
            .env("PATH", path)
            .env("COLUMNS", "140")
            .current_dir(directory)
            .stdin(Stdio::null());
        command
    }

    /// Runs a block to its end.
    pub fn run(&self, block: &str, directory: &Path) -> Output {
        self.command(block, directory).output().unwrap()
    }

    /// Runs a block to its end. Returns its output; it must succeed.
    pub fn run_well(&self, block: &str, directory: &Path) -> String {
        let output = self.run(block, directory);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{block}{}: {told}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a block whose programs go on running, with its words on standard error in `stderr` there.
    pub fn start(&self, block: &str, directory: &Path) -> RunningBlock {
        let log = fs::File::create(directory.join("stderr")).unwrap();
        let mut command = self.command(block, directory);
        RunningBlock { child: command.process_group(0).stdout(Stdio::null()).stderr(log).spawn().unwrap() }
    }
}

/// A block at work. It and all that it has started are ended on drop.
pub struct RunningBlock {
    child: Child,
}

impl RunningBlock {
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for RunningBlock {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}
