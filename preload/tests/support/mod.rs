//! Support for tests: the built library, programs in C, and the lock on the machine's KSM.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

/// The directory of the library, also for the program's tests, which include this file.
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../preload");

/// Reports that a test ends without a result. Writes directly to standard error, since the test harness captures
/// `eprintln!` in a passing test. `make test` counts these lines.
#[allow(clippy::disallowed_methods, reason = "a test's own words")]
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED, nothing was tested: {why}");
}

/// Builds the release libraries with the cargo that runs this test, which itself builds no cdylib for tests.
fn libraries() -> &'static Path {
    static LIBRARIES: OnceLock<PathBuf> = OnceLock::new();
    LIBRARIES.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        // target/debug/deps/test
        let target = own.ancestors().nth(3).unwrap();
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--profile", "preload"])
            .args(["--package", "ksmith-preload", "--package", "ksmith-preload-blocks", "--target-dir"])
            .arg(target)
            .current_dir(HERE)
            .status()
            .unwrap();
        assert!(built.success(), "libksmith.so can't be built");
        target.join("preload")
    })
}

/// Returns the path of libksmith.so.
pub fn library() -> PathBuf {
    libraries().join("libksmith.so")
}

/// Returns the path of `libksmith_blocks.so`, which also interposes blocks.
pub fn library_with_blocks() -> PathBuf {
    libraries().join("libksmith_blocks.so")
}

/// Returns true if a program is installed.
pub fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// A compiled program with its temporary directory.
pub struct CompiledProgram {
    directory: tempfile::TempDir,
}

/// Compiles a program of `tests/c`. Reports and returns `None` if there is no C compiler, or it does not support the
/// options.
pub fn compile(source: &str, options: &[&str]) -> Option<CompiledProgram> {
    let Some(compiler) = ["cc", "gcc", "clang"].into_iter().find(|name| has(name)) else {
        skipped("there is no C compiler");
        return None;
    };
    let directory = tempfile::tempdir().unwrap();
    let here = Path::new(HERE);
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(here.join("include"))
        .arg(here.join(source))
        .arg("-o")
        .arg(directory.path().join("program"))
        .args(options)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("cannot find") && said.contains("san") {
        skipped(&format!("the compiler has no sanitizer: {said}"));
        return None;
    }
    assert!(output.status.success(), "{source}: {said}");
    Some(CompiledProgram { directory })
}

/// Compiles a program and links it with the library.
pub fn compile_linked(source: &str) -> Option<CompiledProgram> {
    let directory = libraries().to_str().unwrap();
    compile(source, &["-L", directory, "-lksmith", &format!("-Wl,-rpath,{directory}")])
}

impl CompiledProgram {
    /// Returns the path of the program.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    /// Returns a command that runs the program, without inherited settings of ksmith.
    pub fn command(&self) -> Command {
        plain(&self.path())
    }

    /// Returns a command that runs the program with a library preloaded.
    pub fn preloaded(&self, library: &Path, settings: &[(&str, &str)]) -> Command {
        let mut command = self.command();
        command.env("LD_PRELOAD", library).envs(settings.iter().copied());
        command
    }
}

/// Returns a command that runs a program, without inherited settings of ksmith.
pub fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    for name in
        ["LD_PRELOAD", "RANGES", "METHOD", "THRESHOLD", "HUGE", "INTERVAL", "HUGE_HINT", "VERBOSE", "SOCKET"]
    {
        let name = if name == "LD_PRELOAD" { name.to_owned() } else { format!("KSMITH_{name}") };
        command.env_remove(name);
    }
    // Cargo's would lead to a library of another profile.
    command.env_remove("LD_LIBRARY_PATH");
    // No daemon: a test says which to ask.
    command.env("KSMITH_SOCKET", "/nowhere/ksmith").stdin(Stdio::null());
    command
}

/// Runs a command to its end. Returns its output if it succeeded.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_ended_well(command, &output);
    String::from_utf8(output.stdout).unwrap()
}

pub fn assert_ended_well(command: &Command, output: &Output) {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {:?}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// Takes a shared lock against tests that measure KSM while memory is marked here. `None` if the lock is not
/// accessible: then no test can measure KSM either.
pub fn lock() -> Option<File> {
    let file = File::options().create(true).append(true).open("/run/lock/ksmith-kernel.lock").ok()?;
    file.lock_shared().ok()?;
    Some(file)
}

/// Returns true if this kernel has KSM.
pub fn has_ksm() -> bool {
    Path::new("/sys/kernel/mm/ksm/run").exists()
}

/// Returns true if the kernel reports for each process whether it is merged as a whole (6.14, so it also has the prctl
/// of 6.4).
pub fn has_prctl() -> bool {
    std::fs::read_to_string("/proc/self/ksm_stat").is_ok_and(|stat| stat.contains("ksm_merge_any"))
}

/// A program that has filled its memory and waits. Killed on drop.
pub struct FilledProgram {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl FilledProgram {
    /// Starts the program and waits until it is ready.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut filled = Self { child, said };
        assert_eq!(filled.line(), "ready\n");
        filled
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        line
    }

    /// Returns its PID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has the program check its memory, change and check it again, and end.
    pub fn check(mut self) {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        assert_eq!(self.line(), "checked\n");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for FilledProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
