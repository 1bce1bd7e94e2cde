//! The walk of a user without rights through all commands.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::support::copy_program;
use super::{PROGRAM, text};

/// A user without rights.
const UNPRIVILEGED: u32 = 65_534;

/// Each command as a user without rights runs it, with the exit code. What needs no right has 0, or the code of what it finds.
#[rustfmt::skip]
const WALK: [(&[&str], &[u8]); 56] = [
    (&[], &[0]),
    (&["overview"], &[0]),
    (&["status"], &[0]),
    (&["guests"], &[0]),
    (&["guests", "no-such-guest"], &[5]),
    (&["history"], &[0, 3]),
    (&["report", "-o", "DIR/report.md"], &[0, 3]),
    (&["top"], &[1, 2, 3]),
    (&["doctor"], &[0, 6]),
    (&["doctor", "--check"], &[0, 1, 2]),
    (&["doctor", "1"], &[5]),
    (&["doctor", "no-such-guest"], &[5]),
    (&["fold", "1"], &[3, 5]),
    (&["estimate", "1"], &[5]),
    (&["estimate", "no-such-guest"], &[5]),
    (&["sketch", "--new-secret", "DIR/secret"], &[0]),
    (&["sketch", "--secret", "DIR/secret", "--out", "DIR/host.parquet", "1"], &[5]),
    (&["sketch", "--secret", "DIR/secret", "--out", "DIR/host.parquet", "no-such-guest"], &[5]),
    (&["demo", "--simulated", "--size", "4"], &[0]),
    (&["setup"], &[5]),
    (&["setup", "--undo"], &[5]),
    (&["setup", "--dry-run"], &[0, 3]),
    (&["daemon"], &[5]),
    (&["daemon", "--dry-run"], &[5]),
    (&["serve", "--listen", "256.0.0.1:1"], &[2]),
    (&["metrics"], &[0]),
    (&["run", "--scan", "never", "--", "true"], &[0]),
    (&["run", "--", "/nonexistent/program"], &[127]),
    (&["job", "report", "DIR/no-such-report.json"], &[2]),
    (&["scan"], &[5]),
    (&["scan", "--dry-run"], &[5]),
    (&["pause", "1h"], &[5]),
    (&["resume"], &[5]),
    (&["enable"], &[5]),
    (&["enable", "--dry-run"], &[5]),
    (&["disable"], &[5]),
    (&["disable", "--dry-run"], &[5]),
    (&["set", "pages_to_scan=100"], &[5]),
    (&["set", "--dry-run", "pages_to_scan=100"], &[5]),
    (&["merge", "off", "no-such-guest"], &[5]),
    (&["balance"], &[0, 5]),
    (&["hold", "no-such-guest"], &[5]),
    (&["give", "no-such-guest", "1M"], &[5]),
    (&["take", "no-such-guest", "1M"], &[5]),
    (&["unmerge"], &[5]),
    (&["unmerge", "--dry-run"], &[5]),
    (&["optin", "--force", "no-such-unit.service"], &[5]),
    (&["restore"], &[5]),
    (&["restore", "--dry-run"], &[5]),
    (&["lab", "run", "burst"], &[5]),
    (&["lab", "list"], &[0]),
    (&["sim", "DIR/idle.toml", "--policies", "none"], &[0]),
    (&["config", "check"], &[0]),
    (&["config", "show"], &[0]),
    (&["schema", "status"], &[0]),
    (&["completions", "bash"], &[0]),
];

/// The walk of a user without rights through the commands, with the program where that user may run it.
struct CommandWalker {
    directory: tempfile::TempDir,
}

impl CommandWalker {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        copy_program(Path::new(PROGRAM), &directory.path().join("ksmith"));
        fs::copy("../scenarios/idle.toml", directory.path().join("idle.toml")).unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
        Self { directory }
    }

    /// Runs the words of the walk behind further options.
    fn run(&self, words: &[&str], options: &[&str]) -> Output {
        let directory = self.directory.path();
        let words = words.iter().map(|word| word.replace("DIR", &directory.display().to_string()));
        let mut command = Command::new(directory.join("ksmith"));
        command.args(options).args(words).stdin(Stdio::null()).current_dir(directory).env("TERM", "dumb");
        if rustix::process::geteuid().is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        command.output().unwrap()
    }
}

/// Words of commands that print a script, the output of the program that they run, or a line for a monitoring system.
const NO_JSON: [&str; 3] = ["completions", "run", "--check"];

#[test]
fn each_command_under_json_prints_one_document_or_an_error_that_is_one() {
    let walker = CommandWalker::new();
    let mut wrong = Vec::new();
    for (words, _) in WALK.iter().chain(&[(&["schema"][..], &[0][..])]) {
        if words.first() != Some(&"lab") && words.iter().any(|word| NO_JSON.contains(word)) {
            continue;
        }
        let output = walker.run(words, &["--json"]);
        // A warning may stand above an error, and a command that only makes a file may succeed without a word.
        let said = text(if output.stdout.is_empty() { &output.stderr } else { &output.stdout });
        let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
        let is_error = output.stdout.is_empty() && said.lines().last().is_some_and(is_json);
        let is_sound = match output.status.success() {
            true => said.is_empty() || is_json(&said),
            false => is_error || is_json(&said),
        };
        if !is_sound {
            wrong.push(format!("{words:?}: {:?} {:?}", text(&output.stdout), text(&output.stderr)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_command_without_privilege_ends_with_its_code() {
    let commands = <ksmith::cli::Cli as clap::CommandFactory>::command();
    for command in commands.get_subcommands().filter(|command| !command.is_hide_set()) {
        let is_walked = WALK.iter().any(|(words, _)| words.first() == Some(&command.get_name()));
        assert!(is_walked, "{} is not in the walk", command.get_name());
    }
    // Without KSM nothing can be done with any right.
    let is_there = Path::new("/sys/kernel/mm/ksm/run").exists();
    let walker = CommandWalker::new();
    let mut wrong = Vec::new();
    for (words, codes) in WALK {
        let output = walker.run(words, &[]);
        let code = output.status.code().and_then(|code| u8::try_from(code).ok());
        let is_expected = |code: &u8| codes.contains(code) || *code == 3 && codes == [5] && !is_there;
        let said = text(&output.stderr);
        if !code.as_ref().is_some_and(is_expected) {
            wrong.push(format!("{words:?}: {code:?}, not {codes:?}: {said}"));
        }
        if code == Some(5) && !said.contains("root") {
            wrong.push(format!("{words:?} does not say what to do: {said}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
