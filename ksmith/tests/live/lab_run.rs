//! `ksmith lab` on the live kernel: a tiny scenario from end to end, and what an end in the middle leaves.

use std::fs;
use std::path::Path;

use crate::support::program::{RunningProgram, ksmith};
use crate::support::{KernelLock, UNDO, guest, number, offering, skipped, wait_until, zero_pages};
use ksmith_core::knobs::Knob;
use ksmith_host::root::Root;
use ksmith_lab::{GuestPages, MemoryPart};
use rustix::process::Signal;
use serde_json::Value;

/// Two guests of 15 MiB: 10 MiB of each equal, 2 MiB empty. The work begins when they have merged: pages that change while
/// ksmd has them in its unstable tree put that out of order, and equal pages miss each other (`examples/kernel/unstable_tree.c`).
const TINY: &str = r#"
about = "Two small guests"
long = { seconds = SECONDS }
short = { seconds = SECONDS }

[guests.small]
parts = [
  { kind = "equal", size = "10 MiB", seed = 1 },
  { kind = "zero", size = "2 MiB" },
  { kind = "unique", size = "3 MiB" },
]
[guests.worker]
parts = [{ kind = "work", size = "1 MiB", percent = 2 }]

[[timeline]]
at = 0.1
start = "small"
times = 2

[[timeline]]
at = 2.0
start = "worker"
"#;

fn tiny(directory: &Path, seconds: u32) -> String {
    let path = directory.join("tiny.toml");
    fs::write(&path, TINY.replace("SECONDS", &seconds.to_string())).unwrap();
    path.display().to_string()
}

/// Processes of the lab: guests and daemons, whichever lab started them. They are told by the names of files that are
/// this test's own.
fn left_over(marks: &[&str]) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| marks.iter().any(|mark| line.contains(mark))).collect()
}

/// Command lines that only the lab starts while this test holds the kernel lock.
const STARTED: [&str; 2] = ["qemu-system-x86_64 -enable-kvm memory-guest", "--state-dir"];

/// The program that plays the guests.
const KSMITH: &str = env!("CARGO_BIN_EXE_ksmith");

fn nothing_is_left(lock: &KernelLock) {
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
    wait_until("guests and daemons are gone", || left_over(&STARTED).is_empty());
    // QEMU of other tests, which run at the same time, offers its firmware.
    let is_ours = |pid: &u32| fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == Path::new(KSMITH));
    assert_eq!(offering().into_iter().filter(is_ours).collect::<Vec<_>>(), Vec::<u32>::new());
    assert_eq!((number("pages_shared"), zero_pages()), (0, 0), "nothing stays merged");
    assert!(!fs::exists(UNDO).unwrap(), "the journal is done with");
}

/// Checks that guests hold less than without KSM by what is saved. Their parts of the program's file depend on how many processes
/// it has.
fn holds_less_by(saved: f64, held: f64, held_without_ksm: f64) {
    let less = held_without_ksm - held;
    assert!((less - saved).abs() <= saved / 20.0 + f64::from(3 << 20), "{less} bytes less, {saved} saved");
}

#[test]
fn a_tiny_scenario_is_played_measured_and_undone() {
    let Some(lock) = KernelLock::acquire() else { return };
    let tree = tempfile::tempdir().unwrap();
    let out = tree.path().join("out");
    let arguments = [
        "lab",
        "run",
        &tiny(tree.path(), 5),
        "--policies",
        "profit,reference,none",
        "--out",
        out.to_str().unwrap(),
    ];
    let history_of_host = || {
        fs::metadata("/var/lib/ksmith/history/history.db").ok().map(|file| (file.len(), file.modified().unwrap()))
    };
    let before = history_of_host();
    let (code, text, err) = ksmith(&arguments);
    assert_eq!(code, 0, "{err}");
    assert_eq!(history_of_host(), before, "what is played is no past of this host");
    for word in ["tiny on 4 KiB pages: Two small guests", "ksmd CPU", "profit", "reference", "none"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    nothing_is_left(&lock);

    let results: Value = serde_json::from_str(&fs::read_to_string(out.join("results.json")).unwrap()).unwrap();
    assert_eq!((&results["form"], &results["repeat"]), (&"short".into(), &1.into()));
    let scenario = &results["scenarios"][0];
    let attainable = 10 * 1_048_576 + 2 * 2 * 1_048_576;
    assert_eq!((&scenario["name"], &scenario["attainable_bytes"]), (&"tiny".into(), &attainable.into()));
    let competitor = |place: usize| &scenario["competitors"][place];
    let median = |place: usize, key: &str| competitor(place)["summary"][key]["median"].as_f64();
    let number =
        |place: usize, key: &str| median(place, key).unwrap_or_else(|| panic!("{key} of {place}: {results}"));

    assert_eq!([0, 1, 2].map(|place| &competitor(place)["name"]), ["profit", "reference", "none"]);
    assert!(number(1, "saved_bytes") >= 0.99 * f64::from(attainable), "{scenario}");
    assert!(number(0, "saved_bytes") >= 0.99 * f64::from(attainable), "{scenario}");
    assert!(number(1, "seconds_to_90") <= number(1, "seconds_to_99"));
    assert!(number(0, "gib_seconds") > 0.0 && number(0, "ksmd_cpu_seconds") > 0.0);
    assert!(number(0, "controller_cpu_seconds") > 0.0 && number(0, "controller_rss_bytes") > 1e6);
    holds_less_by(number(1, "saved_bytes"), number(1, "held_bytes"), number(2, "held_bytes"));
    // The reference does not stop; profit does.
    assert!(number(1, "passes") > number(0, "passes"), "{scenario}");
    assert!(number(1, "ksmd_cpu_seconds") > number(0, "ksmd_cpu_seconds"), "{scenario}");
    // Without KSM nothing is saved, and nothing controls it.
    assert_eq!(number(2, "saved_bytes"), 0.0);
    assert!(number(2, "ksmd_cpu_seconds") < 0.01, "to be woken once is all: {scenario}");
    assert_eq!((number(2, "controller_cpu_seconds"), median(2, "seconds_to_50")), (0.0, None));
    for place in 0..3 {
        assert_eq!(number(place, "wrong_pages"), 0.0);
        assert!(number(place, "work_pages") > 0.0);
        let points = competitor(place)["runs"][0]["series"]["points"].as_array().unwrap();
        assert!(points.len() > 5 && points.last().unwrap()["at"].as_f64().unwrap() >= 5.0);
    }
    assert_eq!((&competitor(1)["share_of_reference"], &competitor(2)["work_ratio"]), (&1.0.into(), &1.0.into()));
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("<svg"));
    let log = fs::read_to_string(out.join("logs/tiny-profit-1.log")).unwrap();
    assert!(log.contains("policy profit is in charge") && log.contains("all settings restored"), "{log}");
}

#[test]
fn an_interrupted_lab_leaves_no_guest_no_daemon_and_no_setting() {
    let Some(lock) = KernelLock::acquire() else { return };
    let tree = tempfile::tempdir().unwrap();
    let scenario = tiny(tree.path(), 600);
    for signal in [Signal::INT, Signal::TERM] {
        let mut lab = RunningProgram::start(&["lab", "run", &scenario, "--policies", "fixed:morfik"]);
        wait_until("a guest is merged", || number("run") == 1 && number("pages_sharing") > 0);
        lab.signal(signal);
        let ended = lab.wait();
        assert_eq!(ended.code(), Some(1), "{ended:?}: {}", lab.log());
        assert!(lab.log().contains("interrupted; guests are ended"), "{}", lab.log());
        nothing_is_left(&lock);
    }
}

#[test]
fn a_killed_lab_takes_guests_and_daemon_along_and_restore_does_the_rest() {
    let Some(lock) = KernelLock::acquire() else { return };
    let tree = tempfile::tempdir().unwrap();
    let lab = RunningProgram::start(&["lab", "run", &tiny(tree.path(), 600), "--policies", "fixed:morfik"]);
    wait_until("a guest is merged", || number("run") == 1 && number("pages_sharing") > 0);
    lab.kill();
    wait_until("guests and daemons are gone", || left_over(&STARTED).is_empty());
    let (code, text, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{text}{err}");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

/// khugepaged's pace.
fn pace() -> [u64; 2] {
    [Knob::KhugepagedPagesToScan, Knob::KhugepagedScanSleepMillisecs]
        .map(|knob| fs::read_to_string(knob.path()).unwrap().trim().parse().unwrap())
}

#[test]
fn guests_on_huge_pages_are_judged_by_their_page_tables_and_a_hurried_khugepaged_is_restored() {
    let Some(lock) = KernelLock::acquire() else { return };
    if !GuestPages::Huge.are_given(&Root::host()) {
        return skipped("this host gives no huge pages");
    }
    let tree = tempfile::tempdir().unwrap();
    // Of each guest 8 MiB are equal and 8 MiB are empty. They are merged in a second, where the host has one to spare.
    let hurried = "[[timeline]]\nat = 3\nkhugepaged = { pages_to_scan = 9000, scan_sleep_millisecs = 700 }\n";
    let text = TINY.replace("10 MiB", "8 MiB").replace("2 MiB", "8 MiB").replace("3 MiB", "4 MiB") + hurried;
    let path = tree.path().join("tiny.toml");
    let scenario = path.to_str().unwrap();
    fs::write(&path, text.replace("SECONDS", "15")).unwrap();
    let before = pace();
    let arguments = ["lab", "run", scenario, "--pages", "huge", "--policies", "reference,none", "--json"];
    let (code, text, err) = ksmith(&arguments);
    assert_eq!(code, 0, "{err}");
    assert_eq!(pace(), before);
    nothing_is_left(&lock);
    let results: Value = serde_json::from_str(&text).unwrap();
    let scenario_results = &results["scenarios"][0];
    assert_eq!(scenario_results["pages"], "huge");
    let attainable = scenario_results["attainable_bytes"].as_f64().unwrap();
    assert_eq!(attainable, f64::from((3 * 8) << 20));
    let [reference, none] = [0, 1].map(|place| &scenario_results["competitors"][place]);
    let median = |results: &Value, key: &str| results["summary"][key]["median"].as_f64().unwrap();
    let saved = median(reference, "saved_bytes");
    assert!(saved >= 0.98 * attainable, "{reference}");
    let truth = reference["runs"][0]["series"]["truth"].as_array().unwrap();
    assert!(truth.len() > 5, "{truth:?}");
    let last = truth.last().unwrap()["truly_saved_bytes"].as_f64().unwrap();
    assert_eq!(last.min(attainable), saved);
    holds_less_by(saved, median(reference, "held_bytes"), median(none, "held_bytes"));
    // Without KSM nothing is saved, and the huge pages are whole.
    let none = none["runs"][0]["series"]["truth"].as_array().unwrap().last().unwrap();
    assert!(none["truly_saved_bytes"].as_u64().unwrap() < 1 << 20, "{none}");
    assert!(none["huge_bytes"].as_u64().unwrap() >= 16 << 20, "{none}");

    // A lab that is killed leaves the pace to `ksmith restore`.
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("seconds = 15 ", "seconds = 600 ")).unwrap();
    let lab = RunningProgram::start(&["lab", "run", scenario, "--policies", "none"]);
    wait_until("khugepaged is hurried", || pace() == [9000, 700]);
    lab.kill();
    wait_until("guests are gone", || left_over(&STARTED).is_empty());
    let (code, text, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{text}{err}");
    assert!(text.contains("restored khugepaged_pages_to_scan 9000 -> "), "{text}");
    assert_eq!(pace(), before);
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn a_ksmtuned_that_is_really_there_competes() {
    let Some(lock) = KernelLock::acquire() else { return };
    let tree = tempfile::tempdir().unwrap();
    let script = tree.path().join("ksmtuned");
    // What the script does, as far as the lab can see: its loop in the background, its PID in a file, `run` written.
    let text = "echo 500 > /sys/kernel/mm/ksm/pages_to_scan; echo 1 > /sys/kernel/mm/ksm/run\n\
                pgrep -fc '^qemu-system.*-enable-kvm' > /dev/null\n\
                loop() { while :; do pgrep -fc '^qemu-system.*-enable-kvm' > SEEN; sleep 0.2; done; }\n\
                loop &\necho $! > $PIDFILE\n";
    let seen = tree.path().join("seen");
    fs::write(&script, text.replace("SEEN", seen.to_str().unwrap())).unwrap();
    let mut lab = RunningProgram::start_with(
        &["lab", "run", &tiny(tree.path(), 3), "--policies", "script:ksmtuned", "--json"],
        |command| {
            command.env("KSMTUNED", &script);
        },
    );
    wait_until("the script sees both guests", || fs::read_to_string(&seen).is_ok_and(|text| text.trim() == "2"));
    assert!(lab.wait().success(), "{}", lab.log());
    let results: Value = serde_json::from_str(&lab.out()).unwrap();
    let summary = &results["scenarios"][0]["competitors"][0]["summary"];
    assert!(summary["saved_bytes"]["median"].as_f64().unwrap() > 0.0, "{summary}");
    assert!(summary["controller_cpu_seconds"]["median"].as_f64().unwrap() > 0.0, "{summary}");
    assert!(left_over(&[script.to_str().unwrap()]).is_empty());
    nothing_is_left(&lock);
}

#[test]
fn a_host_with_ksm_in_use_is_left_alone() {
    let Some(lock) = KernelLock::acquire() else { return };
    let _guest = guest(&[MemoryPart::Unique { pages: 16_384 }]);
    let tree = tempfile::tempdir().unwrap();
    let (code, _, err) = ksmith(&["lab", "run", &tiny(tree.path(), 5), "--policies", "none"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("KSM is in use on this host (0 B saved,"), "{err}");
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn a_scenario_with_a_mistake_is_refused_with_its_place() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let tree = tempfile::tempdir().unwrap();
    let path = tree.path().join("wrong.toml");
    let text = TINY.replace("SECONDS", "5").replace("times = 2", "tiems = 2");
    let line = text.lines().position(|line| line.starts_with("tiems")).unwrap() + 1;
    fs::write(&path, text).unwrap();
    let (code, _, err) = ksmith(&["lab", "run", path.to_str().unwrap()]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains(&format!("line {line}, column 1")) && err.contains("unknown field `tiems`"), "{err}");
    let (code, _, err) = ksmith(&["lab", "run", "no-such-scenario"]);
    assert_eq!((code, err.contains("there is no scenario \"no-such-scenario\"")), (2, true), "{err}");
    let scenario = tiny(tree.path(), 5);
    let (code, _, err) = ksmith(&["lab", "run", &scenario, "--policies", "best"]);
    assert_eq!((code, err.contains("there is no competitor \"best\"")), (2, true), "{err}");
}
