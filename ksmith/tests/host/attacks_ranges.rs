//! Members of the group that ask for `ranges`, and have a file system of their own (FUSE) that hangs or lies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::attack::{NEIGHBOUR, RunningAttack, USER};
use crate::support::own::on_own_host;
use crate::support::program::RunningProgram;
use crate::support::{skipped, wait_until};

/// Asks for `ranges`, and prints the last line of the answer.
const ASK: &str = "import socket, sys\n\
                   peer = socket.socket(socket.AF_UNIX)\n\
                   peer.connect(sys.argv[1])\n\
                   peer.sendall(b'ranges\\n')\n\
                   print(next(line for line in peer.makefile() if line.startswith(('ok', 'error'))))";

/// A daemon whose socket for users is open to the attacker's group.
struct DaemonForUsers {
    daemon: RunningProgram,
    socket: PathBuf,
    _directory: tempfile::TempDir,
}

impl DaemonForUsers {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let socket = directory.path().join("user");
        let config = format!(
            "[policy]\nkind = \"fixed\"\n[policy.fixed.settings]\nrun = 0\n\
             [optin]\nsocket = {socket:?}\ngroup = \"{USER}\"\n"
        );
        Self { daemon: RunningProgram::daemon(&config, &[]), socket, _directory: directory }
    }

    /// Returns true while the daemon reads memory for advice: a thread of its own reads a page map or memory.
    fn reads_memory(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.daemon.pid())).unwrap().flatten();
        let reads = format!("{} ", libc::SYS_pread64);
        let text = |task: &fs::DirEntry, file: &str| fs::read_to_string(task.path().join(file)).unwrap_or_default();
        tasks
            .into_iter()
            .any(|task| text(&task, "comm").trim() == "user-ranges" && text(&task, "syscall").starts_with(&reads))
    }
}

/// Asks as a process of its own.
fn ask_as(user: &str, socket: &Path) -> String {
    let id = |text: &str| text.parse().unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", ASK]).arg(socket).uid(id(user)).gid(id(USER)).current_dir("/");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(!said.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Has a reading of a user's memory held up. The lock must be taken while memory is read, which is tried a few times; `None`,
/// said loudly, where it does not come about.
fn hold_up_reading(daemon: &DaemonForUsers) -> Option<RunningAttack> {
    for _ in 0..5 {
        let mut attack = RunningAttack::ask_ranges(&daemon.socket)?;
        attack.send_line("ask");
        while !daemon.reads_memory() && attack.answers().is_empty() {}
        attack.send_line("lock");
        wait_until("there is an answer", || !attack.answers().is_empty());
        let answer = attack.answers().remove(0);
        if answer.contains("could not be read in time") {
            return Some(attack);
        }
        assert!(answer.starts_with("ok ranges=") || answer.starts_with("error refused "), "{answer}");
    }
    skipped("no reading was slow enough to be held up");
    None
}

#[test]
fn a_user_that_locks_its_memory_map_while_it_is_read_is_refused_alone_and_the_daemon_ends() {
    on_own_host(|| {
        let daemon = DaemonForUsers::start();
        let Some(attack) = hold_up_reading(&daemon) else { return };
        assert!(ask_as(NEIGHBOUR, &daemon.socket).starts_with("ok ranges="), "another user");
        let refusal = ask_as(USER, &daemon.socket);
        assert!(refusal.contains("could not be read in time") && refusal.contains(&attack.pids[0].to_string()));
        drop(attack);
        wait_until("the user is served again", || ask_as(USER, &daemon.socket).starts_with("ok ranges="));
        let Some(_attack) = hold_up_reading(&daemon) else { return };
        daemon.daemon.end();
    });
}

#[test]
fn a_program_on_a_file_system_that_lies_and_hangs_is_served_as_any_other() {
    on_own_host(|| {
        let daemon = DaemonForUsers::start();
        let Some(mut attack) = RunningAttack::lying_program(&daemon.socket) else { return };
        attack.send_line("ask");
        wait_until("both requests are answered", || attack.answers().len() == 2);
        let answers = attack.answers();
        assert!(answers[0].starts_with("ok rss_bytes=") && answers[1].starts_with("ok ranges="), "{answers:?}");
        assert!(ask_as(NEIGHBOUR, &daemon.socket).starts_with("ok ranges="));
        daemon.daemon.end();
    });
}
