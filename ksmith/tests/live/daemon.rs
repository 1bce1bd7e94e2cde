//! The daemon on the live kernel: whatever ends it, the settings are restored; other controllers of KSM are dealt with;
//! it answers, reloads, and merges what comes without being asked.

use crate::support;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::ksmtuned::KsmtunedProcess;
use crate::support::program::{PROGRAM, RunningProgram, SOCKET, config_file, ksmith, status};
use crate::support::{
    A_HANDFUL, KernelLock, UNDO, copy_program, guest, ksm, number, wait_until, write, zero_pages,
};
use ksmith_lab::{MemoryGuest, MemoryPart};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// Pages of each guest: 128 MiB, so that a burst at a quarter of a CPU takes seconds.
const BIG: usize = 32_768;

const SLOW: &str = "[limits]\nmax_cpu = \"25%\"\n";

/// A setting held for as long as the daemon runs, whatever the guests do.
const HELD: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 321, run = 0 }\n";

fn none() -> Vec<String> {
    Vec::new()
}

fn assert_unharmed(guests: &mut [MemoryGuest]) {
    for guest in guests {
        assert_eq!(guest.wrong_pages().unwrap(), 0);
    }
}

/// Everything is as it was when `lock` was taken, and nothing is left to be done.
fn assert_restored(lock: &KernelLock) {
    assert_eq!(lock.changed_settings(), none());
    assert!(!Path::new(UNDO).exists(), "the journal is done with");
}

/// A daemon in the middle of a burst: ksmd runs, has visited so many thousand pages, and is far from done.
fn bursting(config: &str, thousands: u64) -> RunningProgram {
    let before = number("pages_scanned");
    let daemon = RunningProgram::start(&["daemon", "--config", config]);
    wait_until("ksmd is in the middle of it", || number("pages_scanned") > before + thousands * 1000);
    assert_eq!(number("run"), 1, "{}", daemon.log());
    assert_ne!(number("pages_to_scan"), 100);
    assert!(number("pages_sharing") < BIG as u64, "the burst has ended: {}", daemon.log());
    daemon
}

/// Makes ksmd forget all it knows, so that the next burst begins at the beginning.
fn unmerge() {
    write("run", "2");
    write("run", "0");
}

#[test]
fn however_it_is_ended_in_the_middle_of_a_burst_the_settings_are_restored() {
    let Some(lock) = KernelLock::acquire() else { return };
    let parts = [MemoryPart::Equal { seed: 11, pages: BIG }];
    let mut guests = [guest(&parts), guest(&parts)];
    let (_file, config) = config_file(SLOW);
    let mut merging = 0;
    // The first pass, of 65,536 pages, only notes checksums. The second one merges when it is half done.
    for (signal, thousands) in
        [(Signal::TERM, 1), (Signal::TERM, 50), (Signal::TERM, 105), (Signal::INT, 20), (Signal::INT, 103)]
    {
        let mut daemon = bursting(&config, thousands);
        merging += u32::from(number("pages_sharing") > 0);
        daemon.signal(signal);
        assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
        assert!(daemon.log().contains("all settings restored"), "{}", daemon.log());
        assert!(!Path::new(SOCKET).exists(), "the socket goes with the daemon");
        assert_restored(&lock);
        unmerge();
    }
    for (thousands, by_restore) in [(1, true), (40, true), (105, true), (30, false), (103, false)] {
        let daemon = bursting(&config, thousands);
        merging += u32::from(number("pages_sharing") > 0);
        daemon.kill();
        assert!(!lock.changed_settings().is_empty(), "nothing is restored yet");
        assert!(Path::new(SOCKET).exists(), "a killed daemon leaves its socket behind");
        if by_restore {
            let (code, out, err) = ksmith(&["restore"]);
            assert_eq!(code, 0, "{err}");
            assert!(out.contains("restored run 1 -> 0") && out.ends_with("all settings restored\n"), "{out}");
            assert_restored(&lock);
            assert_eq!(ksmith(&["restore"]).1, "nothing to restore: no ksmith left anything behind\n");
        } else {
            let next = RunningProgram::daemon(SLOW, &[]);
            for said in ["a ksmith that was killed had left its settings", "run 1 -> 0", "smart_scan 0 -> 1"] {
                assert!(next.log().contains(said), "{}", next.log());
            }
            assert_eq!(status().unwrap()["daemon"]["pid"], next.pid(), "the stale socket is replaced");
            next.end();
            assert_restored(&lock);
        }
        unmerge();
    }
    assert!(merging >= 2, "only {merging} of 10 were ended while pages merged");
    assert_unharmed(&mut guests);
}

#[test]
fn a_late_clone_is_merged_without_a_request() {
    let Some(lock) = KernelLock::acquire() else { return };
    let parts = [MemoryPart::Equal { seed: 12, pages: 4096 }, MemoryPart::Zero { pages: 512 }];
    let mut guests = vec![guest(&parts)];
    let daemon = RunningProgram::daemon("", &[]);
    wait_until("the first guest has been looked at", || daemon.log().contains("the last scan"));
    let before = number("pages_sharing");
    guests.push(guest(&parts));
    wait_until("the clone is merged", || number("pages_sharing") + A_HANDFUL >= before + 4096);
    wait_until("ksmd is parked", || number("run") == 0);

    // The accounting adds up to the byte, zero pages and all. The last few pages may be merged only now: then once more.
    let saved = || (number("pages_sharing") + zero_pages()) * 4096;
    let (mut status, mut in_kernel) = (Value::Null, 0);
    wait_until("nothing is merged meanwhile", || {
        in_kernel = saved();
        status = serde_json::from_str(&ksmith(&["status", "--json"]).1).unwrap();
        in_kernel == saved()
    });
    assert_eq!(status["daemon"]["pid"], daemon.pid());
    let processes = status["processes"].as_array().unwrap();
    let mine: Vec<u64> = guests.iter().map(|guest| u64::from(guest.pid())).collect();
    let of_mine = || processes.iter().filter(|process| mine.contains(&process["pid"].as_u64().unwrap()));
    assert_eq!(of_mine().count(), 2, "{status}");
    for process in of_mine() {
        assert!(process["merged_bytes"].as_u64().unwrap() >= (4096 - A_HANDFUL) * 4096, "{process}");
        // A merged page counts in full, one that became the zero page does not.
        assert!(process["rss_bytes"].as_u64().unwrap() >= 4096 * 4096, "{process}");
        assert!(process["profit_bytes"].is_i64() && process["name"].is_string(), "{process}");
    }
    let parts: u64 = processes.iter().map(|process| process["saved_bytes"].as_u64().unwrap()).sum();
    let unattributed = status["unattributed_bytes"].as_u64().unwrap();
    assert_eq!(parts + unattributed, status["saved_bytes"].as_u64().unwrap(), "{status}");
    assert_eq!(status["saved_bytes"], in_kernel, "as the kernel has it");

    daemon.end();
    assert_restored(&lock);
    assert!(number("pages_sharing") + A_HANDFUL >= before + 4096, "what is merged stays merged");
    assert_unharmed(&mut guests);
}

#[test]
fn status_has_every_kernel_file_and_every_promised_key() {
    let Some(_lock) = KernelLock::acquire() else { return };
    let status: Value = serde_json::from_str(&ksmith(&["status", "--json"]).1).unwrap();
    for entry in fs::read_dir(support::KSM).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let text = ksm(&name);
        match text.parse::<i64>() {
            Ok(value) => assert!(status[&name].is_number(), "{name} is {value} and shown as {}", status[&name]),
            Err(_) => assert!(status[&name].is_string(), "{name} is {text:?} and shown as {}", status[&name]),
        }
    }
    for knob in ["run", "pages_to_scan", "sleep_millisecs", "smart_scan", "use_zero_pages", "max_page_sharing"] {
        assert_eq!(status[knob], number(knob), "{knob}");
    }
    for key in ["saved_bytes", "overhead_bytes", "exposure_bytes", "headroom_bytes", "unattributed_bytes"] {
        assert!(status[key].is_u64(), "{key} is {}", status[key]);
    }
    assert!(status["profit_bytes"].is_i64() && status["ksmd_cpu_percent"].is_f64(), "{status}");
    assert!(status["processes"].is_array() && status["errors"] == Value::Array(Vec::new()), "{status}");
    assert_eq!(status["daemon"], Value::Null);
}

#[test]
fn the_socket_answers_only_root_and_survives_garbage() {
    let Some(lock) = KernelLock::acquire() else { return };
    // What a killed daemon leaves: a file at which no process listens.
    fs::create_dir_all("/run/ksmith").unwrap();
    let _ = fs::remove_file(SOCKET);
    drop(UnixListener::bind(SOCKET).unwrap());
    let parts = [MemoryPart::Equal { seed: 13, pages: 2048 }];
    let mut guests = [guest(&parts), guest(&parts)];
    let daemon = RunningProgram::daemon(HELD, &[]);
    assert_eq!(fs::metadata(SOCKET).unwrap().permissions().mode() & 0o777, 0o600);

    for garbage in [&b"\n"[..], b"{}\n", b"\x00\xff\xfe\n", b"{\"request\":\"scan\",\"passes\":-1}\n", b"[[[[[[\n"]
    {
        let mut stream = UnixStream::connect(SOCKET).unwrap();
        stream.write_all(garbage).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["answer"], "error", "{garbage:?}");
    }
    drop(UnixStream::connect(SOCKET).unwrap());
    let _ = UnixStream::connect(SOCKET).unwrap().write_all(&[b'x'; 1 << 20]);
    assert_eq!(status().unwrap()["daemon"]["pid"], daemon.pid());

    // A scan goes through the daemon, which goes on with its own policy.
    let (code, out, err) = ksmith(&["scan", "--json"]);
    assert_eq!(code, 0, "{err}");
    let scan: Value = serde_json::from_str(&out).unwrap();
    assert!(scan["saved_bytes"].as_u64().unwrap() >= (2048 - A_HANDFUL) * 4096, "{scan}");
    assert_eq!(scan["saved_bytes_before"], 0, "{scan}");
    daemon.wait_for("scanning on demand: 2 passes");
    wait_until("the policy is in charge again", || number("pages_to_scan") == 321 && number("run") == 0);
    assert!(ksmith(&["status"]).1.contains("policy    fixed"));

    let copy = tempfile::tempdir().unwrap();
    fs::set_permissions(copy.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = copy.path().join("ksmith");
    copy_program(Path::new(PROGRAM), &program);
    let mut unprivileged = Command::new("setpriv");
    unprivileged.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]).arg(&program);
    let output = unprivileged.args(["status", "--json"]).current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&seen["daemon"], &seen["pages_to_scan"]), (&Value::Null, &321.into()), "looks for itself");

    daemon.end();
    assert!(!Path::new(SOCKET).exists());
    assert_restored(&lock);
    assert_unharmed(&mut guests);
}

/// A process with a hypervisor's name that offers no memory to KSM.
struct EmptyVm(Child, #[expect(dead_code, reason = "the program is there as long as this is")] tempfile::TempDir);

impl EmptyVm {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("qemu-system-x86_64");
        copy_program(Path::new("/bin/sleep"), &program);
        Self(Command::new(program).arg("120").spawn().unwrap(), directory)
    }
}

impl Drop for EmptyVm {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_scan_without_mergeable_memory_is_refused() {
    let Some(lock) = KernelLock::acquire() else { return };
    let _vm = EmptyVm::start();
    let refused = || {
        let (code, _, err) = ksmith(&["scan"]);
        assert_eq!(code, 3, "{err}");
        assert!(err.contains("no process offers memory to KSM"), "{err}");
    };
    refused();
    let daemon = RunningProgram::daemon(HELD, &[]);
    refused();
    daemon.end();
    assert_restored(&lock);
}

#[test]
fn a_scan_keeps_the_operators_limits_and_ends_with_its_client() {
    let Some(lock) = KernelLock::acquire() else { return };
    let parts = [MemoryPart::Equal { seed: 15, pages: 4096 }];
    let _guests = [guest(&parts), guest(&parts)];
    let limits = "[limits]\nmax_pages_to_scan = 50\nmin_sleep_milliseconds = 30\n";
    // The policy leaves `run` alone: it is the scan's to put back.
    let config =
        format!("[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = {{ pages_to_scan = 40 }}\n{limits}");
    let daemon = RunningProgram::daemon(&config, &[]);
    wait_until("the policy is in charge", || number("pages_to_scan") == 40);
    let mut client = RunningProgram::start(&["scan", "--passes", "1000", "--max-cpu", "25%"]);
    wait_until("the scan is on", || number("run") == 1);
    assert!(number("pages_to_scan") <= 50 && number("sleep_millisecs") >= 30);
    daemon.wait_for("scanning on demand: 1000 passes with at most 25 % of a CPU");
    client.signal(Signal::INT);
    client.wait();
    daemon.wait_for("asked for the scan has gone");
    let settings = || ["run", "pages_to_scan", "smart_scan", "sleep_millisecs"].map(number);
    wait_until("ksmd is left as it was", || settings() == [0, 40, 1, 20]);

    let mut client = RunningProgram::start(&["scan", "--passes", "1000", "--take-over"]);
    wait_until("another scan is on", || number("run") == 1);
    assert!(client.log().contains("--take-over has no effect here"), "{}", client.log());
    let log = daemon.end();
    assert_eq!(client.wait().code(), Some(1));
    assert!(client.log().contains("the daemon was stopped before the scan was done"), "{}", client.log());
    assert!(!log.contains("another program"), "{log}");
    assert_restored(&lock);
}

#[test]
fn only_one_is_in_charge_and_it_is_named() {
    let Some(lock) = KernelLock::acquire() else { return };
    let daemon = RunningProgram::daemon(HELD, &[]);
    let holder = format!("another ksmith (pid {}) controls KSM", daemon.pid());
    for arguments in [&["daemon"][..], &["daemon", "--take-over"], &["set", "run=1"], &["demo"], &["unmerge"]] {
        let (code, _, err) = ksmith(arguments);
        assert_eq!(code, 3, "{arguments:?}: {err}");
        assert!(err.contains(&holder), "{arguments:?}: {err}");
    }
    let (code, _, err) = ksmith(&["restore"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains(&format!("ksmith (pid {}) is running", daemon.pid())), "{err}");
    assert_eq!(number("pages_to_scan"), 321, "nothing was disturbed");
    daemon.end();
    assert_restored(&lock);
}

#[test]
fn the_kernels_advisor_is_taken_over_and_given_back() {
    let Some(_lock) = KernelLock::acquire() else { return };
    write("advisor_mode", "scan-time");
    write("advisor_max_cpu", "33");
    write("advisor_min_pages_to_scan", "700");
    write("advisor_target_scan_time", "150");
    let parameters = || {
        ["advisor_mode", "advisor_max_cpu", "advisor_min_pages_to_scan", "advisor_target_scan_time"]
            .map(ksm)
            .join(" ")
    };
    let before = parameters();
    let parts = [MemoryPart::Equal { seed: 14, pages: 4096 }];
    let mut guests = [guest(&parts), guest(&parts)];
    let daemon = RunningProgram::daemon("", &["-v"]);
    assert_eq!(ksm("advisor_mode"), "[none] scan-time", "{}", daemon.log());
    wait_until("the guests are merged", || number("pages_sharing") + A_HANDFUL >= 4096);
    let log = daemon.end();
    assert!(log.contains("advisor_mode scan-time -> none") && log.contains("restored advisor_mode"), "{log}");
    assert_eq!(parameters(), before);
    assert_eq!(number("pages_to_scan"), 700, "the advisor begins anew with its minimum");
    assert_eq!(number("run"), 0);
    assert_unharmed(&mut guests);
}

#[test]
fn ksmtuned_is_respected_or_paused_on_request() {
    let Some(lock) = KernelLock::acquire() else { return };
    let ksmtuned = KsmtunedProcess::start();
    let (code, _, err) = ksmith(&["daemon"]);
    assert_eq!(code, 3, "{err}");
    for part in [&format!("ksmtuned (pid {})", ksmtuned.pid), "systemctl disable --now ksmtuned", "--take-over"] {
        assert!(err.contains(part), "{err}");
    }
    assert!(!ksmtuned.is_paused());
    assert_restored(&lock);

    let daemon = RunningProgram::daemon(HELD, &["--take-over"]);
    wait_until("ksmtuned is paused", || ksmtuned.is_paused());
    assert!(daemon.log().contains("is paused until the settings are restored"), "{}", daemon.log());
    wait_until("the daemon is in charge", || number("pages_to_scan") == 321);
    daemon.end();
    wait_until("ksmtuned goes on", || !ksmtuned.is_paused());
    assert_restored(&lock);

    let daemon = RunningProgram::daemon(HELD, &["--take-over"]);
    wait_until("ksmtuned is paused", || ksmtuned.is_paused());
    daemon.kill();
    assert!(ksmtuned.is_paused(), "it has not been let go on yet");
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("continues"), "{out}");
    wait_until("ksmtuned goes on", || !ksmtuned.is_paused());
    assert_restored(&lock);
}

#[test]
fn what_a_boot_script_writes_over_the_daemon_is_said_and_taken_back() {
    let Some(lock) = KernelLock::acquire() else { return };
    let mut daemon = RunningProgram::daemon(HELD, &[]);
    let held = || (number("run"), number("pages_to_scan")) == (0, 321);
    wait_until("the settings are held", held);
    // As the start of Ubuntu's qemu-kvm.service, or a line of rc.local, does.
    write("pages_to_scan", "1250");
    write("run", "1");
    daemon.wait_for("another program changed a setting: pages_to_scan 321 -> 1250");
    wait_until("they are taken back", held);
    daemon.signal(Signal::TERM);
    assert!(daemon.wait().success(), "{}", daemon.log());
    // ksmd stood still before: the first value that the daemon had to change, and gives back, is the script's.
    assert_eq!(lock.changed_settings(), [r#"run: 0 -> Some("1")"#]);
}

#[test]
fn the_service_manager_is_told_and_sighup_reloads() {
    let Some(lock) = KernelLock::acquire() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let (file, config) = config_file(HELD);
    let daemon = RunningProgram::start_with(&["daemon", "--config", &config], |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "900000");
    });
    let mut heard = Vec::new();
    let mut hear = |wanted: &str| {
        let mut buffer = [0; 4096];
        loop {
            let length = socket.recv(&mut buffer).unwrap_or_else(|why| panic!("no {wanted}: {why}; {heard:?}"));
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let is_it = text.lines().any(|line| line.starts_with(wanted));
            heard.push(text);
            if is_it {
                return;
            }
        }
    };
    hear("READY=1");
    assert_eq!(number("pages_to_scan"), 321, "ready when in charge");
    hear("WATCHDOG=1");
    hear("WATCHDOG=1");
    fs::write(file.path(), HELD.replace("321", "654")).unwrap();
    daemon.signal(Signal::HUP);
    hear("RELOADING=1");
    hear("READY=1");
    wait_until("the new setting holds", || number("pages_to_scan") == 654);
    daemon.end();
    hear("STOPPING=1");
    assert!(heard.iter().any(|text| text.starts_with("STATUS=")), "{heard:?}");
    assert_restored(&lock);
}

#[test]
fn a_log_that_can_not_be_written_ends_nothing() {
    works_and_ends_with_log(OpenOptions::new().write(true).open("/dev/full").unwrap());
}

/// A daemon with this log takes a new configuration, and restores the settings at its end.
fn works_and_ends_with_log(log: impl Into<Stdio>) {
    let Some(lock) = KernelLock::acquire() else { return };
    let (file, config) = config_file(HELD);
    let mut daemon = RunningProgram::start_with(&["daemon", "-v", "--config", &config], |command| {
        command.stderr(log);
    });
    daemon.wait_ready();
    fs::write(file.path(), HELD.replace("321", "654")).unwrap();
    daemon.signal(Signal::HUP);
    wait_until("it still works", || number("pages_to_scan") == 654);
    daemon.end();
    assert_restored(&lock);
}

#[test]
fn a_log_that_nobody_reads_holds_up_neither_a_turn_nor_the_end() {
    let (_unread, full) = rustix::pipe::pipe().unwrap();
    fcntl_setfl(&full, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&full, b"a line of the log\n").is_ok() {}
    fcntl_setfl(&full, OFlags::empty()).unwrap();
    works_and_ends_with_log(full);
}

#[test]
fn a_dry_run_says_what_it_would_do_and_does_nothing() {
    let Some(lock) = KernelLock::acquire() else { return };
    let (_file, config) = config_file(HELD);
    // A daemon that was killed leaves its socket's file.
    let _ = fs::remove_file(SOCKET);
    let (code, out, err) = ksmith(&["daemon", "--dry-run", "--config", &config]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("would set: pages_to_scan=321"), "{out}");
    assert_restored(&lock);
    assert!(!Path::new(SOCKET).exists());
}

#[test]
fn a_socket_that_can_not_be_had_changes_nothing() {
    let Some(lock) = KernelLock::acquire() else { return };
    let (_file, config) = config_file("[daemon]\ncontrol_socket = \"/nonexistent/control\"\n");
    let (code, _, err) = ksmith(&["daemon", "--config", &config]);
    assert_eq!(code, 1);
    assert!(err.contains("can't listen on the control socket /nonexistent/control"), "{err}");
    assert_restored(&lock);
}

#[test]
fn a_mistyped_socket_deletes_nothing() {
    let Some(lock) = KernelLock::acquire() else { return };
    let precious = tempfile::NamedTempFile::new().unwrap();
    fs::write(precious.path(), "dear").unwrap();
    let (_file, config) = config_file(&format!("[daemon]\ncontrol_socket = {:?}\n", precious.path()));
    let (code, _, err) = ksmith(&["daemon", "--config", &config]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("names something that is no socket; it is left alone"), "{err}");
    assert_eq!(fs::read_to_string(precious.path()).unwrap(), "dear");
    assert_restored(&lock);
}

/// Returns the wall clock in seconds since 1970.
fn day_clock() -> f64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// The whole way: from the command to the kernel, and back.
#[test]
fn a_pause_parks_ksmd_until_it_is_resumed_or_over() {
    const SCANNING: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\n\
                            settings = { pages_to_scan = 50, sleep_millisecs = 30, run = 1 }\n";
    let Some(lock) = KernelLock::acquire() else { return };
    let _guest = guest(&[MemoryPart::Unique { pages: 512 }]);
    let daemon = RunningProgram::daemon(SCANNING, &[]);
    let shown = || status().unwrap()["daemon"].clone();
    wait_until("ksmd scans", || number("run") == 1);
    assert!(shown()["paused_until"].is_null(), "{}", shown());

    let before = day_clock();
    let (code, out, err) = ksmith(&["pause", "1h", "--json"]);
    assert_eq!(code, 0, "{err}");
    let said: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&said["paused"], &said["seconds"]), (&true.into(), &3600.0_f64.into()));
    wait_until("ksmd is parked", || number("run") == 0 && shown()["state"] == "paused");
    let (until, after) = (shown()["paused_until"].as_f64().unwrap(), day_clock());
    assert!((before + 3599.0..after + 3601.0).contains(&until), "{until} is an hour after {before} to {after}");
    let (code, _, err) = ksmith(&["scan"]);
    assert!(code != 0 && err.contains("merging is paused"), "{err}");

    assert_eq!(ksmith(&["resume"]), (0, "merging continues\n".to_owned(), String::new()));
    wait_until("ksmd scans again", || number("run") == 1);
    assert!(shown()["paused_until"].is_null(), "{}", shown());

    assert_eq!(ksmith(&["pause", "1s"]).0, 0);
    let ends = || daemon.log().matches("the pause has ended; policy fixed decides again").count();
    wait_until("the pause is over", || ends() == 2);
    wait_until("ksmd scans by itself", || number("run") == 1);
    daemon.end();
    assert_restored(&lock);
}
