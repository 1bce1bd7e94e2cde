//! A pool of memory for guests: a cgroup with a limit, of either version, and a real swap file behind it.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::skipped;

/// A cgroup with a limit. Removed on drop, when all its processes are gone.
pub struct CgroupPool {
    directory: PathBuf,
    is_unified: bool,
}

impl CgroupPool {
    /// `None`, said loudly, where no memory cgroup can be made.
    pub fn make(limit_bytes: u64) -> Option<Self> {
        let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
        let is_unified = controllers.split_whitespace().any(|name| name == "memory");
        let parent = Path::new(if is_unified { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/memory" });
        if is_unified {
            let _ = fs::write(parent.join("cgroup.subtree_control"), "+memory");
        }
        // A test among PIDs of its own has the PID of another: they don't tell pools apart.
        let directory = match tempfile::Builder::new().prefix("ksmith-pool-").tempdir_in(parent) {
            Ok(made) => made.keep(),
            Err(why) => {
                skipped(&format!("no memory cgroup can be made in {} ({why})", parent.display()));
                return None;
            }
        };
        let file = if is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        if let Err(why) = fs::write(directory.join(file), limit_bytes.to_string()) {
            skipped(&format!("no memory cgroup can be made ({}: {why})", directory.display()));
            let _ = fs::remove_dir(&directory);
            return None;
        }
        Some(Self { directory, is_unified })
    }

    /// Sets another limit. False if it uses more than that.
    pub fn limit(&self, bytes: u64) -> bool {
        let file = if self.is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(self.directory.join(file), bytes.to_string()).is_ok()
    }

    /// Makes the kernel drop page cache and swap nothing when the pool reaches its limit. If that is not enough, a
    /// guest is killed. Version 2 of cgroups has no such switch.
    pub fn drop_cache_only(&self) {
        let _ = fs::write(self.directory.join("memory.swappiness"), "0");
    }

    /// Makes the kernel swap only when there is no page cache left to drop. By default it swaps some old pages although
    /// there is.
    /// Version 2 of cgroups has no such switch.
    pub fn drop_cache_first(&self) {
        let _ = fs::write(self.directory.join("memory.swappiness"), "1");
    }

    /// Returns the used bytes without page cache.
    pub fn used_without_cache(&self) -> u64 {
        self.used_bytes().saturating_sub(self.cache_bytes())
    }

    /// Returns the pool's name in the configuration.
    pub fn name(&self) -> String {
        self.directory.strip_prefix("/sys/fs/cgroup").unwrap().display().to_string()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Runs a command in the pool, with all that it starts.
    pub fn hold(&self, command: &mut Command) {
        let processes = self.directory.join("cgroup.procs");
        let processes = std::ffi::CString::new(processes.into_os_string().into_encoded_bytes()).unwrap();
        let join = move || -> std::io::Result<()> {
            // Between fork and exec: plain system calls only.
            let file = rustix::fs::open(&*processes, rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())?;
            rustix::io::write(&file, b"0")?;
            Ok(())
        };
        #[allow(unsafe_code, reason = "a process must be in the pool before it takes memory")]
        // SAFETY: the closure allocates nothing and takes no lock: it opens, writes and closes one file.
        unsafe {
            command.pre_exec(join);
        }
    }

    fn number(&self, file: &str) -> u64 {
        let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// A line of a file of keys and numbers.
    pub fn key(&self, file: &str, key: &str) -> u64 {
        let text = fs::read_to_string(self.directory.join(file)).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    }

    pub fn used_bytes(&self) -> u64 {
        self.number(if self.is_unified { "memory.current" } else { "memory.usage_in_bytes" })
    }

    /// Page cache of files: what goes first, before anything is swapped.
    pub fn cache_bytes(&self) -> u64 {
        self.key("memory.stat", "inactive_file") + self.key("memory.stat", "active_file")
    }

    /// Returns its swapped bytes.
    pub fn swapped_bytes(&self) -> u64 {
        if self.is_unified { self.number("memory.swap.current") } else { self.key("memory.stat", "swap") }
    }

    /// Returns the number of processes in it that were killed for lack of memory.
    pub fn oom_kills(&self) -> u64 {
        self.key(if self.is_unified { "memory.events" } else { "memory.oom_control" }, "oom_kill")
    }
}

impl Drop for CgroupPool {
    fn drop(&mut self) {
        let started = Instant::now();
        while fs::remove_dir(&self.directory).is_err() && started.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// One test at a time has swap, and none where a test wants it off: the whole host has it.
const SWAP_LOCK: &str = "/run/lock/ksmith-swap.lock";

fn swap_lock() -> File {
    OpenOptions::new().create(true).append(true).open(SWAP_LOCK).expect(SWAP_LOCK)
}

/// Holds off tests that turn swap on: for a test with a pool that is to run out of memory.
pub fn hold_off_swap() -> File {
    let lock = swap_lock();
    lock.lock_shared().unwrap();
    lock
}

/// A swap file in use, or the swap that the host has anyway.
pub struct SwapArea {
    file: Option<tempfile::TempPath>,
    _lock: File,
}

impl SwapArea {
    /// `None`, said loudly, where there is no swap and none can be had.
    pub fn on(bytes: u64) -> Option<Self> {
        let lock = swap_lock();
        lock.lock().unwrap();
        if fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1 {
            return Some(Self { file: None, _lock: lock });
        }
        // Temporary files may be in memory, where there is no swap.
        let file = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap().into_temp_path();
        let quiet = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            command.args(arguments).arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        let is_on = quiet("fallocate", &["-l", &bytes.to_string()])
            && quiet("chmod", &["600"])
            && quiet("mkswap", &["-q"])
            && quiet("swapon", &[]);
        if !is_on {
            skipped(&format!("there is no swap, and {} can't be used as such", file.display()));
            return None;
        }
        Some(Self { file: Some(file), _lock: lock })
    }
}

impl Drop for SwapArea {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = Command::new("swapoff").arg(file).status();
        }
    }
}
