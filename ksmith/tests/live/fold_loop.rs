//! `ksmith fold` in a loop, and what its passes add up to.

use std::fmt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::program::PROGRAM;
use crate::support::skipped;

/// The exit code of a program in Rust that has panicked.
const PANICKED: i32 = 101;

/// Passes of `ksmith fold`.
#[derive(Debug, Default)]
pub struct FoldLoop {
    passes: u64,
    freed_bytes: u64,
    refusals: u64,
    last_refusal: String,
}

impl FoldLoop {
    /// `None`, said loudly, where this user or this kernel can't fold.
    pub fn prepare() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skipped("folding from outside needs root's rights");
            return None;
        }
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let output = Command::new(PROGRAM).args(["fold", "--json", &sleeper.id().to_string()]).output().unwrap();
        let _ = sleeper.kill();
        let _ = sleeper.wait();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            skipped(&format!("folding from outside does not work here: {}", why.trim()));
            return None;
        }
        Some(Self::default())
    }

    /// Makes one pass over these processes, with settings by turns. Processes that were not folded are counted: they may have
    /// ended, or have held their locks for too long on a busy machine.
    pub fn pass(&mut self, pids: &[u32]) {
        let threads = if self.passes.is_multiple_of(3) { "2" } else { "1" };
        let least = ["1", "12.5", "50"][(self.passes % 3) as usize];
        self.passes += 1;
        let output = Command::new(PROGRAM)
            .args(["fold", "--json", "--threads", threads, "--least-zero", least])
            .args(pids.iter().map(u32::to_string))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_refusal = output.status.code().is_some_and(|code| code != PANICKED);
        assert!(is_refusal, "ksmith fold: {:?}: {error}", output.status);
        if !output.status.success() {
            self.refuse(&error);
            return;
        }
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        self.freed_bytes += json["total"]["freed_bytes"].as_u64().unwrap();
        for process in json["processes"].as_array().unwrap() {
            if let Some(error) = process["error"].as_str() {
                self.refuse(error);
            }
        }
    }

    fn refuse(&mut self, why: &str) {
        self.refusals += 1;
        why.trim().clone_into(&mut self.last_refusal);
    }

    /// Bytes that all passes have freed.
    pub fn freed_bytes(&self) -> u64 {
        self.freed_bytes
    }
}

impl fmt::Display for FoldLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passes, {} MiB freed", self.passes, self.freed_bytes >> 20)?;
        if self.refusals > 0 {
            write!(f, ", {} refusals (the last: {})", self.refusals, self.last_refusal)?;
        }
        Ok(())
    }
}
