//! A Linux in QEMU that boots to a shell on its serial port, with a balloon if it is to have one.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::pool::CgroupPool;
use super::vm::has;
use super::{guest_kernel, skipped};

/// Kernel modules in the order of their dependencies.
const MODULES: [&str; 6] =
    ["virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci", "virtio_balloon"];

/// `leak` is a file system in memory: what lies there can't be reclaimed.
const INIT: &str = "#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir /leak
mount -t tmpfs -o size=100% leak /leak
for module in $(cat /modules/order); do insmod /modules/$module.ko; done
echo up-$((6 * 7))
exec setsid sh -c 'exec sh -i < /dev/ttyS0 > /dev/ttyS0 2>&1'
";

/// Without `no_timer_check` the kernel panics where a busy host delays the emulated timer: "IO-APIC + timer doesn't work".
pub const APPEND: &str = "console=ttyS0 quiet panic=-1 no_timer_check rdinit=/init";

/// A kernel and what it boots.
pub struct LinuxKit {
    directory: PathBuf,
    kernel: PathBuf,
}

/// A module of the guests' kernel that not every guest needs. `None`, said loudly, where it was not unpacked.
pub fn module(name: &str) -> Option<PathBuf> {
    let found = find(&guest_kernel(), &|file| file == format!("{name}.ko"));
    if found.is_none() {
        skipped(&format!(
            "no {name} for guests in {} (remove it, make target/guest-kernel)",
            guest_kernel().display()
        ));
    }
    found
}

fn find(directory: &Path, is_it: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    fs::read_dir(directory).ok()?.flatten().find_map(|entry| {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() { find(&path, is_it) } else { is_it(&name).then_some(path) }
    })
}

impl LinuxKit {
    /// `None`, said loudly, where there is no kernel (`make target/guest-kernel`) or a program is missing. `more` is
    /// put into the guests' tree: host path and guest path.
    pub fn make(directory: &Path, more: &[(PathBuf, String)]) -> Option<Self> {
        if !["qemu-system-x86_64", "cpio", "busybox"].into_iter().all(has) {
            return None;
        }
        let unpacked = guest_kernel();
        let Some(kernel) = find(&unpacked, &|name| name.starts_with("vmlinuz-")) else {
            skipped(&format!("no kernel for guests in {} (make target/guest-kernel)", unpacked.display()));
            return None;
        };
        let tree = directory.join("initrd");
        for place in ["bin", "proc", "sys", "dev", "modules", "tmp"] {
            fs::create_dir_all(tree.join(place)).unwrap();
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        fs::copy(busybox.unwrap(), tree.join("bin/busybox")).unwrap();
        std::os::unix::fs::symlink("busybox", tree.join("bin/sh")).unwrap();
        for module in MODULES {
            let name = format!("{module}.ko");
            let path = find(&unpacked, &|found| found == name).unwrap_or_else(|| panic!("no {name}"));
            fs::copy(path, tree.join("modules").join(name)).unwrap();
        }
        fs::write(tree.join("modules/order"), MODULES.join("\n")).unwrap();
        for (from, to) in more {
            let to = tree.join(to.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(from, to).unwrap();
        }
        fs::write(tree.join("init"), INIT).unwrap();
        fs::set_permissions(tree.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
        let packed = Command::new("sh")
            .args(["-c", "find . | cpio -o -H newc --quiet > ../initrd.cpio"])
            .current_dir(&tree)
            .status();
        assert!(packed.unwrap().success(), "the tree is packed");
        Some(Self { directory: directory.to_owned(), kernel })
    }

    /// Starts a guest. Its memory does not merge unless `more` says so.
    pub fn start(&self, name: &str, mib: u64, pool: Option<&CgroupPool>, more: &[&str]) -> LinuxGuest {
        self.start_under(&[], name, mib, pool, more)
    }

    /// Starts a guest by a command line that ends by running QEMU, such as `ksmith run --`.
    pub fn start_under(
        &self,
        line: &[&str],
        name: &str,
        mib: u64,
        pool: Option<&CgroupPool>,
        more: &[&str],
    ) -> LinuxGuest {
        let console = self.directory.join(format!("{name}.console"));
        let socket = self.directory.join(format!("{name}.qmp"));
        let pid_file = self.directory.join(format!("{name}.pid"));
        let mut words = line.iter().copied().chain(["qemu-system-x86_64"]);
        let mut command = Command::new(words.next().unwrap());
        command
            .args(words)
            .arg("-pidfile")
            .arg(&pid_file)
            .args(["-accel", "tcg,tb-size=16", "-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"])
            .args(["-m", &mib.to_string(), "-name", &format!("guest={name}")])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(self.directory.join("initrd.cpio"))
            .args(["-append", APPEND])
            .args(more)
            .stdin(Stdio::piped())
            .stdout(File::create(&console).unwrap())
            .stderr(Stdio::inherit());
        if !more.iter().any(|option| option.contains("mem-merge")) {
            command.args(["-machine", "pc,mem-merge=off"]);
        }
        if let Some(pool) = pool {
            pool.hold(&mut command);
        }
        let mut child = command.spawn().expect("QEMU starts");
        let keyboard = child.stdin.take().unwrap();
        LinuxGuest { name: name.to_owned(), socket, child, keyboard, console, pid_file }
    }
}

/// A guest. Ended on drop.
pub struct LinuxGuest {
    pub name: String,
    pub socket: PathBuf,
    child: Child,
    keyboard: ChildStdin,
    console: PathBuf,
    pid_file: PathBuf,
}

impl LinuxGuest {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// QEMU's own pid, also where another program has started it. It is written before the guest boots.
    pub fn qemu_pid(&self) -> u32 {
        fs::read_to_string(&self.pid_file).expect("QEMU has written its pid").trim().parse().unwrap()
    }

    /// Requests the end of QEMU, and waits for the program that started it.
    pub fn end(&mut self) {
        if self.is_alive() {
            let pid = Pid::from_raw(self.qemu_pid().cast_signed()).unwrap();
            let _ = kill_process(pid, Signal::TERM);
            let _ = self.child.wait();
        }
    }

    pub fn console(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

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

    /// Waits for its shell.
    pub fn boot(&mut self, patience: Duration) -> bool {
        self.wait_for("up-42", 0, patience) && self.wait_for("# ", 0, patience)
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) {
        let _ = writeln!(self.keyboard, "{line}");
    }

    /// Runs a command in the guest and waits for its end. Returns its output; `None` if it does not end.
    pub fn run(&mut self, command: &str, patience: Duration) -> Option<String> {
        let from = self.console().len();
        self.type_line(&format!("{command}; echo done-$((6 * 7))"));
        self.wait_for("done-42", from, patience).then(|| self.console().split_off(from))
    }

    /// Takes memory inside that can't be reclaimed.
    pub fn leak(&mut self, name: &str, mib: u64, patience: Duration) -> bool {
        self.run(&format!("dd if=/dev/urandom of=/leak/{name} bs=1M count={mib} 2> /dev/null"), patience).is_some()
    }

    /// Touches memory and frees it again: the host goes on spending it.
    pub fn touch(&mut self, mib: u64, patience: Duration) -> bool {
        let command = format!("dd if=/dev/zero of=/leak/touch bs=1M count={mib} 2> /dev/null; rm /leak/touch");
        self.run(&command, patience).is_some()
    }

    /// Returns true if its own kernel has killed a process for memory.
    pub fn has_killed(&mut self, patience: Duration) -> bool {
        let told = self.run("grep oom_kill /proc/vmstat", patience).unwrap_or_default();
        !told.contains("oom_kill 0")
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for LinuxGuest {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_file(&self.socket);
    }
}
