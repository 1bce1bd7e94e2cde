//! Puts back what a run has changed on the host, also where the run is killed.

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A shell that runs commands once this is dropped or its process has ended. In a process group of its own, it outlives Ctrl-C.
pub struct RestoringShell {
    shell: Child,
}

impl RestoringShell {
    /// Runs these commands at the end, each whether or not the others fail.
    pub fn new(commands: &[String]) -> Self {
        let script = format!("trap '' INT TERM HUP; read -r _; {}", commands.join("; "));
        let mut command = Command::new("sh");
        command
            .args(["-c", &script])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self { shell: command.spawn().expect("a shell") }
    }
}

impl Drop for RestoringShell {
    fn drop(&mut self) {
        if let Some(mut input) = self.shell.stdin.take() {
            let _ = input.write_all(b"\n");
        }
        let _ = self.shell.wait();
    }
}

const KHUGEPAGED: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged";

/// Settings that make khugepaged scan all memory again and again.
const HURRIED: [(&str, &str); 3] =
    [("scan_sleep_millisecs", "100"), ("alloc_sleep_millisecs", "100"), ("pages_to_scan", "40960")];

/// Hurries khugepaged until dropped. `None` where it can't be.
pub fn hurry_khugepaged() -> Option<RestoringShell> {
    let path = |name: &str| Path::new(KHUGEPAGED).join(name);
    let mut commands = Vec::new();
    for (name, _) in HURRIED {
        let before = fs::read_to_string(path(name)).ok()?;
        commands.push(format!("echo {} > {}", before.trim(), path(name).display()));
    }
    let restorer = RestoringShell::new(&commands);
    HURRIED.iter().all(|(name, value)| fs::write(path(name), value).is_ok()).then_some(restorer)
}
