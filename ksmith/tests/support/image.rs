//! User-mode Linux guests booted from one disk image, which read it and then ask for a login on their console.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use ksmith_service::balance::{MemoryActuator, MemoryLedger};

use super::actuator_of;
use super::pool::CgroupPool;
use super::vm::{UmlKit, has};

/// Reads all there is to read, as a system that boots and works does, then waits for a login.
const INIT: &str = "#!/bin/sh
mount -t proc proc /proc
cat /usr/share/data/* > /dev/null
while :; do getty 38400 tty0 vt100; done
";

const APPLETS: [&str; 12] =
    ["sh", "cat", "mount", "getty", "login", "echo", "sleep", "dd", "head", "grep", "sync", "tail"];

/// An image and what starts guests from it.
pub struct UmlImage {
    directory: PathBuf,
    kit: UmlKit,
}

impl UmlImage {
    /// Makes an image of which `data_mib` are files to be read. `None`, said loudly, where a program is missing.
    pub fn make(directory: &Path, data_mib: usize) -> Option<Self> {
        Self::make_with(directory, data_mib, INIT)
    }

    /// As [`UmlImage::make`], with another first program.
    pub fn make_with(directory: &Path, data_mib: usize, init: &str) -> Option<Self> {
        let kit = UmlKit::make(directory)?;
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        if busybox.is_none() || !has("mke2fs") {
            let _ = has("busybox");
            return None;
        }
        let tree = directory.join("tree");
        for place in ["bin", "dev", "proc", "etc", "root", "usr/share/data"] {
            fs::create_dir_all(tree.join(place)).unwrap();
        }
        fs::copy(busybox.unwrap(), tree.join("bin/busybox")).unwrap();
        for applet in APPLETS {
            symlink("busybox", tree.join("bin").join(applet)).unwrap();
        }
        fs::write(tree.join("etc/passwd"), "root::0:0:root:/root:/bin/sh\n").unwrap();
        fs::write(tree.join("etc/group"), "root:x:0:\n").unwrap();
        fs::write(tree.join("etc/init"), init).unwrap();
        fs::set_permissions(tree.join("etc/init"), fs::Permissions::from_mode(0o755)).unwrap();
        let mut state = 1_u64;
        for number in 0..data_mib {
            let mut bytes = Vec::with_capacity(1 << 20);
            while bytes.len() < 1 << 20 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                bytes.extend_from_slice(&state.to_le_bytes());
            }
            fs::write(tree.join("usr/share/data").join(number.to_string()), bytes).unwrap();
        }
        let made = Command::new("mke2fs")
            .args(["-q", "-t", "ext4", "-O", "^has_journal", "-d"])
            .arg(&tree)
            .arg(directory.join("base.img"))
            .arg(format!("{}M", data_mib + data_mib / 8 + 16))
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "the image is made");
        fs::create_dir_all(directory.join("home")).unwrap();
        Some(Self { directory: directory.to_owned(), kit })
    }

    /// Starts a guest, in the pool if there is one.
    pub fn start(&self, name: &str, mib: u64, pool: Option<&CgroupPool>) -> ImageGuest {
        let console = self.directory.join(format!("{name}.console"));
        let out = File::create(&console).unwrap();
        let mut command = Command::new("linux.uml");
        command
            .args([
                &format!("mem={mib}M"),
                &format!("umid={name}"),
                "root=/dev/ubda",
                "ro",
                "init=/etc/init",
                "quiet",
            ])
            .arg(format!("ubd0r={}", self.directory.join("base.img").display()))
            .args(["con=null", "con0=fd:0,fd:1", "ssl=null"])
            .process_group(0)
            .env("HOME", self.directory.join("home"))
            .env("TMPDIR", "/dev/shm")
            .env("LD_PRELOAD", self.kit.registers())
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out);
        if let Some(pool) = pool {
            pool.hold(&mut command);
        }
        let mut child = command.spawn().expect("user-mode Linux starts");
        let keyboard = child.stdin.take().unwrap();
        ImageGuest { name: name.to_owned(), child, keyboard, console }
    }
}

/// A guest from the image. Ended on drop.
pub struct ImageGuest {
    pub name: String,
    child: Child,
    keyboard: ChildStdin,
    console: PathBuf,
}

impl ImageGuest {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The way by which balance resizes it.
    pub fn actuator(&self, ledger: &MemoryLedger) -> Box<dyn MemoryActuator> {
        actuator_of(self.pid(), &self.name, ledger).unwrap()
    }

    /// Returns the output of its console.
    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until the console shows `text` behind `from` bytes.
    fn wait_for(&mut self, text: &str, from: usize, patience: Duration) -> bool {
        let started = Instant::now();
        while started.elapsed() < patience {
            if self.console().get(from..).is_some_and(|shown| shown.contains(text)) {
                return true;
            }
            if !self.is_alive() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Waits for the login prompt.
    pub fn boot(&mut self, patience: Duration) -> bool {
        self.wait_for("login:", 0, patience)
    }

    /// Types a line on its console.
    pub fn type_line(&mut self, line: &str) {
        let _ = writeln!(self.keyboard, "{line}");
    }

    /// Logs in, if that was not done, and has the guest's shell multiply: what is shown can't be the echo.
    pub fn answers(&mut self, patience: Duration) -> bool {
        if !self.console().contains(" # ") {
            self.type_line("root");
            if !self.wait_for(" # ", 0, patience) {
                return false;
            }
        }
        let from = self.console().len();
        self.type_line("echo alive-$((6 * 7))");
        self.wait_for("alive-42", from, patience)
    }

    /// Runs a command in the guest and waits for its end.
    pub fn run(&mut self, command: &str, patience: Duration) -> bool {
        let from = self.console().len();
        self.type_line(&format!("{command}; echo done-$((6 * 7))"));
        self.wait_for("done-42", from, patience)
    }

    /// Ends it without warning.
    pub fn kill(&mut self) {
        // Its helpers and its guest's programs are processes of their own, which outlive it; all are in its group.
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

impl Drop for ImageGuest {
    fn drop(&mut self) {
        self.kill();
    }
}
