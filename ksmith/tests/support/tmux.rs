//! A terminal for tests: tmux with a server of its own.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use super::{skipped, wait_until};

/// A generous bound, which only keeps a broken test from hanging.
const BOUND: Duration = Duration::from_secs(60);

/// Between two looks at the terminal.
const BETWEEN: Duration = Duration::from_millis(20);

/// A terminal in which a command runs. Dropping it ends the command.
pub struct TmuxTerminal {
    socket: PathBuf,
    /// The file that has the PID of the command.
    pid: PathBuf,
    _directory: tempfile::TempDir,
}

impl TmuxTerminal {
    /// Starts a command with these variables in a terminal of so many columns and lines. After its end the terminal shows its exit
    /// code and whether lines are echoed again. `None`, said loudly, without tmux.
    pub fn start((columns, lines): (u16, u16), variables: &str, command: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let (socket, pid) = (directory.path().join("tmux"), directory.path().join("pid"));
        let tmux = Self { socket, pid, _directory: directory };
        if Command::new("tmux").arg("-V").output().is_err() {
            skipped("there is no tmux here");
            return None;
        }
        let (columns, lines) = (columns.to_string(), lines.to_string());
        let file = tmux.pid.display();
        let script = format!(
            "unset NO_COLOR; export {variables} LC_ALL=C.UTF-8; sh -c 'echo $$ > {file}.new; mv {file}.new {file}; exec {command}'; \
             echo ENDED $? $(stty -a | grep -o '.icanon') $(stty -a | grep -o '.echo '); exec sleep 600"
        );
        tmux.run(&["new-session", "-d", "-x", &columns, "-y", &lines, &script]);
        tmux.run(&["set-option", "-g", "window-size", "manual"]);
        Some(tmux)
    }

    /// The PID of the command.
    pub fn pid(&self) -> rustix::process::Pid {
        wait_until("the command to start", || self.pid.exists());
        let pid = std::fs::read_to_string(&self.pid).unwrap();
        rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap()
    }

    /// Presses keys, by tmux's names of them.
    pub fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Types text.
    pub fn text(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
    }

    /// Changes the size of the terminal.
    pub fn resize(&self, columns: u16, lines: u16) {
        self.run(&["resize-window", "-x", &columns.to_string(), "-y", &lines.to_string()]);
    }

    /// Returns the text on the terminal.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Returns the text on the terminal, with codes of colours.
    pub fn painted(&self) -> String {
        self.run(&["capture-pane", "-p", "-e"])
    }

    /// Returns true if a program has the alternate screen of the terminal.
    pub fn has_other_screen(&self) -> bool {
        self.run(&["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    /// Waits until the terminal shows something. Returns what it shows.
    pub fn wait(&self, what: &str, mut is_shown: impl FnMut(&str) -> bool) -> String {
        let deadline = Instant::now() + BOUND;
        loop {
            let screen = self.screen();
            if is_shown(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "waited too long for the terminal to show {what}:\n{screen}");
            std::thread::sleep(BETWEEN);
        }
    }

    /// Waits until the terminal shows a text.
    pub fn wait_for(&self, text: &str) -> String {
        self.wait(text, |screen| screen.contains(text))
    }

    fn run(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let output =
            command.arg("-u").args(["-f", "/dev/null", "-S"]).arg(&self.socket).args(arguments).output().unwrap();
        assert!(output.status.success(), "tmux {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for TmuxTerminal {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command.args(["-f", "/dev/null", "-S"]).arg(&self.socket).arg("kill-server").output();
    }
}
