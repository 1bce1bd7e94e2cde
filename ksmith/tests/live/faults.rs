//! Faults of the host on the live kernel: a program that writes settings all the time, settings that can't be written, want of
//! memory, and ten thousand processes that offer memory.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::sleepers::SleepingChildren;
use crate::support::ksmtuned::KsmtunedProcess;
use crate::support::pool::{CgroupPool, hold_off_swap};
use crate::support::program::{RunningProgram, config_file, ksmith, status};
use crate::support::vm::{FILLED_PAGES, LibvirtDaemons, RunningDomain, content};
use crate::support::{KSM, KernelLock, guest, number, skipped, wait_until, write};
use ksmith_lab::{MemoryGuest, MemoryPart};
use rustix::process::Signal;

/// It looks four times a second, and scans for as long as it runs.
const ENDLESS: &str = "[policy]\nkind = \"scan\"\n";

/// Held while ksmd is parked, and so without a lease.
const HELD: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 321, run = 0 }\n";

const PAGES: usize = 1024;

/// Two guests of equal memory.
fn guests() -> [MemoryGuest; 2] {
    [(); 2].map(|()| guest(&[MemoryPart::Equal { seed: 61, pages: PAGES }]))
}

fn wait_for_merging() {
    wait_until("ksmd merges under the daemon", || number("run") == 1 && number("pages_sharing") >= PAGES as u64);
}

/// The daemon has restored every setting, and no page is damaged.
fn assert_nothing_lost(lock: &KernelLock, guests: &mut [MemoryGuest]) {
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
    assert!(guests.iter_mut().all(|guest| guest.wrong_pages().unwrap() == 0));
}

#[test]
fn a_program_that_writes_settings_all_the_time_loses_nothing() {
    let Some(lock) = KernelLock::acquire() else { return };
    let mut guests = guests();
    let daemon = RunningProgram::daemon(ENDLESS, &[]);
    wait_for_merging();
    // It comes after the daemon, which would refuse to start beside it.
    let ksmtuned = KsmtunedProcess::start();
    for run in ["0", "2", "1"].into_iter().cycle().take(60) {
        for (knob, value) in
            [("pages_to_scan", "77"), ("sleep_millisecs", "500"), ("smart_scan", "1"), ("run", run)]
        {
            write(knob, value);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    // The last of them unmerges everything.
    write("run", "2");
    wait_for_merging();
    let log = daemon.end();
    let named = format!("it may be ksmtuned (pid {}): systemctl disable --now ksmtuned", ksmtuned.pid);
    assert!(log.contains("another program changed a setting") && log.contains(&named), "{log}");
    assert!(!log.contains("DEBUG"), "only --verbose asks for that: {log}");
    drop(ksmtuned);
    assert_nothing_lost(&lock, &mut guests);
}

/// Shows the program KSM's files through a mount of its own, which [`remount`] changes.
fn with_own_mount(command: &mut Command) {
    let mount = || {
        let call = |result: i32| if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
        let (none, none_path) = (std::ptr::null(), c"none".as_ptr());
        let ksm = c"/sys/kernel/mm/ksm".as_ptr();
        #[allow(unsafe_code, reason = "system calls between fork and exec")]
        // SAFETY: plain system calls with constant strings, in a child of one thread.
        unsafe {
            call(libc::unshare(libc::CLONE_NEWNS))?;
            call(libc::mount(none_path, c"/".as_ptr(), none, libc::MS_REC | libc::MS_PRIVATE, none.cast()))?;
            call(libc::mount(ksm, ksm, none, libc::MS_BIND, none.cast()))
        }
    };
    #[allow(unsafe_code, reason = "the mount must be there before the program starts")]
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(mount);
    }
}

/// Makes KSM's files read-only for this process, or not. Waits while one is open for a write.
fn remount(pid: u32, how: &str) {
    wait_until("KSM's files are remounted", || {
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid.to_string(), "--mount", "mount", "-o", &format!("remount,bind,{how}"), KSM]);
        command.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
}

#[test]
fn settings_that_can_not_be_written_are_written_later_and_restored_later() {
    let Some(lock) = KernelLock::acquire() else { return };
    let (file, path) = config_file(HELD);
    let mut daemon = RunningProgram::start_with(&["daemon", "--config", &path], with_own_mount);
    daemon.wait_ready();
    wait_until("the daemon is in charge", || number("pages_to_scan") == 321);
    remount(daemon.pid(), "ro");
    fs::write(file.path(), HELD.replace("321", "654")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.wait_for("watching: /sys is read-only here");
    assert_eq!(number("pages_to_scan"), 321);
    remount(daemon.pid(), "rw");
    wait_until("the setting is written", || number("pages_to_scan") == 654);
    // It can't restore, says so, and leaves it to the next.
    remount(daemon.pid(), "ro");
    daemon.signal(Signal::TERM);
    assert_ne!(daemon.wait().code(), Some(0), "{}", daemon.log());
    assert_eq!(number("pages_to_scan"), 654);
    assert!(daemon.log().contains("ksmith restore"), "{}", daemon.log());
    let (code, out, err) = ksmith(&["restore"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_nothing_lost(&lock, &mut []);
}

#[test]
fn want_of_memory_ends_the_largest_and_not_the_daemon() {
    let _no_swap = hold_off_swap();
    let Some(lock) = KernelLock::acquire() else { return };
    let Some(pool) = CgroupPool::make(128 << 20) else { return };
    let mut guests = guests();
    let (_file, path) = config_file(ENDLESS);
    let mut daemon = RunningProgram::start_with(&["daemon", "--config", &path], |command| pool.hold(command));
    daemon.wait_ready();
    wait_for_merging();
    for _ in 0..5 {
        let mut hog = Command::new("python3");
        hog.args(["-c", "x = bytearray(1 << 29); input()"]).stdin(Stdio::null()).stderr(Stdio::null());
        pool.hold(&mut hog);
        let Ok(ended) = hog.status() else { return skipped("there is no python3") };
        assert!(!ended.success(), "it had more than the limit");
    }
    assert!(pool.oom_kills() >= 5, "{}", pool.oom_kills());
    assert_eq!(status().unwrap()["daemon"]["pid"], daemon.pid());
    write("run", "2");
    wait_for_merging();
    daemon.end();
    assert_nothing_lost(&lock, &mut guests);
}

#[test]
fn two_thousand_processes_that_offer_memory_leave_nothing_behind() {
    offer_and_end(2_000);
}

#[test]
#[ignore = "forty seconds: make faults"]
fn ten_thousand_processes_that_offer_memory_leave_nothing_behind() {
    offer_and_end(10_000);
}

fn offer_and_end(processes: usize) {
    const AT_ONCE: usize = 200;
    let Some(lock) = KernelLock::acquire() else { return };
    let mut guests = guests();
    let daemon = RunningProgram::daemon(ENDLESS, &[]);
    wait_for_merging();
    let descriptors = || fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count();
    let before = descriptors();
    for round in 0..processes / AT_ONCE {
        // Each has the mergeable memory of its parent.
        drop(SleepingChildren::fork(AT_ONCE, 0));
        if round % 10 == 0 {
            assert_eq!(status().unwrap()["daemon"]["pid"], daemon.pid(), "{}", daemon.log());
        }
    }
    // A connection may be under way, and a look at a process.
    wait_until("the daemon holds none of them", || descriptors() <= before + 4);
    write("run", "2");
    wait_for_merging();
    daemon.end();
    assert_nothing_lost(&lock, &mut guests);
}

/// A guest that may merge, and one of another domain.
fn apart(own: &str, foreign: &str) -> String {
    format!(
        "{ENDLESS}[domains]\nmode = \"one\"\nadmit = \"own\"\nremaining_mergeable_mib = 4\n[[domains.rule]]\n\
         domain = \"own\"\nname = \"{own}-*\"\n[[domains.rule]]\ndomain = \"foreign\"\nname = \"{foreign}\"\n"
    )
}

fn merging(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/ksm_merging_pages")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[test]
#[ignore = "fifteen seconds: make faults"]
fn a_libvirtd_that_is_restarted_changes_nothing_for_its_guests() {
    // First the lock: two of these tests would start and end one libvirt.
    let Some(lock) = KernelLock::acquire() else { return };
    let Some(mut libvirt) = LibvirtDaemons::start() else { return };
    let directory = tempfile::tempdir().unwrap();
    let content = content(directory.path(), 8);
    let (own, foreign) =
        (format!("ksmith-own-{}", std::process::id()), format!("ksmith-foreign-{}", std::process::id()));
    let start = |name: &str| RunningDomain::start(directory.path(), name, &content);
    let apart_from = start(&foreign);
    let owned = ["1", "2"].map(|number| start(&format!("{own}-{number}")));
    let daemon = RunningProgram::daemon(&apart(&own, &foreign), &[]);
    let all_merged = || owned.iter().all(|domain| merging(domain.pid) >= FILLED_PAGES as u64);
    wait_until("the guests of the admitted domain have merged", all_merged);
    let restarted = libvirt.restart(|| {
        write("run", "2");
        wait_until("they merge while there is no libvirtd", all_merged);
    });
    if !restarted {
        return;
    }
    write("run", "2");
    wait_until("they merge under the new libvirtd", all_merged);
    let third = start(&format!("{own}-3"));
    wait_until("a new guest is known and merges", || merging(third.pid) >= FILLED_PAGES as u64);
    // Its firmware is tolerated, its RAM of the same content is not.
    assert!(merging(apart_from.pid) < FILLED_PAGES as u64 / 4, "{}", daemon.log());
    let log = daemon.end();
    assert!(log.contains(&format!("merging of {foreign} switched off")), "{log}");
    assert_nothing_lost(&lock, &mut []);
}

#[test]
#[ignore = "ten seconds: make faults"]
fn a_daemon_that_is_stopped_for_ten_seconds_goes_on() {
    let Some(lock) = KernelLock::acquire() else { return };
    let mut guests = guests();
    let daemon = RunningProgram::daemon(ENDLESS, &[]);
    wait_for_merging();
    daemon.signal(Signal::STOP);
    // It ends its part of a batch.
    wait_until("ksmd sleeps", || {
        let before = number("pages_scanned");
        std::thread::sleep(Duration::from_millis(200));
        number("pages_scanned") == before
    });
    let visited = number("pages_scanned");
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(
        (number("pages_scanned"), number("run")),
        (visited, 1),
        "ksmd sleeps, and its settings are as they were"
    );
    daemon.signal(Signal::CONT);
    wait_until("ksmd scans again", || number("pages_scanned") > visited);
    write("run", "2");
    wait_for_merging();
    daemon.end();
    assert_nothing_lost(&lock, &mut guests);
}
