use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ksmith_core::alarm::AlarmKind;
use ksmith_core::sim::GuestPlan;

use super::*;
use crate::testing::DaemonScene;

fn notice(begins: bool, text: &str) -> AlarmTransition {
    AlarmTransition { alarm: AlarmKind::find("exposure").unwrap(), begins, text: text.to_owned() }
}

/// A command that runs a script. The shell reads it: to execute a file that was just written fails while another test's
/// fork has it open.
fn script(directory: &Path, body: &str) -> NotifyConfig {
    let path = directory.join("notify");
    fs::write(&path, body).unwrap();
    let command = ["/bin/sh", path.to_str().unwrap(), "an argument"].map(str::to_owned).to_vec();
    NotifyConfig { command, journal: false, ..NotifyConfig::default() }
}

/// A directory of its own for another script.
fn tempdir_in(directory: &Path) -> PathBuf {
    let other = directory.join("other");
    fs::create_dir(&other).unwrap();
    other
}

/// Waits until the command has written this, and no more.
fn assert_tells(out: &Path, expected: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    let told = || fs::read_to_string(out).unwrap_or_default();
    while told().len() < expected.len() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(told(), expected);
}

#[test]
fn the_command_gets_each_notice_in_its_environment() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let body = format!("printf '%s\\n' \"$1|$KSMITH_ALARM|$KSMITH_STATE|$KSMITH_TEXT\" >> {}", out.display());
    let notifier = Notifier::start(script(directory.path(), &body)).unwrap();
    notifier.queue_notice(notice(true, "too much\nis merged"));
    notifier.queue_notice(notice(false, "well again"));
    assert_tells(&out, "an argument|exposure|begins|too much\\nis merged\nan argument|exposure|ends|well again\n");
}

#[test]
fn a_command_that_hangs_delays_neither_the_teller_nor_the_end_for_long() {
    let directory = tempfile::tempdir().unwrap();
    let notifier = Notifier::start(script(directory.path(), "exec sleep 1000")).unwrap();
    let began = Instant::now();
    (0..1000).for_each(|_| notifier.queue_notice(notice(true, "again")));
    drop(notifier);
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
}

#[test]
fn a_command_that_is_not_there_or_fails_is_no_fault_of_the_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let missing = NotifyConfig { command: vec!["/nonexistent/notify".to_owned()], ..NotifyConfig::default() };
    let mut notifier = Notifier::start(missing).unwrap();
    notifier.queue_notice(notice(true, "one"));
    notifier.configure(script(directory.path(), &format!("echo ok >> {}; exit 3", out.display())));
    notifier.queue_notice(notice(true, "two"));
    notifier.queue_notice(notice(true, "three"));
    assert_tells(&out, "ok\nok\n");
}

#[test]
fn a_configuration_is_taken_over_while_as_many_notices_wait_as_may() {
    let directory = tempfile::tempdir().unwrap();
    let (gate, out) = (directory.path().join("gate"), directory.path().join("out"));
    let body = format!("while [ ! -e {} ]; do sleep 0.01; done", gate.display());
    let mut notifier = Notifier::start(script(directory.path(), &body)).unwrap();
    (0..2 * WAITING).for_each(|_| notifier.queue_notice(notice(true, "wait")));
    notifier.configure(script(&tempdir_in(directory.path()), &format!("echo told >> {}", out.display())));
    fs::write(&gate, "").unwrap();
    // The queue is full until the thread has gone on.
    let end = Instant::now() + Duration::from_secs(60);
    // The shell creates the file before it writes to it.
    let is_told = || fs::read_to_string(&out).is_ok_and(|text| text.starts_with("told\n"));
    while !is_told() && Instant::now() < end {
        notifier.queue_notice(notice(true, "new"));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_told());
}

#[test]
fn an_entry_of_the_journal_has_its_message_id_and_one_line_for_each_field() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let journald = UnixDatagram::bind(&path).unwrap();
    let notice = notice(true, "a\nPRIORITY=0");
    journal::send(&path.display().to_string(), &notice).unwrap();
    let mut bytes = [0; 4096];
    let length = journald.recv(&mut bytes).unwrap();
    let text = std::str::from_utf8(&bytes[..length]).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let id = format!("MESSAGE_ID={}", AlarmKind::find("exposure").unwrap().message_id());
    assert_eq!(
        lines,
        [
            "MESSAGE=a\\nPRIORITY=0",
            id.as_str(),
            "PRIORITY=4",
            "SYSLOG_IDENTIFIER=ksmith",
            "KSMITH_ALARM=exposure",
            "KSMITH_STATE=begins"
        ]
    );
    assert!(journal::send("/nonexistent/socket", &notice).is_err());
}

#[test]
fn a_daemon_on_a_host_that_is_overexposed_tells_it_once_and_records_it() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let command =
        script(directory.path(), &format!("echo \"$KSMITH_ALARM $KSMITH_STATE\" >> {}", out.display())).command;
    let mut scene = DaemonScene::new(&format!("[notify]\njournal = false\ncommand = {command:?}"));
    scene.at(1, |world| world.headroom = Some(0));
    scene.at(5, |world| {
        for name in ["one", "two"] {
            world.machine.start(GuestPlan::new(name).equal(1, 4096));
        }
    });
    scene.at(400, |world| world.headroom = None);
    scene.at(600, |_| {});
    let outcome = scene.run().unwrap();
    assert_tells(&out, "exposure begins\nexposure ends\n");
    assert_eq!(outcome.count("alarm exposure begins"), 1, "{}", outcome.log);
}

#[test]
fn a_command_without_a_path_is_refused() {
    let read = crate::config::Config::parse(Path::new("ksmith.toml"), "[notify]\ncommand = [\"mail\"]");
    let error = read.unwrap_err().to_string();
    assert!(error.contains("[notify] command: \"mail\" is not an absolute path"), "{error}");
}
