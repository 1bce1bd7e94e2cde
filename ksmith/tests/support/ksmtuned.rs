//! A real ksmtuned for tests in which another program controls KSM.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A running `ksmtuned`, ended on drop together with what it started.
pub struct KsmtunedProcess {
    pub pid: u32,
    _tree: tempfile::TempDir,
}

impl KsmtunedProcess {
    /// The distribution's script where it is to be had, else a script of that name that does nothing.
    pub fn start() -> Self {
        let tree = tempfile::tempdir().unwrap();
        let pid_file = tree.path().join("pid");
        let mut script = original().unwrap_or_default();
        if !script.exists() {
            script = tree.path().join("ksmtuned");
            fs::write(&script, "loop() { while :; do sleep 600 & wait $!; done; }\nloop &\necho $! > $PIDFILE\n")
                .unwrap();
        }
        // An hour between two looks: the script itself writes nothing while the test runs.
        let started = Command::new("/bin/bash")
            .arg(script)
            .env("PIDFILE", &pid_file)
            .env("KSM_MONITOR_INTERVAL", "3600")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(started.success());
        let pid = fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
        let ksmtuned = Self { pid, _tree: tree };
        // Until its `sleep` runs, the shell that will become it is a second process with ksmtuned's command line.
        super::wait_until("ksmtuned sleeps", || ksmtuned.children().iter().any(|child| name(child) == "sleep"));
        ksmtuned
    }

    fn children(&self) -> Vec<String> {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect()
    }

    pub fn is_paused(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    }
}

impl Drop for KsmtunedProcess {
    fn drop(&mut self) {
        let children = self.children();
        for pid in [self.pid.to_string()].iter().chain(&children) {
            let _ = Command::new("kill").args(["-KILL", pid]).status();
        }
    }
}

fn name(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// The distribution's script: the one that `KSMTUNED` names, or the installed one.
fn original() -> Option<PathBuf> {
    let named = std::env::var_os("KSMTUNED").map(PathBuf::from);
    let installed = ["/usr/sbin/ksmtuned", "/usr/bin/ksmtuned"].map(PathBuf::from);
    named.into_iter().chain(installed).find(|path| path.exists())
}
