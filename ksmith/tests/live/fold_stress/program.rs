//! The program that has its memory folded, compiled from the C files of this folder.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::fold_loop::FoldLoop;
use crate::support::{skipped, wait_until};

/// The time beyond the requested duration after which a run counts as hung; slow machines need some of it.
const GRACE: Duration = Duration::from_secs(900);

/// The compiled program, in a directory on a disk: memory file systems may have no `O_DIRECT`.
pub struct StressProgram {
    directory: tempfile::TempDir,
}

impl StressProgram {
    /// `None`, said loudly, where there is no C compiler.
    pub fn compile() -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/live/fold_stress");
        let mut sources: Vec<PathBuf> = fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path()).collect();
        sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
        let mut command = Command::new("cc");
        command
            .args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
            .arg(directory.path().join("fold-stress"))
            .args(sources);
        let Ok(output) = command.output() else {
            skipped("there is no C compiler");
            return None;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(Self { directory })
    }

    /// The program's file.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("fold-stress")
    }

    /// Starts it by a command line that ends by running the program, such as `ksmith run --`, and waits until it is ready.
    pub fn start_under(&self, line: &[&str], seconds: u64, words: &[&str]) -> RunningStress {
        let program = self.path();
        let mut all: Vec<&str> = line.to_vec();
        all.push(program.to_str().unwrap());
        let log = |name: &str| fs::File::create(self.directory.path().join(name)).unwrap();
        let mut command = Command::new(all[0]);
        command
            .args(&all[1..])
            .arg(seconds.to_string())
            .args(words)
            .current_dir(self.directory.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log("out"))
            .stderr(log("err"));
        let child = command.spawn().expect("the program starts");
        let limit = Duration::from_secs(seconds) + GRACE;
        let directory = self.directory.path().to_owned();
        let mut running = RunningStress { child, directory, begin: Instant::now(), limit, ended: None };
        wait_until("the program is ready", || running.out().contains("ready ") || !running.is_running());
        running
    }

    /// Starts the program on its own.
    pub fn start(&self, seconds: u64, words: &[&str]) -> RunningStress {
        self.start_under(&[], seconds, words)
    }
}

/// A run of the program, with all its processes. Killed on drop.
pub struct RunningStress {
    child: Child,
    directory: PathBuf,
    begin: Instant,
    limit: Duration,
    ended: Option<ExitStatus>,
}

impl RunningStress {
    fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.join(name)).unwrap_or_default()).into_owned()
    }

    fn out(&self) -> String {
        self.read("out")
    }

    /// Returns its output on standard error.
    pub fn errors(&self) -> String {
        self.read("err")
    }

    /// True until its first process has ended. Panics where it hangs.
    pub fn is_running(&mut self) -> bool {
        self.ended = self.ended.or(self.child.try_wait().unwrap());
        assert!(
            self.ended.is_some() || self.begin.elapsed() < self.limit,
            "the program hangs: {}\n{}",
            self.errors(),
            self.describe_waits()
        );
        self.ended.is_none()
    }

    /// Describes the kernel stacks in which its threads wait.
    fn describe_waits(&self) -> String {
        let mut text = String::new();
        for pid in self.pids() {
            let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { continue };
            for task in tasks.flatten() {
                let stack = fs::read_to_string(task.path().join("stack")).unwrap_or_default();
                text += &format!("{}:\n{stack}", task.path().display());
            }
        }
        text
    }

    /// Its processes: those of its group, which what it forks belongs to as well.
    pub fn pids(&self) -> Vec<u32> {
        let group = self.child.id();
        let all = fs::read_dir("/proc").unwrap().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
            let mut fields = rest.split(' ');
            let is_zombie = fields.next() == Some("Z");
            !is_zombie && fields.nth(1).and_then(|field| field.parse().ok()) == Some(group)
        })
        .collect()
    }

    /// The processes that live as long as the run.
    pub fn lasting_pids(&self) -> Vec<u32> {
        let out = self.out();
        let line = out.lines().find_map(|line| line.strip_prefix("ready ")).unwrap_or_default().to_owned();
        line.split(' ').filter_map(|word| word.parse().ok()).collect()
    }

    /// Makes one pass over all its processes that last, and one over each that may end meanwhile.
    pub fn fold_once(&mut self, folds: &mut FoldLoop) {
        let lasting = self.lasting_pids();
        let is_passing = |pid: &u32| *pid != self.child.id() && !lasting.contains(pid);
        let passing: Vec<u32> = self.pids().into_iter().filter(is_passing).collect();
        folds.pass(&lasting);
        for pid in passing {
            folds.pass(&[pid]);
        }
    }

    /// Waits for the end, which must be a good one. Says loudly which parts did not run, and returns the counts.
    pub fn finish(mut self) -> String {
        while self.is_running() {
            std::thread::sleep(Duration::from_millis(50));
        }
        let (status, out) = (self.ended.unwrap(), self.out());
        let is_well = status.success() && out.ends_with("ok\n");
        assert!(is_well, "{:?} {:?}: {}\n{out}", status.code(), status.signal(), self.errors());
        for line in out.lines() {
            if let Some(why) = line.strip_prefix("skipped: ") {
                skipped(&format!("fold stress: {why}"));
            }
        }
        let counts = out.lines().find_map(|line| line.strip_prefix("counts: "));
        counts.unwrap_or_default().to_owned()
    }

    /// Waits for the end. Returns what it said of a byte that differed, if one did.
    pub fn wait_for_difference(mut self) -> Option<String> {
        while self.is_running() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let errors = self.errors();
        let differs = errors.lines().find(|line| line.starts_with("DIFFERS: "));
        differs.filter(|_| self.ended.is_some_and(|status| status.code() == Some(1))).map(str::to_owned)
    }
}

impl Drop for RunningStress {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
