//! Guided ranges from end to end: `ksmith run` loads libksmith into programs that know nothing, the library asks the daemon,
//! marks what that names and nothing else, and the scan comes after.

use crate::preload_library;
use crate::support;
use std::fs;

use crate::support::program::{RunningProgram, config_file};
use crate::support::{KernelLock, number, wait_until};
use serde_json::Value;

const MIB: u64 = 64;

/// Pages of the stretch that is equal in both programs.
const EQUAL: u64 = MIB * 256 / 8;

/// The granularity of marking in bytes: pages around the equal ones may be marked up to this.
const PIECE: u64 = 256 << 10;

/// A program's report of itself: its PID, its memory and the equal stretch of it.
struct ProgramReport {
    pid: u32,
    memory: (u64, u64),
    equal: (u64, u64),
}

impl ProgramReport {
    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let pid = words.next().unwrap().parse().unwrap();
        let mut address = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        Self { pid, memory: (address(), address()), equal: (address(), address()) }
    }

    /// Marked parts of its memory, neighbours joined.
    fn marked(&self) -> Vec<(u64, u64)> {
        let smaps = fs::read_to_string(format!("/proc/{}/smaps", self.pid)).unwrap();
        let (mut found, mut mapping): (Vec<(u64, u64)>, _) = (Vec::new(), (0, 0));
        for line in smaps.lines() {
            let first = line.split_whitespace().next().unwrap_or_default();
            if let Some((start, end)) = first.split_once('-') {
                let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
                mapping = (number(start).max(self.memory.0), number(end).min(self.memory.1));
            } else if first == "VmFlags:"
                && line.split_whitespace().any(|flag| flag == "mg")
                && mapping.0 < mapping.1
            {
                match found.last_mut() {
                    Some(last) if last.1 == mapping.0 => last.1 = mapping.1,
                    _ => found.push(mapping),
                }
            }
        }
        found
    }
}

#[test]
fn the_library_marks_what_the_daemon_names_and_the_scan_comes_after() {
    let Some(program) = preload_library::compile("tests/c/guided.c", &["-O2"]) else { return };
    let library = preload_library::library();
    let Some(_lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let place = |name: &str| directory.path().join(name).display().to_string();
    let (hold, report) = (place("hold"), place("report.json"));
    fs::write(&hold, "").unwrap();
    // ksmd works only when the job asks for it, which it does once.
    let config = format!(
        "[policy]\nkind = \"fixed\"\n[policy.fixed.settings]\nrun = 0\n[optin]\nsocket = \"{}\"\n",
        place("user")
    );
    let daemon = RunningProgram::daemon(&config, &[]);
    let (_file, config) = config_file(&config);
    let one = format!("{} {MIB} {hold}", program.path().display());
    let script = format!("{one} & first=$!; {one}; second=$?; wait $first && exit $second");
    let arguments = [
        "-v",
        "run",
        "--config",
        &config,
        "--preload",
        "--ranges",
        "guided",
        "--report",
        &report,
        "--",
        "sh",
        "-c",
    ];
    let mut job = RunningProgram::start_with(&[&arguments[..], &[&script]].concat(), |command| {
        // The library's first question comes after a second, which may be before the memory is filled.
        command.env("KSMITH_PRELOAD", library).env("KSMITH_INTERVAL", "2");
    });
    wait_until("both programs have filled their memory", || job.out().lines().count() == 2);
    wait_until("the scan has merged what is equal", || number("pages_sharing") + support::A_HANDFUL >= EQUAL);
    // A scan that a job outruns is not counted.
    job.wait_for("scanned: ");
    for said in job.out().lines().map(ProgramReport::parse) {
        let marked = said.marked();
        let [(start, end)] = marked[..] else { panic!("one stretch is equal, marked are {marked:x?}") };
        let (from, to) = said.equal;
        assert!(start <= from && end >= to, "{start:x}-{end:x} lacks some of {from:x}-{to:x}");
        assert!(from - start < PIECE && end - to < PIECE, "{start:x}-{end:x} has more than {from:x}-{to:x}");
    }
    fs::remove_file(&hold).unwrap();
    assert_eq!(job.wait().code(), Some(0), "a page is not as it was: {}", job.log());
    daemon.end();
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    // A scan before the ranges were marked would have merged nothing, and there is no other.
    assert_eq!((json["method"].as_str(), json["scans"].as_u64()), (Some("preload"), Some(1)), "{json}");
}
