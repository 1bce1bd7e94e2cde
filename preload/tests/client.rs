//! The functions of `ksmith.h`, called by a program in C, against a fake daemon.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use support::{CompiledProgram, compile_linked, has_ksm, lock, run, skipped};

/// A fake daemon. Each connection gets a welcome, and the next of the given replies to its request.
struct ScriptedDaemon {
    directory: tempfile::TempDir,
    thread: JoinHandle<Vec<String>>,
}

impl ScriptedDaemon {
    /// Starts the daemon. `None` as a reply closes the connection instead.
    fn start(answers: &[Option<&'static str>]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("user")).unwrap();
        let answers = answers.to_vec();
        let thread =
            std::thread::spawn(move || answers.into_iter().map(|answer| serve(&listener, answer)).collect());
        Self { directory, thread }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("user")
    }

    /// Returns the requests, once all replies have been sent.
    fn asked(self) -> Vec<String> {
        self.thread.join().unwrap()
    }
}

fn serve(listener: &UnixListener, answer: Option<&str>) -> String {
    let (stream, _) = listener.accept().unwrap();
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    assert_eq!(line, "hello 1\n");
    stream.get_mut().write_all(b"ok ksmith 1\n").unwrap();
    line.clear();
    stream.read_line(&mut line).unwrap();
    match answer {
        // In small pieces: lines come as they like.
        Some(answer) => answer.as_bytes().chunks(7).for_each(|piece| stream.get_mut().write_all(piece).unwrap()),
        None => return line,
    }
    // Until the other side has ended it, so that nothing is lost.
    let mut rest = String::new();
    let _ = stream.read_line(&mut rest);
    line
}

fn calls(program: &CompiledProgram, socket: &Path, words: &[&str]) -> Vec<String> {
    let mut command: Command = program.command();
    let said = run(command.args(words).env("KSMITH_SOCKET", socket));
    said.lines().map(str::to_owned).collect()
}

#[test]
fn a_scan_is_asked_for_and_its_refusals_are_told() {
    let Some(program) = compile_linked("tests/c/call.c") else { return };
    let daemon = ScriptedDaemon::start(&[
        Some("ok passes=2 merged_bytes=1 saved_bytes=2 ksmd_cpu_ns=3\n"),
        Some("error budget 3.0 s of 3.0 s used; try again in 40 s\n"),
        Some("error busy 4 requests are waiting\n"),
        Some("error refused ksmd is parked by the administrator\n"),
        Some("error denied you are not in the group ksmith\n"),
        Some("error usage unknown request\n"),
        Some("nonsense\nerror full moon\n"),
        None,
    ]);
    let socket = daemon.socket();
    let words = ["scan:2:-1"; 8];
    let said = calls(&program, &socket, &words);
    let expected = [
        "scan 0 done",
        "scan -122 3.0 s of 3.0 s used; try again in 40 s",
        "scan -16 4 requests are waiting",
        "scan -1 ksmd is parked by the administrator",
        "scan -13 you are not in the group ksmith",
        "scan -95 unknown request",
        "scan -71 full moon",
        "scan -104 the daemon ended the connection",
    ];
    assert_eq!(said, expected);
    assert_eq!(daemon.asked(), ["scan 2\n"; 8]);
}

#[test]
fn what_can_not_be_asked_is_told_as_well() {
    let Some(program) = compile_linked("tests/c/call.c") else { return };
    let empty = tempfile::tempdir().unwrap();
    let said = calls(&program, &empty.path().join("user"), &["scan:0:1", "scan:17:1", "scan:1:100", "guided"]);
    assert_eq!(
        said,
        [
            "scan -22 an argument makes no sense, or there is no whole page in the range",
            "scan -22 an argument makes no sense, or there is no whole page in the range",
            "scan -2 there is no ksmith daemon: nothing listens at its socket",
            "guided -2 there is no ksmith daemon: nothing listens at its socket ranges=77 bytes=77",
        ]
    );
    // One that listens, and never says a word.
    let silent = empty.path().join("silent");
    let _listener = UnixListener::bind(&silent).unwrap();
    assert_eq!(calls(&program, &silent, &["scan:1:50"]), ["scan -110 no answer in the given time"]);
}

#[test]
fn another_first_line_is_another_program() {
    let Some(program) = compile_linked("tests/c/call.c") else { return };
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("user");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"ok ksmith 2\n").unwrap();
        let _ = BufReader::new(stream).read_line(&mut String::new());
    });
    let said = calls(&program, &socket, &["scan:1:-1"]);
    assert_eq!(said, ["scan -71 the daemon's answer makes no sense: it may be another version of ksmith"]);
    thread.join().unwrap();
}

#[test]
fn what_is_saved_comes_from_the_daemon_or_from_the_kernel() {
    let Some(program) = compile_linked("tests/c/call.c") else { return };
    let daemon = ScriptedDaemon::start(&[
        Some("ok rss_bytes=10 merged_bytes=8 saved_bytes=7 profit_bytes=-6 zero_bytes=5\n"),
        Some("error denied not yours\n"),
        Some("ok rss_bytes=10\n"),
    ]);
    let said = calls(&program, &daemon.socket(), &["saves", "saves", "saves"]);
    assert_eq!(said[0], "saves 0 done source=1 rss=10 merged=8 saved=7 profit=-6 zero=5");
    let kernel = std::fs::read_to_string("/proc/self/ksm_stat").unwrap_or_default();
    if kernel.contains("ksm_merging_pages") {
        for line in &said[1..] {
            assert!(
                line.contains(" source=2 rss=") && line.ends_with("merged=0 saved=0 profit=0 zero=0"),
                "{line}"
            );
            assert!(line.starts_with("saves 0 "), "{line}");
        }
    } else {
        assert!(said[1].starts_with("saves -61 "), "{}", said[1]);
    }
    assert_eq!(daemon.asked(), ["saves\n"; 3]);
}

#[test]
fn the_example_in_c_runs_without_a_daemon() {
    if !has_ksm() {
        return skipped("this kernel has no KSM");
    }
    let Some(program) = compile_linked("../examples/c/scan.c") else { return };
    let _lock = lock();
    let output = program.command().output().unwrap();
    let said = |bytes| String::from_utf8(bytes).unwrap();
    assert_eq!(said(output.stderr), "ksmith_scan: there is no ksmith daemon: nothing listens at its socket\n");
    let lines = said(output.stdout);
    let whens: Vec<&str> =
        lines.lines().filter_map(|line| line.split_once(": 0 of ")).map(|(when, _)| when).collect();
    assert_eq!(whens, ["marked", "scanned", "half taken back"], "{lines}");
    assert!(output.status.success());
}

#[test]
fn marks_go_to_whole_pages_and_guided_ones_replace_others() {
    if !has_ksm() {
        return skipped("this kernel has no KSM");
    }
    let Some(program) = compile_linked("tests/c/call.c") else { return };
    let _lock = lock();
    let daemon = ScriptedDaemon::start(&[
        Some(concat!(
            "range 100200000 100400000 900\nrange 100600000 100700000 500\nrange 1005ff000 100600000 500\n",
            "ok ranges=3 bytes=9\n"
        )),
        Some("ok ranges=0 bytes=0\n"),
        Some("error busy looking at another process\n"),
    ]);
    let words = [
        "method",
        "marks",
        "mark:1:0x2fff",
        "mark:5:100",
        "marks",
        "unmark:0x1001:1",
        "marks",
        "guided",
        "marks",
        "guided",
        "marks",
        "guided",
        "marks",
    ];
    let said = calls(&program, &daemon.socket(), &words);
    let expected = [
        "method none",
        "marks",
        "mark:1:0x2fff 0 done",
        "mark:5:100 -22 an argument makes no sense, or there is no whole page in the range",
        "marks 1000-3000",
        "unmark:0x1001:1 0 done",
        "marks 2000-3000",
        "guided 0 done ranges=3 bytes=3153920",
        "marks 2000-3000 200000-400000 5ff000-700000",
        "guided 0 done ranges=1 bytes=4096",
        "marks 2000-3000",
        "guided -16 looking at another process ranges=77 bytes=77",
        "marks 2000-3000",
    ];
    assert_eq!(said, expected);
    assert_eq!(daemon.asked(), ["ranges\n"; 3]);
}
