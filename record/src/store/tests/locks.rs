//! Locks of other processes on the history's files.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::*;

/// A member of the file's group takes a shared lock on the byte by which SQLite locks writers out of the log.
#[test]
fn a_member_that_locks_what_it_may_read_holds_up_writes_as_a_passing_fault() {
    const LOCK: &str = "import fcntl, sys\n\
                        shm = open(sys.argv[1], 'rb')\n\
                        fcntl.lockf(shm, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 120)\n\
                        print('held', flush=True)\n\
                        sys.stdin.readline()\n";
    let Some((directory, inner)) = directory_of_group() else { return };
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let path = inner.join("history.db");
    let mut store = HistoryStore::open(&path, "boot", BEGIN, HistoryBounds::default()).unwrap().store;
    store.write(&[host(BEGIN, 1, 1)]).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", LOCK]).arg(beside(&path, "-shm")).uid(65533).gid(54321).current_dir("/");
    let Ok(mut member) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else { return };
    let mut line = String::new();
    BufReader::new(member.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let error = store.write(&[host(BEGIN + 1000, 2, 2)]).unwrap_err();
    assert_eq!(error.fault(), StoreFault::Passing, "{error}");
    drop(member.stdin.take());
    member.wait().unwrap();
    store.write(&[host(BEGIN + 2000, 3, 3)]).unwrap();
}
