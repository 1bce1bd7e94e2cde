//! A guest of the matrix: a kernel, and a tree in memory with the tested program. Its first process runs the checks.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::checks::GuestCheck;
use crate::preload_library::{library, library_with_blocks};
use crate::support::linux::APPEND;
use crate::support::vm::UmlKit;
use crate::support::vm::has;

/// Programs that show facts about the kernel: `examples/kernel/NAME.c`.
pub const REPRODUCERS: [&str; 8] = [
    "first_visit",
    "smart_scan",
    "unstable_tree",
    "zero_pages",
    "uncounted_zeros",
    "huge_pages",
    "split_search",
    "khugepaged",
];

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// The programs that make the tree and boot it.
const TOOLS: [&str; 7] = ["qemu-system-x86_64", "busybox", "cpio", "cc", "strip", "ldd", "setpriv"];

/// Memory of a guest's second node, in MiB.
const FAR_MIB: u32 = 128;

/// A guest that has not ended by then hangs. An emulated guest on a busy host takes minutes.
const LONGEST: Duration = Duration::from_secs(2 * 3600);

/// A kernel with its way of booting the tree.
pub enum TestedKernel {
    /// A kernel for QEMU, which emulates the machine.
    Qemu(PathBuf),
    /// The program `linux.uml`, a kernel without KSM.
    UserMode,
}

/// The output and exit code of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckOutput {
    pub code: i32,
    pub text: String,
}

/// The result of one boot.
#[derive(Debug)]
pub struct BootResult {
    /// The kernel's release.
    pub release: String,
    /// The results by the name of the check.
    pub said: BTreeMap<String, CheckOutput>,
    /// The output of the console.
    pub console: String,
}

/// The tree that all kernels boot.
pub struct BootTree {
    directory: tempfile::TempDir,
    uml: Option<UmlKit>,
}

impl BootTree {
    /// Packs the tested program, what it loads, and the checks with their programs. `None`, said loudly, where a tool is missing.
    pub fn make(checks: &[GuestCheck]) -> Option<Self> {
        if !TOOLS.into_iter().all(has) {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let uml = UmlKit::make(directory.path());
        let tree = Self { directory, uml };
        let root = tree.root();
        for place in ["bin", "repro", "usr/lib/ksmith", "checks", "etc", "dev", "proc", "sys"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        copy(Path::new(busybox.unwrap()), &root.join("bin/busybox"));
        tree.add_program(Path::new(env!("CARGO_BIN_EXE_ksmith")), "bin/ksmith");
        // The program under another name: a guest that a rule of the domains tells from the others.
        std::os::unix::fs::symlink("ksmith", root.join("bin/foreign")).unwrap();
        for library in [library(), library_with_blocks()] {
            let name = library.file_name().unwrap().to_str().unwrap().to_owned();
            tree.add_program(&library, &format!("usr/lib/ksmith/{name}"));
        }
        let equal = tree.compile(&Path::new(HERE).join("../preload/tests/c/equal.c"), &[], "bin/equal");
        tree.add_libraries(&equal);
        for name in REPRODUCERS {
            let source = Path::new(HERE).join(format!("../examples/kernel/{name}.c"));
            tree.compile(&source, &["-static"], &format!("repro/{name}"));
        }
        fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n").unwrap();
        fs::write(root.join("etc/group"), "root:x:0:\n").unwrap();
        fs::write(root.join("checks.sh"), include_str!("checks.sh")).unwrap();
        fs::write(root.join("init"), include_str!("init.sh")).unwrap();
        fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755)).unwrap();
        for (number, check) in checks.iter().enumerate() {
            fs::write(root.join(format!("checks/{number:02}-{}", check.name)), &check.script).unwrap();
        }
        let packed = Command::new("sh")
            .args(["-c", "find . | cpio -o -H newc --quiet > ../initrd"])
            .current_dir(&root)
            .status();
        assert!(packed.unwrap().success(), "the tree is packed");
        Some(tree)
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("tree")
    }

    fn compile(&self, source: &Path, options: &[&str], to: &str) -> PathBuf {
        let program = self.root().join(to);
        let status = Command::new("cc")
            .args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror"])
            .args(options)
            .arg(source)
            .arg("-o")
            .arg(&program)
            .status();
        assert!(status.unwrap().success(), "{} compiles", source.display());
        program
    }

    /// Copies a program without its symbols, and the libraries that it loads.
    fn add_program(&self, from: &Path, to: &str) {
        let to = self.root().join(to);
        let stripped = Command::new("strip").arg("-o").args([&to, &from.to_owned()]).status();
        assert!(stripped.unwrap().success(), "{} is stripped", from.display());
        self.add_libraries(from);
    }

    fn add_libraries(&self, program: &Path) {
        let output = Command::new("ldd").arg(program).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        for path in text.split_whitespace().filter(|word| word.starts_with('/')) {
            let to = self.root().join(&path[1..]);
            if !to.exists() {
                fs::create_dir_all(to.parent().unwrap()).unwrap();
                copy(Path::new(path), &to);
            }
        }
    }

    /// Boots a kernel, which runs the checks one after the other.
    pub fn boot(&self, kernel: &TestedKernel, mib: u32) -> BootResult {
        let own = tempfile::tempdir_in(self.directory.path()).unwrap();
        let console = own.path().join("console");
        let out = File::create(&console).unwrap();
        let mut command = self.command(kernel, mib, own.path());
        command.stdin(Stdio::null()).stderr(out.try_clone().unwrap()).stdout(out).process_group(0);
        let status = EmulatedMachine(command.spawn().expect("the emulator starts")).wait();
        let console = fs::read(&console).unwrap();
        let boot = BootResult::read(&String::from_utf8_lossy(&console).replace('\r', ""));
        assert!(status.is_some(), "the guest did not end:\n{}", boot.console);
        boot
    }

    fn command(&self, kernel: &TestedKernel, mib: u32, own: &Path) -> Command {
        let initrd = self.directory.path().join("initrd");
        // A guest ends with the test, whichever way that ends.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        match kernel {
            TestedKernel::Qemu(kernel) => {
                // A 6.12 kernel stops in the emulation of QEMU 7.2 with cx16, or with two CPUs.
                command
                    .args(["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max,-cx16"])
                    .args(["-nodefaults", "-display", "none", "-no-reboot", "-serial", "stdio"])
                    .args(["-machine", "pc,mem-merge=off", "-m", &mib.to_string()])
                    // Two nodes, on which the check of a domain for each runs.
                    .args(["-object", &format!("memory-backend-ram,id=near,merge=off,size={}M", mib - FAR_MIB)])
                    .args(["-object", &format!("memory-backend-ram,id=far,merge=off,size={FAR_MIB}M")])
                    .args(["-numa", "node,nodeid=0,cpus=0,memdev=near", "-numa", "node,nodeid=1,memdev=far"])
                    .arg("-kernel")
                    .arg(kernel)
                    .arg("-initrd")
                    .arg(initrd)
                    .args(["-append", &format!("{APPEND} loglevel=1")]);
            }
            TestedKernel::UserMode => {
                command
                    .args([
                        "linux.uml",
                        &format!("mem={mib}M"),
                        "umid=matrix",
                        "rdinit=/init",
                        "quiet",
                        "loglevel=1",
                    ])
                    .arg(format!("initrd={}", initrd.display()))
                    .args(["con=null", "con0=fd:0,fd:1", "ssl=null"])
                    .env("HOME", own)
                    .env("TMPDIR", "/dev/shm")
                    .envs(self.uml.iter().map(|uml| ("LD_PRELOAD", uml.registers())));
            }
        }
        command
    }
}

/// An emulator and all that it starts. Ended on drop.
struct EmulatedMachine(Child);

impl EmulatedMachine {
    /// Waits until it ends by itself. `None`: it does not.
    fn wait(mut self) -> Option<ExitStatus> {
        let started = Instant::now();
        while started.elapsed() < LONGEST {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }
}

impl Drop for EmulatedMachine {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl BootResult {
    /// Reads what the first process showed on the console.
    fn read(console: &str) -> Self {
        let mut boot = Self { release: String::new(), said: BTreeMap::new(), console: console.to_owned() };
        let mut open: Option<(String, String)> = None;
        for line in console.lines() {
            if let Some(release) = line.strip_prefix("@@kernel ") {
                boot.release = release.to_owned();
            } else if let Some(name) = line.strip_prefix("@@begin ") {
                open = Some((name.to_owned(), String::new()));
            } else if let Some(code) = line.strip_prefix("@@end ") {
                let Some((name, text)) = open.take() else { continue };
                boot.said.insert(name, CheckOutput { code: code.parse().unwrap(), text });
            } else if let Some((_, text)) = &mut open {
                text.push_str(line);
                text.push('\n');
            }
        }
        boot
    }

    /// The end of what came over the console.
    pub fn end(&self) -> String {
        let lines: Vec<&str> = self.console.lines().collect();
        format!("The console ends:\n{}", lines[lines.len().saturating_sub(40)..].join("\n"))
    }
}

/// Copies in a process of its own, see `support::copy_program`.
fn copy(from: &Path, to: &Path) {
    crate::support::copy_program(&fs::canonicalize(from).unwrap(), to);
}
