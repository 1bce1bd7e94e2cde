//! Processes and guests that begin and end all the time, and ask the daemon for things meanwhile.

use std::collections::VecDeque;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ksmith_lab::{MemoryGuest, MemoryPart};
use rustix::process::Signal;

use crate::parent_death::end_with_parent;
use crate::preload_library::{CompiledProgram, FilledProgram, compile, compile_linked, library};
use crate::support::image::{ImageGuest, UmlImage};
use crate::support::program::PROGRAM;
use crate::support::vm::{QemuProcess, content};
use crate::support::{guest, skipped};

/// The user that opts in through the library.
const USER: u32 = 65534;

const USERS_SOCKET: &str = "/run/ksmith/user";

/// MiB of each kind of memory in a program with the library.
const MIB: &str = "2";

/// All running processes of the soak, the oldest first.
pub struct SoakCrowd {
    tools: SoakTools,
    guests: VecDeque<MemoryGuest>,
    programs: VecDeque<FilledProgram>,
    machines: VecDeque<QemuProcess>,
    linuxes: VecDeque<ImageGuest>,
    /// Programs that ask the daemon, and end by themselves.
    asking: Vec<Child>,
    /// Steps that were taken so far.
    step: u64,
    pub started: u64,
}

/// The directory, programs and image from which the soak starts its processes.
struct SoakTools {
    directory: tempfile::TempDir,
    equal: CompiledProgram,
    scans: CompiledProgram,
    image: UmlImage,
}

impl SoakTools {
    fn make() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let equal = compile("tests/c/equal.c", &["-O2"])?;
        let scans = compile_linked("../examples/c/scan.c")?;
        let image = UmlImage::make(directory.path(), 16)?;
        if !crate::support::vm::has("qemu-system-x86_64") {
            return None;
        }
        fs::copy(library(), directory.path().join("libksmith.so")).unwrap();
        for path in [equal.path(), scans.path()].iter().filter_map(|path| path.parent()).chain([directory.path()]) {
            fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
        }
        content(directory.path(), 1);
        Some(Self { directory, equal, scans, image })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl SoakCrowd {
    /// `None`, said loudly, where something is missing.
    pub fn make() -> Option<Self> {
        let Some(tools) = SoakTools::make() else {
            skipped("the soak needs a C compiler, QEMU, user-mode Linux, busybox and mke2fs");
            return None;
        };
        Some(Self {
            tools,
            guests: VecDeque::new(),
            programs: VecDeque::new(),
            machines: VecDeque::new(),
            linuxes: VecDeque::new(),
            asking: Vec::new(),
            step: 0,
            started: 0,
        })
    }

    pub fn processes(&self) -> usize {
        self.guests.len() + self.programs.len() + self.machines.len() + self.linuxes.len() + self.asking.len()
    }

    /// Now and then the daemon is to read its configuration again.
    pub fn is_time_to_reload(&self) -> bool {
        self.step % 24 == 16
    }

    /// Takes one second's actions. Every kind begins and ends within each 24 of them, so that all quarters of a soak
    /// are alike.
    pub fn step(&mut self) {
        let step = self.step;
        self.step += 1;
        self.asking.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        if step.is_multiple_of(2) {
            self.memory_guest(step / 2);
        }
        match step % 8 {
            1 => self.program(),
            3 => self.machine(step / 8),
            5 => self.user_scan(),
            7 => ["status", "guests", "balance"].iter().for_each(|command| self.spawn_client(&[command, "--json"])),
            _ => {}
        }
        match step % 24 {
            12 => self.linux(step / 24),
            20 => self.spawn_client(&["scan", "--passes", "1", "--json"]),
            _ => {}
        }
    }

    /// A process that marks its memory, of which a part changes all the time. The oldest must hold what was written to it.
    fn memory_guest(&mut self, number: u64) {
        if self.guests.len() == 6 {
            self.guests.pop_front().into_iter().for_each(check);
        }
        let parts = [
            MemoryPart::Equal { seed: number % 3, pages: 1024 },
            MemoryPart::Same { seed: 7, pages: 256 },
            MemoryPart::Zero { pages: 256 },
            MemoryPart::Unique { pages: 256 },
            MemoryPart::Churn { pages: 64, every: Duration::from_secs(1) },
        ];
        let mut guest = guest(&parts);
        if number.is_multiple_of(4) {
            guest.rewrite(0).unwrap();
        }
        self.guests.push_back(guest);
        self.started += 1;
    }

    /// A program that knows nothing of KSM, and is opted in by the library.
    fn program(&mut self) {
        if self.programs.len() == 3 {
            self.programs.pop_front().into_iter().for_each(FilledProgram::check);
        }
        self.programs.push_back(program(&self.tools));
        self.started += 1;
    }

    /// A QEMU of the domain that may merge, or of another.
    fn machine(&mut self, number: u64) {
        if self.machines.len() == 3 {
            self.machines.pop_front();
        }
        let name = format!("{}-{number}", if number.is_multiple_of(2) { "own" } else { "foreign" });
        let content = self.tools.path("content-1");
        let start = |command: &mut Command| end_with_parent(command, Signal::KILL);
        self.machines.push_back(QemuProcess::start_with(
            self.tools.directory.path(),
            &name,
            Some(&content),
            &[],
            start,
        ));
        self.started += 1;
    }

    /// A user-mode Linux, of which balance takes what it does not use.
    fn linux(&mut self, number: u64) {
        if self.linuxes.len() == 2 {
            self.linuxes.pop_front();
        }
        self.linuxes.push_back(self.tools.image.start(&format!("soak-{number}"), 64, None));
        self.started += 1;
    }

    /// A user's program that asks for a scan of its memory.
    fn user_scan(&mut self) {
        let mut command = self.tools.scans.command();
        as_user(&mut command, &self.tools.directory);
        self.spawn(command);
    }

    fn spawn_client(&mut self, arguments: &[&str]) {
        let mut command = Command::new(PROGRAM);
        command.args(arguments);
        self.spawn(command);
    }

    fn spawn(&mut self, mut command: Command) {
        // A scan for users may wait: not ever more of them.
        if self.asking.len() >= 8 {
            return;
        }
        end_with_parent(&mut command, Signal::KILL);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.asking.push(quiet.spawn().unwrap());
        self.started += 1;
    }

    /// Ends all. What was merged must be as it was written.
    pub fn end(mut self) {
        self.guests.drain(..).for_each(check);
        self.programs.drain(..).for_each(FilledProgram::check);
    }
}

impl Drop for SoakCrowd {
    fn drop(&mut self) {
        for child in &mut self.asking {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn check(mut guest: MemoryGuest) {
    assert_eq!(guest.wrong_pages().unwrap(), 0, "pages of a guest are not as it wrote them");
}

/// Runs a command as an ordinary user, with the library of the soak.
fn as_user(command: &mut Command, directory: &tempfile::TempDir) {
    command.uid(USER).gid(USER).current_dir("/").env("KSMITH_SOCKET", USERS_SOCKET);
    command.env("LD_LIBRARY_PATH", directory.path());
    end_with_parent(command, Signal::KILL);
}

/// A program with the library that has filled its memory.
fn program(tools: &SoakTools) -> FilledProgram {
    let library: &Path = &tools.path("libksmith.so");
    let mut command = tools.equal.preloaded(library, &[("KSMITH_METHOD", "madvise"), ("KSMITH_THRESHOLD", "256K")]);
    as_user(&mut command, &tools.directory);
    FilledProgram::start(command.arg(MIB))
}
