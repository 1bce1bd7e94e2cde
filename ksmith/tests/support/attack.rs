//! Attacks by an ordinary user, from `ksmith/tests/attacks`.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]
#![allow(clippy::disallowed_methods, reason = "a test's own words")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// The user that attacks.
pub const USER: &str = "65534";

/// Another user, who has nothing to do with that one.
pub const NEIGHBOUR: &str = "65533";

/// The processes of an attack. They end when this is dropped.
pub struct RunningAttack {
    child: Child,
    pub pids: Vec<u32>,
    _place: tempfile::TempDir,
}

impl RunningAttack {
    /// Processes that hold the locks of their memory maps for ever. `None`, said loudly, where no user can.
    pub fn hold_lock(count: usize) -> Option<Self> {
        Self::with_slow_file("hold_lock.py", count, count)
    }

    /// Processes that execute a program, each followed by its child, for as long as the guard lets them: what looks at
    /// them waits.
    pub fn hold_exec(count: usize) -> Option<Self> {
        Self::with_slow_file("hold_exec.py", count, 2 * count)
    }

    /// The processes that execute.
    pub fn executing(&self) -> impl Iterator<Item = u32> {
        self.pids.iter().step_by(2).copied()
    }

    /// Their children.
    pub fn children(&self) -> impl Iterator<Item = u32> {
        self.pids.iter().skip(1).step_by(2).copied()
    }

    /// True as long as they do: their new memory has nothing but a stack.
    pub fn executes(&self) -> bool {
        let pages =
            |pid| std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?.split(' ').next()?.parse().ok();
        self.executing().all(|pid| pages(pid).is_some_and(|pages: u64| (1..256).contains(&pages)))
    }

    /// Processes with a page at address 0x10000000 that is never read, not even by a process that is killed.
    pub fn no_page(count: usize) -> Option<Self> {
        Self::with_slow_file("no_page.py", count, count)
    }

    /// An attack with a file system of the user's own.
    fn with_slow_file(script: &str, count: usize, processes: usize) -> Option<Self> {
        let place = public_directory();
        let device = place.path().join("fuse");
        // As /dev/fuse is where a user may mount file systems of his own.
        if let Err(why) = mknodat(CWD, &device, FileType::CharacterDevice, Mode::from(0o600), makedev(10, 229)) {
            skipped(&format!("no device for FUSE: {why}"));
            return None;
        }
        std::fs::set_permissions(&device, PermissionsExt::from_mode(0o666)).unwrap();
        let path = |path: &Path| path.display().to_string();
        let arguments = [path(place.path()), path(&device), count.to_string()];
        Self::start(script, &arguments, processes, place)
    }

    /// Processes with 16 MiB of arguments, and one more with so many mappings.
    pub fn many_arguments(count: usize, mappings: usize) -> Option<Self> {
        let arguments = [count.to_string(), mappings.to_string()];
        Self::start("many_arguments.py", &arguments, count + 1, public_directory())
    }

    /// Processes that call themselves guests of others, and begin again and again.
    pub fn spoof_names(count: usize) -> Option<Self> {
        Self::start("spoof_names.py", &[count.to_string()], count, public_directory())
    }

    /// Idle processes of `user` with mergeable memory.
    pub fn many_processes(user: &str, count: usize) -> Option<Self> {
        Self::start_as(user, "many_processes.py", &[count.to_string()], count, public_directory())
    }

    /// Processes that execute programs all the time.
    pub fn execute_always(count: usize) -> Option<Self> {
        Self::start("execute_always.py", &[count.to_string()], count, public_directory())
    }

    /// A process of `user` in a user namespace of its own.
    pub fn own_namespace(user: &str) -> Option<Self> {
        Self::start_as(user, "own_namespace.py", &[], 1, public_directory())
    }

    /// Starts threads that send to a socket as fast as it takes, and read nothing.
    pub fn flood_socket(socket: &Path, threads: usize) -> Option<Self> {
        let arguments = [socket.display().to_string(), threads.to_string()];
        Self::start("flood_socket.py", &arguments, threads, public_directory())
    }

    fn start(script: &str, arguments: &[String], count: usize, place: tempfile::TempDir) -> Option<Self> {
        Self::start_as(USER, script, arguments, count, place)
    }

    fn start_as(
        user: &str,
        script: &str,
        arguments: &[String],
        count: usize,
        place: tempfile::TempDir,
    ) -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attacks").join(script);
        // Without compiled copies of what the scripts share, which would be root's files among the sources.
        let child = Command::new("python3")
            .arg("-B")
            .arg(script)
            .arg(user)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            skipped("there is no python3");
            return None;
        };
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let pids: Vec<u32> = lines.take(count).map(|line| line.unwrap().trim().parse().unwrap()).collect();
        if pids.len() < count {
            let output = child.wait_with_output().unwrap();
            skipped(&format!("the attack is not possible here: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
        Some(Self { child, pids, _place: place })
    }
}

impl Drop for RunningAttack {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn public_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    directory
}

/// Reports that nothing was tested. As the tests' own, which a bench does not have.
fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: {why}");
}
