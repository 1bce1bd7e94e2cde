//! A ksmith that the kernel ends for memory in the middle of an action: `ksmith restore` restores each setting.
//!
//! The program runs in a memory cgroup. At some moment of the action a process that the kernel may not kill takes all
//! memory that the cgroup may have: then the program, or a child of it, is ended wherever it is.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::program::{PROGRAM, RunningProgram, config_file, ksmith};
use crate::support::{KernelLock, UNDO, guest, number, skipped, wait_until, write};
use ksmith_lab::MemoryPart;
use rustix::process::Signal;

/// Pages of each guest: at a tenth of a CPU a pass over both takes seconds.
const PAGES: usize = 32_768;

const SLOW: &str = "[limits]\nmax_cpu = \"10%\"\n";

/// Memory of the cgroup. The program needs some MiB of its own.
const LIMIT: u64 = 48 << 20;

/// Memory that is left to the program once the rest is taken: less than it needs.
const LEFT: u64 = 512 << 10;

/// Times from the start of an action to the moment when memory runs out.
const MOMENTS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(30), Duration::from_millis(250)];

/// Takes memory in the cgroup with this `cgroup.procs`, until its input ends. The kernel may not kill it.
const TAKER: &str = "import mmap, sys\n\
                     open('/proc/self/oom_score_adj', 'w').write('-1000')\n\
                     memory = mmap.mmap(-1, int(sys.argv[2]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
                     open(sys.argv[1], 'w').write('0')\n\
                     for at in range(0, len(memory), 4096): memory[at] = 1\n\
                     print('taken', flush=True)\n\
                     sys.stdin.read()\n";

/// A cgroup with a limit of memory, and without swap. Removed on drop.
struct MemoryCgroup {
    directory: PathBuf,
}

impl MemoryCgroup {
    /// `None`, said loudly, where no such cgroup can be made.
    fn make() -> Option<Self> {
        let name = format!("ksmith-test-memory-{}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup/unified", "memory.max", ("memory.swap.max", "0")),
            ("/sys/fs/cgroup", "memory.max", ("memory.swap.max", "0")),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", ("memory.swappiness", "0")),
        ];
        for (parent, limit, (swap, none)) in kinds {
            let directory = Path::new(parent).join(&name);
            if fs::create_dir_all(&directory).is_ok()
                && directory.join(limit).exists()
                && fs::write(directory.join(limit), LIMIT.to_string()).is_ok()
            {
                // A kernel without swap has no such file.
                if directory.join(swap).exists() {
                    fs::write(directory.join(swap), none).unwrap();
                }
                return Some(Self { directory });
            }
            let _ = fs::remove_dir(&directory);
        }
        skipped("no cgroup here can limit memory");
        None
    }

    fn processes(&self) -> String {
        self.directory.join("cgroup.procs").display().to_string()
    }

    /// Starts the program in the cgroup.
    fn start(&self, arguments: &[&str]) -> RunningProgram {
        const ENTER: &str = "echo $$ > \"$0\" && exec \"$@\"";
        let processes = self.processes();
        let line = [&["sh", "-c", ENTER, &processes, PROGRAM][..], arguments].concat();
        RunningProgram::start_line(&line, |_| ())
    }

    /// Takes all memory that the cgroup may have.
    fn take_memory(&self) -> MemoryTaker {
        let mut child = Command::new("python3")
            .args(["-c", TAKER, &self.processes(), &(LIMIT - LEFT).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "taken\n");
        MemoryTaker(child)
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.directory);
    }
}

/// A process that has a cgroup's memory. Ended on drop.
struct MemoryTaker(Child);

impl Drop for MemoryTaker {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The outcomes of the actions so far.
#[derive(Debug, Default)]
struct EndedActions {
    /// Those that the kernel ended.
    killed: usize,
    /// Those that left changed settings.
    changed: usize,
}

impl EndedActions {
    /// Waits for the end of an action for which memory has run out, and restores what it has left.
    fn end(&mut self, lock: &KernelLock, mut action: RunningProgram, what: &str) {
        let ended = action.wait();
        self.killed += usize::from(ended.signal() == Some(Signal::KILL.as_raw()));
        self.changed += usize::from(!lock.changed_settings().is_empty());
        let (code, out, err) = ksmith(&["restore"]);
        assert_eq!(code, 0, "{what} ended with {ended}: {out}{err}");
        assert_eq!(lock.changed_settings(), Vec::<String>::new(), "{what} ended with {ended}: {out}");
        assert!(!Path::new(UNDO).exists(), "{what}: the journal is done with");
    }
}

/// Makes ksmd forget all it knows, so that the next action finds memory to scan.
fn unmerge() {
    write("run", "2");
    write("run", "0");
}

/// Waits until ksmd runs, by an action that goes on.
fn wait_for_scan() {
    wait_until("ksmd runs", || number("run") == 1);
}

#[test]
fn whatever_ksmith_does_when_memory_runs_out_restore_brings_each_setting_back() {
    let Some(lock) = KernelLock::acquire() else { return };
    let Some(cgroup) = MemoryCgroup::make() else { return };
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skipped("there is no python3");
    }
    let parts = [MemoryPart::Equal { seed: 91, pages: PAGES }];
    let mut guests = [guest(&parts), guest(&parts)];
    let (_file, config) = config_file(SLOW);
    let pid = guests[0].pid().to_string();
    let actions: [&[&str]; 5] = [
        &["--config", &config, "scan"],
        &["unmerge", "--force"],
        &["fold", &pid],
        &["--config", &config, "balance", "--dry-run"],
        &["daemon", "--config", &config],
    ];
    let mut ended = EndedActions::default();
    for arguments in actions {
        for moment in MOMENTS {
            let action = cgroup.start(arguments);
            std::thread::sleep(moment);
            let taken = cgroup.take_memory();
            // One that was not ended for memory: a daemon goes on otherwise.
            action.signal(Signal::TERM);
            ended.end(&lock, action, &format!("{arguments:?} after {moment:?}"));
            drop(taken);
        }
    }
    // In the middle of a scan, and at the end of a daemon.
    for (arguments, ends) in [(actions[0], false), (actions[4], false), (actions[4], true)] {
        unmerge();
        let action = cgroup.start(arguments);
        wait_for_scan();
        if ends {
            action.signal(Signal::TERM);
        }
        let taken = cgroup.take_memory();
        if !ends {
            wait_until("it has ended for memory", || has_ended(action.pid()));
        }
        ended.end(&lock, action, &format!("{arguments:?} while ksmd runs"));
        drop(taken);
    }
    assert!(ended.killed >= 2 && ended.changed >= 2, "in the middle of each: {ended:?}");
    // A restore that is ended itself leaves what a later one restores.
    for moment in MOMENTS {
        unmerge();
        let daemon = cgroup.start(actions[4]);
        wait_for_scan();
        daemon.kill();
        let restore = cgroup.start(&["restore"]);
        std::thread::sleep(moment);
        let taken = cgroup.take_memory();
        ended.end(&lock, restore, &format!("restore after {moment:?}"));
        drop(taken);
    }
    for guest in &mut guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
}

/// Returns true if a child of this process has ended, whether it was waited for or not.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}
