//! `ksmith run` and the daemon's socket for users, on the live kernel.

use crate::preload_library;
use crate::support;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::program::{PROGRAM, RunningProgram, await_sample, ksmith};
use crate::support::{A_HANDFUL, KernelLock, guest, hold_off_others, ksm, number, skipped, wait_until};
use ksmith_host::ksmd;
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;
use rustix::process::Signal;
use serde_json::Value;

/// Returns true if this kernel keeps the opt-in over exec, and reports it.
fn has_prctl() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let version = ksmith_core::field::KernelVersion::parse(&release);
    let has = version.is_some_and(|version| version >= ksmith_core::field::KernelVersion::new(6, 14));
    if !has {
        skipped("this kernel does not tell ksm_merge_any (6.14 does)");
    }
    has
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        skipped(&format!("{program} is not installed"));
    }
    found
}

/// Shell words that wait until `file` is gone.
fn while_there(file: &Path) -> String {
    format!("while test -e {}; do sleep 0.05; done", file.display())
}

#[test]
fn exit_codes_pass_through() {
    let _others_wait = hold_off_others();
    let run = |arguments: &[&str]| ksmith(&[&["run", "--scan", "never", "-q", "--"], arguments].concat());
    assert_eq!(run(&["sh", "-c", "exit 42"]).0, 42);
    assert_eq!(run(&["true"]).0, 0);
    assert_eq!(run(&["sh", "-c", "kill -KILL $$"]).0, 128 + 9);
    assert_eq!(run(&["sh", "-c", "echo told; echo heard >&2"]).1, "told\n");
    let (code, _, why) = run(&["/nonexistent/program"]);
    assert!(code == 127 && why.contains("there is no program"), "{code} {why}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "\x7fELF").unwrap();
    assert_eq!(run(&[file.to_str().unwrap()]).0, 126);
}

#[test]
fn signals_reach_the_program_and_what_is_ignored_stays_so() {
    let _others_wait = hold_off_others();
    let directory = tempfile::tempdir().unwrap();
    let ready = directory.path().join("ready");
    let script = format!(
        "trap 'exit 5' TERM; trap 'exit 6' USR1; trap 'exit 7' ABRT; touch {}; while :; do sleep 0.05; done",
        ready.display()
    );
    // A program that ends by a signal is reported as a shell does it: 128 and the signal's number.
    for (signal, code) in
        [(Signal::TERM, 5), (Signal::USR1, 6), (Signal::ABORT, 7), (Signal::QUIT, 131), (Signal::ALARM, 142)]
    {
        let mut running = RunningProgram::start(&["run", "--scan", "never", "--", "sh", "-c", &script]);
        wait_until("the program is ready", || ready.exists());
        running.signal(signal);
        assert_eq!(running.wait().code(), Some(code), "{}", running.log());
        fs::remove_file(&ready).unwrap();
    }
    // Where ends of children are ignored the kernel tells of none; the exit code is told all the same.
    let ignoring = format!("trap '' CHLD; exec {PROGRAM} run --scan never -q -- sh -c 'exit 7'");
    assert_eq!(Command::new("bash").args(["-c", &ignoring]).status().unwrap().code(), Some(7));
    let mask = |command: &mut Command| {
        let status = String::from_utf8(command.output().unwrap().stdout).unwrap();
        status.lines().find(|line| line.starts_with("SigBlk:")).map(str::to_owned)
    };
    let plain = mask(Command::new("cat").arg("/proc/self/status"));
    let run = mask(Command::new(PROGRAM).args(["run", "--scan", "never", "-q", "--", "cat", "/proc/self/status"]));
    assert_eq!(run, plain, "no signal is held back in the program");
    // As under nohup: the program must not be the only one that heeds it.
    let gone = directory.path().join("gone");
    fs::write(&gone, "").unwrap();
    let script = format!("touch {}; {}; exit 7", ready.display(), while_there(&gone));
    let ksmith = format!("trap '' HUP; exec {PROGRAM} run --scan never -- sh -c '{script}'");
    let mut shell = Command::new("sh").args(["-c", &ksmith]).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the program is ready", || ready.exists());
    rustix::process::kill_process(rustix::process::Pid::from_child(&shell), Signal::HUP).unwrap();
    fs::remove_file(&gone).unwrap();
    assert_eq!(shell.wait().unwrap().code(), Some(7));
}

/// A terminal that is gone tells its session's first process only: here `ksmith`, as under `ssh -t`.
#[test]
fn a_terminal_that_is_gone_is_told_to_the_program() {
    if !has("python3") {
        return;
    }
    let _others_wait = hold_off_others();
    let script = "import os, pty, signal, sys, time\n\
                  signal.signal(signal.SIGHUP, signal.SIG_DFL)\n\
                  pid, terminal = pty.fork()\n\
                  if pid == 0: os.execv(sys.argv[1], sys.argv[1:])\n\
                  deadline = time.time() + 60\n\
                  while b'ready' not in os.read(terminal, 4096): pass\n\
                  os.close(terminal)\n\
                  while time.time() < deadline:\n    \
                      ended, status = os.waitpid(pid, os.WNOHANG)\n    \
                      if ended: sys.exit(os.waitstatus_to_exitcode(status))\n    \
                      time.sleep(0.05)\n\
                  os.kill(pid, 15)\n\
                  sys.exit(99)\n";
    let program = "trap 'exit 9' HUP; echo ready; while :; do sleep 0.05; done";
    let run = [PROGRAM, "run", "--scan", "never", "-q", "--", "sh", "-c", program];
    let status = Command::new("python3").args(["-c", script]).args(run).status().unwrap();
    assert_eq!(status.code(), Some(9));
}

#[test]
fn the_opt_in_holds_over_fork_and_exec_also_for_an_ordinary_user() {
    if !has_prctl() {
        return;
    }
    let _others_wait = hold_off_others();
    // A grandchild by fork and exec, of an ordinary user where this test may become one.
    let script = "sh -c 'sh -c \"cat /proc/self/ksm_stat\"'";
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--scan", "never", "-q", "--", "sh", "-c", script]);
    let directory = tempfile::tempdir().unwrap();
    if rustix::process::geteuid().is_root() {
        let program = public(directory.path(), Path::new(PROGRAM), "ksmith");
        command = Command::new(program);
        command
            .args(["run", "--scan", "never", "-q", "--", "sh", "-c", script])
            .uid(UNPRIVILEGED)
            .gid(UNPRIVILEGED);
    }
    let output = command.current_dir("/").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("ksm_merge_any: yes"), "{said} {}", String::from_utf8_lossy(&output.stderr));
    let plain = Command::new("cat").arg("/proc/self/ksm_stat").output().unwrap();
    assert!(String::from_utf8_lossy(&plain.stdout).contains("ksm_merge_any: no"), "the test itself has opted in");
}

#[test]
fn a_static_program_can_not_be_preloaded_and_is_told_what_can() {
    if !has("cc") {
        return;
    }
    let _others_wait = hold_off_others();
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("static.c"), directory.path().join("static"));
    fs::write(&source, "int main(void) { return 3; }").unwrap();
    let built = Command::new("cc").arg("-static").arg("-o").arg(&program).arg(&source).status().unwrap();
    if !built.success() {
        skipped("no static C library");
        return;
    }
    let path = program.to_str().unwrap();
    let (code, _, why) = ksmith(&["run", "--preload", "--", path]);
    assert!(code == 3 && why.contains("statically linked") && why.contains("--prctl"), "{code} {why}");
    if has_prctl() {
        assert_eq!(ksmith(&["run", "--scan", "never", "-q", "--", path]).0, 3, "its own exit code");
    }
}

/// Returns the path of Go: in PATH, or in the directory of its own archive.
fn go() -> Option<&'static str> {
    let works = |go: &&str| Command::new(go).arg("version").output().is_ok_and(|output| output.status.success());
    let found = ["go", "/usr/local/go/bin/go"].into_iter().find(works);
    if found.is_none() {
        skipped("there is no Go");
    }
    found
}

#[test]
fn a_program_of_go_can_not_be_preloaded_and_opts_in_by_prctl() {
    let Some(go) = go() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("main.go"), directory.path().join("program"));
    let text = "package main\n\nimport \"os\"\n\nfunc main() {\n\ttext, _ := os.ReadFile(\"/proc/self/ksm_stat\")\n\t\
                os.Stdout.Write(text)\n\tos.Exit(7)\n}\n";
    fs::write(&source, text).unwrap();
    let mut build = Command::new(go);
    build.args(["build", "-o"]).arg(&program).arg(&source).current_dir(directory.path());
    build.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
    build
        .env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go-cache"))
        .env("GOPATH", directory.path().join("path"));
    let built = build.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let path = program.to_str().unwrap();
    let _others_wait = hold_off_others();
    let (code, _, why) = ksmith(&["run", "--preload", "--", path]);
    assert!(code == 3 && why.contains("Go") && why.contains("--prctl"), "{code} {why}");
    if has_prctl() {
        let (code, said, why) = ksmith(&["run", "--scan", "never", "-q", "--", path]);
        assert!(code == 7 && said.contains("ksm_merge_any: yes"), "{code} {said} {why}");
    }
}

#[test]
fn the_report_adds_up_and_the_figures_are_those_of_known_content() {
    let Some(lock) = KernelLock::acquire() else { return };
    if !has_prctl() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (report, hold) = (directory.path().join("report.json"), directory.path().join("hold"));
    fs::write(&hold, "").unwrap();
    // Two processes with the same 32 MiB of pages that differ among themselves.
    let one = format!("{PROGRAM} memory-guest equal:7:8192");
    let fifo =
        format!("{} | {one} >/dev/null & {} | {one} >/dev/null; wait", while_there(&hold), while_there(&hold));
    let mut running = RunningProgram::start(&[
        "run",
        "-vv",
        "--scan",
        "0.5",
        "--report",
        report.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &format!("{fifo}; exit 9"),
    ]);
    wait_until("the guests are merged", || number("pages_sharing") >= 8192);
    // A scan that the job's end cuts short does not count.
    running.wait_for("scanned: ");
    await_sample(|| running.log());
    fs::remove_file(&hold).unwrap();
    assert_eq!(running.wait().code(), Some(9), "{}", running.log());
    assert_eq!(lock.changed_settings(), Vec::<String>::new(), "what the scans changed is put back");
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    assert_eq!((json["method"].as_str(), json["exit_code"].as_u64()), (Some("prctl"), Some(9)));
    let figure = |json: &Value, key: &str| json[key].as_u64().unwrap_or_else(|| panic!("{key} in {json}"));
    let processes = json["processes"].as_array().unwrap();
    let sum: u64 = processes.iter().map(|process| figure(process, "mean_saved_bytes")).sum();
    let mean = figure(&json, "mean_saved_bytes");
    assert!(sum.abs_diff(mean) <= processes.len() as u64, "{sum} {mean}");
    let (peak, page) = (figure(&json, "peak_saved_bytes"), rustix::param::page_size() as u64);
    assert!((8192 * page..12_000 * page).contains(&peak), "{peak}");
    assert!(mean > 0 && mean <= peak);
    // Both guests hold 32 MiB, and merged only half of it each.
    assert!(figure(&json, "peak_pss_bytes") >= 8192 * page);
    assert!(figure(&json, "mean_pss_bytes") <= figure(&json, "peak_pss_bytes"));
    assert!(json["scans"].as_u64().unwrap() >= 1 && json["cow_breaks"].is_u64());
}

#[test]
fn a_job_has_no_memory_of_others_scanned_where_ksm_is_off() {
    let Some(lock) = KernelLock::acquire() else { return };
    if !has_prctl() {
        return;
    }
    let part = [MemoryPart::Equal { seed: 71, pages: 4096 }];
    let _others = [guest(&part), guest(&part)];
    let passes = number("full_scans");
    for (ranges, refusal) in [("none", "the job has offered no memory"), ("all", "--scan-others allows it")] {
        let line = ["run", "--ranges", ranges, "--scan", "0.1", "--", "sleep", "600"];
        let library = preload_library::library();
        let mut running = RunningProgram::start_with(&line, |command| {
            command.env("KSMITH_PRELOAD", library);
        });
        running.wait_for(refusal);
        running.signal(Signal::TERM);
        running.wait();
        assert_eq!((number("full_scans"), number("pages_sharing")), (passes, 0), "{}", running.log());
        assert_eq!(lock.changed_settings(), Vec::<String>::new());
    }
}

/// A copy that any user may run.
fn public(directory: &Path, file: &Path, name: &str) -> std::path::PathBuf {
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
    let copy = directory.join(name);
    support::copy_program(file, &copy);
    fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
    copy
}

/// Returns the resident pages of a process; 0 if it has ended.
fn resident_pages(pid: u32) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    statm.split(' ').nth(1).map_or(0, |pages| pages.parse().unwrap())
}

/// A user and group without rights on most systems.
const UNPRIVILEGED: u32 = 65534;

/// Sends a line to the socket as an ordinary user, from a process of its own, and returns the reply.
fn say_unprivileged(socket: &Path, line: &str) -> String {
    let script = format!(
        "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect('{}')\ns.sendall(b'{line}\\n')\n\
         sys.stdout.write(s.makefile().readline())",
        socket.display()
    );
    let output =
        Command::new("python3").args(["-c", &script]).uid(UNPRIVILEGED).gid(UNPRIVILEGED).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.is_empty() { String::from_utf8_lossy(&output.stderr).into_owned() } else { text }
}

#[test]
fn an_ordinary_user_scans_within_its_budget_and_is_refused_beyond_it() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !has_prctl() || !has("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = directory.path().join("user");
    let config = format!(
        "[policy]\nkind = \"fixed\"\n[policy.fixed.settings]\nrun = 0\n[optin]\nsocket = \"{}\"\ngroup = \"{UNPRIVILEGED}\"\n\
         cpu_seconds_per_hour = 0.05\n",
        socket.display()
    );
    let daemon = RunningProgram::daemon(&config, &[]);
    assert_eq!(say_unprivileged(&socket, "hello 1"), "ok ksmith 1\n");
    assert!(say_unprivileged(&socket, "scan").starts_with("error usage "));
    assert!(say_unprivileged(&socket, "saves").starts_with("ok rss_bytes="));
    // There is nothing to scan yet, which costs nothing.
    let nothing = say_unprivileged(&socket, "scan 1");
    assert!(nothing.starts_with("error refused "), "{nothing}");

    let program = public(directory.path(), Path::new(PROGRAM), "ksmith");
    let hold = directory.path().join("hold");
    fs::write(&hold, "").unwrap();
    let guest = format!("{} | {} memory-guest equal:5:8192 unique:1024", while_there(&hold), program.display());
    let job = |with: &str| {
        let mut command = Command::new(&program);
        command.args([
            "run",
            "--scan",
            "never",
            "-q",
            "--",
            "sh",
            "-c",
            &format!("{guest} >{with} & {guest} >/dev/null; wait"),
        ]);
        command.uid(UNPRIVILEGED).gid(UNPRIVILEGED).current_dir("/").stdin(Stdio::null()).spawn().unwrap()
    };
    let mut child = job("/dev/null");
    let is_full = |pid: &u32| resident_pages(*pid) > 9216;
    wait_until("the job's memory is filled and offered", || {
        support::offering().into_iter().filter(is_full).count() >= 2
    });
    let done = say_unprivileged(&socket, "scan 2");
    // 72 MiB cost more than 50 ms of ksmd: either it ended on the way, or was the last.
    assert!(done.starts_with("ok passes=2 ") || done.starts_with("error budget "), "{done}");
    wait_until("the budget is gone", || say_unprivileged(&socket, "scan 2").starts_with("error budget "));
    let refusal = say_unprivileged(&socket, "scan 1");
    assert!(refusal.contains("user 65534") && refusal.contains("ask again in"), "{refusal}");
    assert!(say_unprivileged(&socket, "ranges").starts_with("error budget "), "advice costs as well");
    assert!(say_unprivileged(&socket, "hello 1").starts_with("ok"), "what is cheap goes on");
    assert_eq!(ksm("run"), "0", "the scan has put everything back");
    // Root is not held to it, and its scan merges the job.
    let (code, _, why) = ksmith(&["scan"]);
    assert_eq!(code, 0, "{why}");
    assert!(number("pages_sharing") + A_HANDFUL >= 8192);
    fs::remove_file(&hold).unwrap();
    child.wait().unwrap();
    daemon.end();
}

#[test]
fn a_user_outside_the_group_can_not_connect_nor_name_another_process() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !has("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    let socket = directory.path().join("user");
    let config = format!("[optin]\nsocket = \"{}\"\ngroup = \"12345\"\n", socket.display());
    let daemon = RunningProgram::daemon(&config, &[]);
    let refused = say_unprivileged(&socket, "hello 1");
    assert!(refused.contains("PermissionError"), "{refused}");
    // The protocol has no word for another process: whatever is named is no request.
    let mut stream = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    for line in ["saves 1\n", "ranges 1\n", "scan 1 1\n"] {
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("error usage "), "{answer}");
    }
    daemon.end();
}

#[test]
fn a_python_service_with_forked_workers_saves_memory_and_keeps_its_content() {
    let Some(_lock) = KernelLock::acquire() else { return };
    if !has_prctl() || !has("python3") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (report, hold) = (directory.path().join("report.json"), directory.path().join("hold"));
    fs::write(&hold, "").unwrap();
    // Each worker builds the same table by itself, as workers that load the same model after the fork do.
    let script = r"
import array, hashlib, os, sys, time
pids = []
for worker in range(3):
    pid = os.fork()
    if pid == 0:
        table = array.array('Q', range(2 << 20))
        before = hashlib.sha256(table.tobytes()).hexdigest()
        while os.path.exists(sys.argv[1]):
            table[worker * 512] += 1
            table[worker * 512] -= 1
            time.sleep(0.05)
        os._exit(0 if hashlib.sha256(table.tobytes()).hexdigest() == before and sum(table) == (1 << 21) * ((1 << 21) - 1) // 2 else 1)
    pids.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids))
";
    let file = directory.path().join("service.py");
    fs::write(&file, script).unwrap();
    let [report_path, file, hold_path] = [&report, &file, &hold].map(|path| path.to_str().unwrap());
    let mut job = RunningProgram::start(&[
        "run",
        "-vv",
        "--scan",
        "1",
        "--report",
        report_path,
        "--",
        "python3",
        file,
        hold_path,
    ]);
    // Three tables of 16 MiB, of which one is kept.
    wait_until("the tables are merged", || number("pages_sharing") >= 30 << 8);
    await_sample(|| job.log());
    fs::remove_file(&hold).unwrap();
    assert_eq!(job.wait().code(), Some(0), "{}", job.log());
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let peak = json["peak_saved_bytes"].as_u64().unwrap();
    assert!(peak >= 30 << 20, "{json}");
    assert!(json["verdict"].as_str().unwrap().starts_with("worth it"), "{json}");
    assert!(json["processes"].as_array().unwrap().len() >= 4);
}

/// Returns the CPUs that ksmd may use. `None`, told as a skip, if ksmd can't be seen or there is one CPU only.
fn ksmd_cpus() -> Option<impl Fn() -> String> {
    let Some(pid) = ksmd::pid(&Root::host()) else {
        skipped("ksmd can't be seen");
        return None;
    };
    let allowed = move || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim().to_owned()
    };
    if allowed() == "0" {
        skipped("there is only one CPU");
        return None;
    }
    Some(allowed)
}

#[test]
fn ksmd_scans_on_cpus_that_the_job_leaves_free() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(allowed) = ksmd_cpus() else { return };
    let before = allowed();
    let parts = [MemoryPart::Equal { seed: 73, pages: 16_384 }];
    let guests = [guest(&parts), guest(&parts)];
    let run = |cpus: &[usize]| {
        let mut set = rustix::thread::CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        for guest in &guests {
            let pid = rustix::process::Pid::from_raw(guest.pid().cast_signed());
            rustix::thread::sched_setaffinity(pid, &set).unwrap();
        }
        let config =
            "[policy]\nkind = \"fixed\"\n[policy.fixed.settings]\nrun = 1\n[daemon]\nksmd_cpus = \"auto\"\n";
        RunningProgram::daemon(config, &[])
    };
    let daemon = run(&[1]);
    wait_until("ksmd leaves the guests' CPU", || !allowed().split(&[',', '-'][..]).any(|cpu| cpu == "1"));
    assert!(daemon.end().contains(&format!("(before: {before})")));
    assert_eq!(allowed(), before);
    let daemon = run(&(0..rustix::thread::CpuSet::MAX_CPU).collect::<Vec<_>>());
    wait_until("the guests are merged", || number("pages_sharing") >= 16_000);
    assert_eq!(allowed(), before, "no CPU is free");
    assert!(!daemon.end().contains("ksmd runs on CPUs"));
}

#[test]
fn ksmd_stays_on_its_cpus_and_is_let_go_also_after_a_kill() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let Some(allowed) = ksmd_cpus() else { return };
    let before = allowed();
    let config = "[daemon]\nksmd_cpus = \"0\"\n";
    let daemon = RunningProgram::daemon(config, &[]);
    assert_eq!(allowed(), "0");
    daemon.end();
    assert_eq!(allowed(), before);
    RunningProgram::daemon(config, &[]).kill();
    assert_eq!(allowed(), "0");
    let (code, said, why) = ksmith(&["restore"]);
    assert!(code == 0 && said.contains(&format!("ksmd is back on CPUs {before}")), "{said} {why}");
    assert_eq!(allowed(), before);
}

#[test]
fn zero_pages_of_an_unchanged_program_are_folded_and_counted_apart() {
    if !has("python3") {
        return;
    }
    let _others_wait = hold_off_others();
    let directory = tempfile::tempdir().unwrap();
    let report = directory.path().join("report.json");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../preload/tests/unmodified.py");
    let mut command = Command::new(PROGRAM);
    command.args([
        "run",
        "--fold=every=1s",
        "--ranges",
        "none",
        "--scan",
        "never",
        "--report",
        report.to_str().unwrap(),
    ]);
    command.args(["--", "python3", script]).env("KSMITH_PRELOAD", preload_library::library());
    let mut job = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(job.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    std::thread::sleep(std::time::Duration::from_secs(6));
    job.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let ended = job.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{told}");
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    if told.contains("nothing is folded unasked") {
        assert_eq!(json["folded_bytes"], 0, "{json}");
        return skipped("this user may not fold unasked, and was told so");
    }
    assert!(json["folded_bytes"].as_u64().unwrap() >= 30 << 20, "{json}");
    assert!(json["peak_saved_bytes"] == 0 && told.contains("of zero pages in"), "{told} {json}");
}
