//! Programs that know nothing of the library are folded by its thread: contents stay, and what the thread tells is what the kernel
//! counts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Filled, compile, has, library, lock, plain, skipped};

/// Whether this process may have a full userfaultfd that moves pages. As root, from Linux 6.8.
fn can_fold() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let is_new = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 8);
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !(is_new && is_root) {
        skipped("folding unasked needs Linux 6.8 and a full userfaultfd, as root has");
    }
    is_new && is_root
}

/// The largest value that a program has told, or 0: one that starts another tells for itself.
fn told(place: &Path, name: &str) -> u64 {
    let files = fs::read_dir(place).unwrap().flatten().map(|entry| entry.path());
    let texts = files.filter_map(|file| fs::read_to_string(file).ok()).collect::<Vec<_>>().join(" ");
    let words = texts.split_whitespace().filter_map(|word| word.split_once('='));
    words.filter(|(known, _)| *known == name).map(|(_, value)| value.parse().unwrap()).max().unwrap_or(0)
}

/// Proportional bytes of a process.
fn pss(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(300), "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn unasked(command: &mut Command, when: &str, place: &Path) -> Filled {
    command
        .env("LD_PRELOAD", library())
        .env("KSMITH_RANGES", "none")
        .env("KSMITH_FOLD", when)
        .env("KSMITH_FOLD_PLACE", place);
    Filled::start(command)
}

/// On an order: what is told is by how much PSS falls. All contents stay.
fn folds_on_demand(command: &mut Command, least: u64) {
    let place = tempfile::tempdir().unwrap();
    let program = unasked(command, "on-demand", place.path());
    std::thread::sleep(Duration::from_secs(3));
    let before = pss(program.pid());
    assert_eq!(told(place.path(), "passes"), 0, "there was no order yet");
    wait_until("the order was carried out", || {
        fs::write(place.path().join("fold"), "").unwrap();
        told(place.path(), "passes") > 0
    });
    let (after, folded) = (pss(program.pid()), told(place.path(), "folded_bytes"));
    assert!(folded >= least, "{folded}");
    let fallen = before.saturating_sub(after);
    assert!(fallen.abs_diff(folded) < 2 << 20, "PSS fell by {fallen}, folded were {folded}");
    program.check();
}

#[test]
fn a_program_in_c_is_folded_on_demand() {
    if !can_fold() {
        return;
    }
    let Some(program) = compile("tests/c/unmodified.c", &[]) else { return };
    let _lock = lock();
    folds_on_demand(&mut program.command(), 30 << 20);
}

/// The daemon's order to all programs of a user is a file beside its socket.
#[test]
fn a_program_is_folded_when_the_daemon_orders_it_to_its_user() {
    if !can_fold() {
        return;
    }
    let Some(program) = compile("tests/c/unmodified.c", &[]) else { return };
    let _lock = lock();
    let (place, daemon) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut command = program.command();
    command.env("KSMITH_SOCKET", daemon.path().join("user"));
    let program = unasked(&mut command, "on-demand", place.path());
    fs::create_dir(daemon.path().join("fold")).unwrap();
    fs::write(daemon.path().join("fold/4711"), "").unwrap();
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(told(place.path(), "passes"), 0, "the order was another user's");
    wait_until("the order was carried out", || {
        fs::write(daemon.path().join("fold/0"), "").unwrap();
        told(place.path(), "passes") > 0
    });
    assert!(told(place.path(), "folded_bytes") >= 30 << 20);
    program.check();
}

/// The kernel counts no folded memory: the program tells the daemon by its socket.
#[test]
fn the_daemon_is_told_how_much_was_folded() {
    if !can_fold() {
        return;
    }
    let Some(compiled) = compile("tests/c/unmodified.c", &[]) else { return };
    let _lock = lock();
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("user");
    let listener = UnixListener::bind(&socket).unwrap();
    let (sender, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for peer in listener.incoming() {
            let mut peer = BufReader::new(peer.unwrap());
            let mut line = String::new();
            peer.read_line(&mut line).unwrap();
            assert_eq!(line, "hello 1\n");
            peer.get_mut().write_all(b"ok ksmith 1\n").unwrap();
            line.clear();
            peer.read_line(&mut line).unwrap();
            peer.get_mut().write_all(b"ok\n").unwrap();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let folds = tempfile::tempdir().unwrap();
    let mut command = compiled.command();
    let program = unasked(command.env("KSMITH_SOCKET", &socket), "every=1s", folds.path());
    let line = heard.recv_timeout(Duration::from_secs(60)).unwrap();
    let bytes: u64 = line.trim_end().strip_prefix("folded ").unwrap().parse().unwrap();
    assert!(bytes >= 30 << 20, "{line}");
    program.check();
}

#[test]
fn a_program_in_python_is_folded_on_demand() {
    if !can_fold() {
        return;
    }
    if !has("python3") {
        return skipped("there is no python3");
    }
    let _lock = lock();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/unmodified.py");
    folds_on_demand(plain(Path::new("python3")).arg(script), 30 << 20);
}

#[test]
fn a_program_is_folded_when_its_memory_has_stopped_growing() {
    if !can_fold() {
        return;
    }
    let Some(compiled) = compile("tests/c/unmodified.c", &[]) else { return };
    let _lock = lock();
    for when in ["end-of-init", "every=1s"] {
        let place = tempfile::tempdir().unwrap();
        let program = unasked(&mut compiled.command(), when, place.path());
        wait_until("it is folded", || told(place.path(), "folded_bytes") >= 30 << 20);
        program.check();
    }
}

#[test]
fn a_program_without_rights_is_left_alone_and_tells_why() {
    if !can_fold() {
        return;
    }
    let Some(program) = compile("tests/c/unmodified.c", &[]) else { return };
    if !has("setpriv") {
        return skipped("there is no setpriv");
    }
    let _lock = lock();
    let place = tempfile::tempdir().unwrap();
    let mut command = plain(Path::new("setpriv"));
    // Without the right to trace no process has a full userfaultfd; the device is root's, and so is this process: it has to go too.
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--clear-groups"]).arg(program.path());
    for path in [place.path(), program.path().parent().unwrap()] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    let program = unasked(command.stderr(Stdio::inherit()), "end-of-init", place.path());
    wait_until("it was refused", || told(place.path(), "errno") == 1);
    assert_eq!(told(place.path(), "folded_bytes"), 0);
    program.check();
}

/// The loader of a program that changes its user as it starts takes no library from the environment.
#[test]
fn a_setuid_program_is_left_alone() {
    if !can_fold() {
        return;
    }
    let Some(compiled) = compile("tests/c/unmodified.c", &[]) else { return };
    let _lock = lock();
    let place = tempfile::tempdir().unwrap();
    for path in [place.path(), compiled.path().parent().unwrap()] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    }
    std::os::unix::fs::chown(compiled.path(), Some(65534), None).unwrap();
    fs::set_permissions(compiled.path(), std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
    let program = unasked(&mut compiled.command(), "every=1s", place.path());
    std::thread::sleep(Duration::from_secs(4));
    let status = fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    let users = status.lines().find(|line| line.starts_with("Uid:")).unwrap();
    assert_eq!(users.split_whitespace().collect::<Vec<_>>(), ["Uid:", "0", "65534", "65534", "65534"]);
    let maps = fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
    assert!(!maps.contains("libksmith"), "{maps}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0, "it tells nothing");
    program.check();
}
