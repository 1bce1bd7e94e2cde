//! The tested program, running, with its log in a file.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use ksmith::show;
use ksmith_service::control::ControlClient;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::wait_until;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_ksmith");
pub const SOCKET: &str = "/run/ksmith/control";

/// A ksmith at work. Ended on drop, gently at first, so that it restores.
pub struct RunningProgram {
    child: Child,
    tree: tempfile::TempDir,
}

impl RunningProgram {
    /// Starts the program with these arguments.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_with(arguments, |_| ())
    }

    /// Starts it after `adjust` has had a look at the command.
    pub fn start_with(arguments: &[&str], adjust: impl FnOnce(&mut Command)) -> Self {
        Self::start_line(&[&[PROGRAM], arguments].concat(), adjust)
    }

    /// Starts this command line, which ends by executing the program.
    pub fn start_line(line: &[&str], adjust: impl FnOnce(&mut Command)) -> Self {
        let tree = tempfile::tempdir().unwrap();
        let log = File::create(tree.path().join("log")).unwrap();
        let out = File::create(tree.path().join("out")).unwrap();
        // A shell that starts the tests in the background has them, and what they start, ignore SIGINT and SIGQUIT.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=INT,QUIT")
            .args(line)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(log)
            .env_remove("JOURNAL_STREAM");
        adjust(&mut command);
        Self { child: command.spawn().unwrap(), tree }
    }

    /// A daemon with these lines as its configuration, once it answers.
    pub fn daemon(config: &str, arguments: &[&str]) -> Self {
        let (file, path) = config_file(config);
        let mut all = vec!["daemon", "--config", &path];
        all.extend(arguments);
        let mut daemon = Self::start(&all);
        daemon.wait_ready();
        // Read by now, and for a reload a test names a file of its own.
        drop(file);
        daemon
    }

    /// Waits until the daemon has taken its first turn.
    pub fn wait_ready(&mut self) {
        wait_until("the daemon answers", || {
            assert_eq!(self.child.try_wait().unwrap(), None, "it ended: {}", self.log());
            status().is_some_and(|status| status["daemon"]["pid"] == self.pid())
        });
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns its output on standard error so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.tree.path().join("log")).unwrap()
    }

    /// Returns its standard output so far.
    pub fn out(&self) -> String {
        fs::read_to_string(self.tree.path().join("out")).unwrap()
    }

    /// Waits until the log has `text`.
    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("the log says {text:?}"), || self.log().contains(text));
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait_until("the program ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }

    /// Ends it by SIGTERM; it must end well.
    pub fn end(mut self) -> String {
        self.signal(Signal::TERM);
        let ended = self.wait();
        assert_eq!((ended.code(), ended.signal()), (Some(0), None), "{}", self.log());
        self.log()
    }

    /// Kills it.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.wait().signal(), Some(9));
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("what {:?} with pid {} had said:\n{}", PROGRAM, self.pid(), self.log());
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            for _ in 0..3000 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A configuration file and its path.
pub fn config_file(text: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
    // Tests add nothing to the history of this host.
    let history = if text.contains("[history]") { "" } else { "\n[history]\nenabled = false\n" };
    fs::write(file.path(), format!("{text}{history}")).unwrap();
    let path: PathBuf = file.path().to_owned();
    (file, path.display().to_string())
}

/// Returns the status of the running daemon; `None` if it does not reply.
pub fn status() -> Option<Value> {
    ControlClient::connect(SOCKET.as_ref()).ok()?.status().ok().map(|status| show::status::json(&status))
}

/// Runs the program to its end: exit code, standard output, standard error.
pub fn ksmith(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().expect("not ended by a signal"), text(output.stdout), text(output.stderr))
}

/// Returns the row of `ksmith guests` of a guest of this name; `None` if it is not listed.
pub fn guest_row(name: &str) -> Option<Value> {
    let (code, out, told) = ksmith(&["guests", "--pss", "--json"]);
    assert_eq!(code, 0, "{told}");
    let report: Value = serde_json::from_str(&out).unwrap();
    report["guests"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned()
}

/// Returns the first PID of a row of `ksmith guests`.
pub fn pid_of_row(row: &Value) -> u32 {
    row["pids"][0].as_u64().unwrap() as u32
}

/// Waits until a `ksmith run -vv` with this log has begun and ended a full sample of its job from now on.
pub fn await_sample(log: impl Fn() -> String) {
    let taken = || log().lines().filter(|line| line.contains("sampled ") && line.ends_with(" of the job")).count();
    // One may be under way.
    let before = taken();
    wait_until("the job is sampled", || taken() >= before + 2);
}
