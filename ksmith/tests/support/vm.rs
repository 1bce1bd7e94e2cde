//! Real virtual machines for tests: QEMU by itself and under libvirt, and user-mode Linux. They boot nothing: what
//! matters is that their memory holds what the test says.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ksmith_core::kernel::ProcessMapping;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::{skipped, wait_until};

pub const PAGE: usize = 4096;

/// Pages of a guest's memory that the test fills; each differs from the others.
pub const FILLED_PAGES: usize = 4096;

/// The address of the filled pages in the guest: above the firmware's own.
const AT: &str = "0x1000000";

/// Returns true if a program can be started; if not, says so loudly.
pub fn has(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .chain([PathBuf::from("/usr/sbin")])
        .any(|directory| directory.join(program).exists());
    if !found {
        skipped(&format!("{program} is not installed"));
    }
    found
}

/// A file with the guest's filled pages: the same for the same seed.
pub fn content(directory: &Path, seed: u64) -> PathBuf {
    let path = directory.join(format!("content-{seed}"));
    let mut bytes = Vec::with_capacity(FILLED_PAGES * PAGE);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while bytes.len() < FILLED_PAGES * PAGE {
        // xorshift64: no two of these pages are equal.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_ne_bytes());
    }
    fs::write(&path, bytes).unwrap();
    // libvirt's QEMU runs as another user.
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    path
}

/// Returns figures of a process's mappings of a file, in KiB, by the keys of its smaps. The file must be mapped once.
pub fn mapped_file<const N: usize>(pid: u32, file: &str, keys: [&str; N]) -> [u64; N] {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mut its = smaps.lines().skip_while(|line| !line.ends_with(&format!("/{file}"))).skip(1);
    let figures: Vec<&str> = its.by_ref().take_while(|line| !line.starts_with("VmFlags:")).collect();
    assert!(!figures.is_empty(), "{file} is not mapped");
    assert!(!its.any(|line| line.ends_with(&format!("/{file}"))), "{file} is mapped in parts");
    keys.map(|key| {
        let value = figures.iter().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let value = value.unwrap_or_else(|| panic!("no {key}")).trim().trim_end_matches(" kB");
        value.parse().unwrap()
    })
}

/// Returns true if a guest's RAM, of so many bytes in one mapping, is offered to KSM.
pub fn is_offered(pid: u32, bytes: u64) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let mappings = ProcessMapping::parse_all(&text).unwrap();
    mappings.iter().any(|mapping| mapping.end - mapping.start == bytes && mapping.is_mergeable() == Some(true))
}

/// A QEMU that was started by the test. Ended on drop.
pub struct QemuProcess {
    child: Child,
    pub socket: PathBuf,
}

/// Returns true if QEMU serves QMP there. It has its socket before it has a machine, and only then answers.
pub fn serves_qmp(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.read(&mut [0; 1]).is_ok_and(|count| count == 1)
}

impl QemuProcess {
    /// A machine with 64 MiB, of which 16 hold `content`. Its processors never start.
    pub fn start(directory: &Path, name: &str, content: Option<&Path>, more: &[&str]) -> Self {
        Self::start_with(directory, name, content, more, |_| ())
    }

    /// Starts it after `adjust` has had a look at the command.
    pub fn start_with(
        directory: &Path,
        name: &str,
        content: Option<&Path>,
        more: &[&str],
        adjust: impl FnOnce(&mut Command),
    ) -> Self {
        let number = fs::read_dir(directory).unwrap().count();
        let socket = directory.join(format!("qmp-{name}-{number}"));
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg", "-S", "-nodefaults", "-display", "none", "-m", "64"])
            .args([
                "-name",
                &format!("guest={name}"),
                "-qmp",
                &format!("unix:{},server=on,wait=off", socket.display()),
            ])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if let Some(content) = content {
            command.args(["-device", &format!("loader,file={},addr={AT},force-raw=on", content.display())]);
        }
        adjust(&mut command);
        let mut child = command.spawn().expect("QEMU starts");
        wait_until("QEMU serves QMP", || {
            assert!(child.try_wait().unwrap().is_none(), "QEMU ended");
            serves_qmp(&socket)
        });
        Self { child, socket }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for QemuProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.socket);
    }
}

/// Starts libvirt's daemons and collects what they leave behind: libvirt waits for each QEMU that it has ended to leave
/// `/proc`, and the first process of a container may take seconds to collect it.
const REAPER: &str = r#"
import ctypes, os, subprocess, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
for program in sys.argv[1:]:
    subprocess.run([program, "-d"], check=True)
print("started", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"#;

/// Hides `/dev/kvm` from libvirt's daemons: where they see one that its QEMUs may not use, they ask QEMU anew what it can
/// do, some ten times for each guest. QEMU then gets no `/dev` of its own, into which that could not be moved.
const HIDE_KVM: &str = "mount --bind no-kvm /dev/kvm; mount --bind qemu.conf /etc/libvirt/qemu.conf; exec \"$@\"";

/// libvirt's daemons: those that run, or ours until dropped.
pub struct LibvirtDaemons {
    ours: Vec<Pid>,
    reapers: Vec<Child>,
    tree: tempfile::TempDir,
}

impl LibvirtDaemons {
    /// `None`, said loudly, where there is no libvirt.
    pub fn start() -> Option<Self> {
        if !["libvirtd", "virtlogd", "virsh", "qemu-system-x86_64", "python3"].into_iter().all(has) {
            return None;
        }
        let tree = tempfile::tempdir().unwrap();
        let mut libvirt = Self { ours: Vec::new(), reapers: Vec::new(), tree };
        libvirt.start_missing().then_some(libvirt)
    }

    /// Starts what does not run, and waits until libvirt answers. False, said loudly, where it can't be started.
    fn start_missing(&mut self) -> bool {
        let missing: Vec<&str> =
            ["virtlogd", "libvirtd"].into_iter().filter(|program| running(program).is_none()).collect();
        if !missing.is_empty() {
            let mut reaper = self.reaper(&missing);
            let mut line = String::new();
            BufReader::new(reaper.stdout.take().unwrap()).read_line(&mut line).unwrap();
            self.reapers.push(reaper);
            if line != "started\n" {
                skipped(&format!("{missing:?} can't be started here"));
                return false;
            }
            for program in missing {
                wait_until("libvirt's daemon is there", || running(program).is_some());
                self.ours.extend(running(program));
            }
        }
        wait_until("libvirt answers", || virsh(&["list"]).is_some());
        true
    }

    /// Ends libvirtd, and starts it again after `meanwhile`. False, said loudly, if it is not this test's.
    pub fn restart(&mut self, meanwhile: impl FnOnce()) -> bool {
        let Some(pid) = running("libvirtd").filter(|pid| self.ours.contains(pid)) else {
            skipped("libvirtd is not this test's to restart");
            return false;
        };
        self.ours.retain(|known| *known != pid);
        kill_process(pid, Signal::TERM).unwrap();
        wait_until("libvirtd has ended", || running("libvirtd").is_none());
        meanwhile();
        self.start_missing()
    }

    fn reaper(&self, programs: &[&str]) -> Child {
        let tree = self.tree.path();
        fs::write(tree.join("qemu.conf"), "namespaces = []\n").unwrap();
        fs::write(tree.join("no-kvm"), "").unwrap();
        fs::set_permissions(tree.join("no-kvm"), Permissions::from_mode(0o000)).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c"]);
        let hides = Path::new("/dev/kvm").exists() && Path::new("/etc/libvirt/qemu.conf").exists();
        command
            .arg(if hides { HIDE_KVM } else { "exec \"$@\"" })
            .args(["sh", "python3", "-c", REAPER])
            .args(programs);
        command.current_dir(tree).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn().unwrap()
    }
}

impl Drop for LibvirtDaemons {
    fn drop(&mut self) {
        for pid in &self.ours {
            let _ = kill_process(*pid, Signal::TERM);
        }
        // The next test would take a daemon that is ending for one that runs, and wait for its answer to no end.
        let started = Instant::now();
        for reaper in &mut self.reapers {
            while matches!(reaper.try_wait(), Ok(None)) && started.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = reaper.kill();
            let _ = reaper.wait();
        }
    }
}

/// The PID of a daemon of libvirt's, if it runs.
fn running(program: &str) -> Option<Pid> {
    let pid: u32 = fs::read_to_string(format!("/run/{program}.pid")).ok()?.trim().parse().ok()?;
    let comm = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    (comm.trim() == program && !has_ended(pid)).then(|| Pid::from_raw(pid.cast_signed()).unwrap())
}

/// Returns true if a process that is no child of ours has ended. It may not have been collected.
fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Runs virsh; `None` if it fails.
pub fn virsh(arguments: &[&str]) -> Option<String> {
    let output = Command::new("virsh").args(["-q", "-c", "qemu:///system"]).args(arguments).output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A running domain that libvirt forgets when it is dropped.
pub struct RunningDomain {
    name: String,
    pub pid: u32,
    is_defined: bool,
}

impl RunningDomain {
    /// A transient one: what a failed test leaves behind is gone with the process.
    pub fn start(directory: &Path, name: &str, content: &Path) -> Self {
        let xml = Self::describe(directory, name, content);
        virsh(&["create", &xml, "--paused"]).expect("the domain starts");
        Self { name: name.to_owned(), pid: Self::pid_of(name), is_defined: false }
    }

    /// Starts a defined domain, which libvirt keeps while it does not run.
    pub fn define(directory: &Path, name: &str, content: &Path) -> Self {
        Self::define_with(directory, name, content, "")
    }

    /// Starts a defined domain with `more` at the end of its definition.
    pub fn define_with(directory: &Path, name: &str, content: &Path, more: &str) -> Self {
        let xml = Self::describe(directory, name, content);
        let text = fs::read_to_string(&xml).unwrap().replace("</domain>", &format!("{more}</domain>"));
        fs::write(&xml, text).unwrap();
        virsh(&["define", &xml]).expect("the domain is defined");
        let mut domain = Self { name: name.to_owned(), pid: 0, is_defined: true };
        virsh(&["start", name, "--paused"]).expect("the domain starts");
        domain.pid = Self::pid_of(name);
        domain
    }

    /// Ends it and starts it anew, by its definition.
    pub fn start_again(&mut self) {
        virsh(&["destroy", &self.name]).expect("the domain ends");
        virsh(&["start", &self.name, "--paused"]).expect("the domain starts");
        self.pid = Self::pid_of(&self.name);
    }

    fn describe(directory: &Path, name: &str, content: &Path) -> String {
        fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
        let loader = format!("loader,file={},addr={AT},force-raw=on", content.display());
        let xml = format!(
            "<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><name>{name}</name>
             <memory unit='MiB'>64</memory><vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os>
             <metadata><k:owner xmlns:k='http://ksmith.example/test'>blue</k:owner></metadata>
             <devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>
             <memballoon model='none'/></devices><qemu:commandline><qemu:arg value='-device'/>
             <qemu:arg value='{loader}'/></qemu:commandline></domain>"
        );
        let path = directory.join(format!("{name}.xml"));
        fs::write(&path, xml).unwrap();
        path.display().to_string()
    }

    fn pid_of(name: &str) -> u32 {
        let pid_file = format!("/run/libvirt/qemu/{name}.pid");
        fs::read_to_string(pid_file).unwrap().trim().parse().unwrap()
    }

    pub fn uuid(&self) -> String {
        virsh(&["domuuid", &self.name]).unwrap().trim().to_owned()
    }
}

impl Drop for RunningDomain {
    fn drop(&mut self) {
        let _ = virsh(&["destroy", &self.name]);
        if self.is_defined {
            let _ = virsh(&["undefine", &self.name]);
        }
    }
}

/// A user-mode Linux with one program, which waits. Ended on drop.
pub struct UmlProcess {
    child: Child,
    pub home: PathBuf,
}

/// Waits for ever, without a C library: each guest is as small as can be.
const INIT: &str =
    "void _start(void) { for (;;) __asm__ volatile(\"syscall\" : : \"a\"(34) : \"rcx\", \"r11\", \"memory\"); }";

/// A library without which user-mode Linux 6.1 dies on processors with AMX. It says why.
const REGISTERS: &str = include_str!("registers.c");

/// The compiled parts of user-mode Linux. `None`, said loudly, if they can't be made.
pub struct UmlKit {
    directory: PathBuf,
}

impl UmlKit {
    pub fn make(directory: &Path) -> Option<Self> {
        if !has("linux.uml") || !has("cc") {
            return None;
        }
        let compile = |name: &str, text: &str, options: &[&str]| {
            let source = directory.join(format!("{name}.c"));
            fs::write(&source, text).unwrap();
            let mut command = Command::new("cc");
            command.args(options).arg("-o").arg(directory.join(name)).arg(&source);
            assert!(command.status().unwrap().success(), "{name} compiles");
        };
        compile("init", INIT, &["-static", "-nostdlib", "-O1"]);
        compile("registers.so", REGISTERS, &["-shared", "-fPIC", "-O1"]);
        Some(Self { directory: directory.to_owned() })
    }

    /// The library that must be loaded before user-mode Linux.
    pub fn registers(&self) -> PathBuf {
        self.directory.join("registers.so")
    }

    pub fn start(&self, name: &str) -> UmlProcess {
        let home = self.directory.join("home");
        fs::create_dir_all(&home).unwrap();
        let child = Command::new("linux.uml")
            .args(["mem=64M", &format!("umid={name}"), "rootfstype=hostfs", "rootflags=/", "ro"])
            .arg(format!("init={}", self.directory.join("init").display()))
            .args(["con=null", "con0=null,fd:1", "ssl=null"])
            .process_group(0)
            .env("HOME", &home)
            .env("TMPDIR", "/dev/shm")
            .env("LD_PRELOAD", self.registers())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("user-mode Linux starts");
        UmlProcess { child, home }
    }
}

impl UmlProcess {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for UmlProcess {
    fn drop(&mut self) {
        // Its helpers and its guest's programs are processes of their own, which outlive it; all are in its group.
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}
