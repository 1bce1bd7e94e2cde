//! A ksmith that stands still: whether it is stopped, frozen or killed, ksmd ends its batch and scans no more.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::support::program::{RunningProgram, config_file, ksmith};
use crate::support::{KernelLock, guest, number, skipped, wait_until};
use ksmith_core::kernel::{cpu_ns, is_asleep};
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::lease::{KsmdWaker, is_leased};
use ksmith_core::sample::BoundaryPause;
use ksmith_host::act::{KsmControl, StateDir};
use ksmith_host::ksmd;
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;
use rustix::process::Signal;

/// ksmd may use as much as it likes, for as long as the daemon runs.
const ENDLESS: &str = "[policy]\nkind = \"scan\"\n";

/// Its batches are as long as it takes to scan all that there is here.
const LONG_BATCHES: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 1000000, \
                            sleep_millisecs = 10, smart_scan = 0, run = 1 }\n";

/// The most pages that ksmd visits after it was woken.
const PART: u64 = 5000;

/// The time over which a ksmd that nothing wakes is observed.
const WATCH: Duration = Duration::from_millis(400);

fn ksmd_file(name: &str) -> String {
    let pid = ksmd::pid(&Root::host()).expect("ksmd");
    fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap()
}

fn ksmd_cpu() -> Duration {
    Duration::from_nanos(cpu_ns(&ksmd_file("schedstat")).unwrap())
}

/// Waits until ksmd is in the middle of it, under a lease.
fn wait_for_work() {
    let before = number("pages_scanned");
    wait_until("ksmd scans under a lease", || {
        let is_at_work = number("run") == 1 && is_leased(number("sleep_millisecs"));
        is_at_work && number("pages_scanned") > before + 1000
    });
}

/// ksmd ends the batch that it is in, and does nothing from then on, although it is to run.
fn assert_idle(when: &str) {
    let at_first = number("pages_scanned");
    wait_until(&format!("{when}: ksmd sleeps"), || is_asleep(&ksmd_file("stat")));
    let (cpu, visited) = (ksmd_cpu(), number("pages_scanned"));
    assert!(visited - at_first <= PART, "{when}: {} pages in one batch", visited - at_first);
    std::thread::sleep(WATCH);
    assert_eq!(number("run"), 1, "{when}: it is not parked");
    assert_eq!(number("pages_scanned"), visited, "{when}");
    let used = ksmd_cpu() - cpu;
    assert!(used < WATCH / 100, "{when}: {used:?} of {WATCH:?}");
}

/// A cgroup that freezes what is in it. Removed on drop, when its process has ended.
struct CgroupFreezer {
    directory: PathBuf,
    file: &'static str,
    words: [&'static str; 2],
}

impl CgroupFreezer {
    fn new(pid: u32) -> Option<Self> {
        const NAME: &str = "ksmith-test-lease";
        let kinds = [
            ("/sys/fs/cgroup/unified", "cgroup.freeze", ["0", "1"]),
            ("/sys/fs/cgroup", "cgroup.freeze", ["0", "1"]),
            ("/sys/fs/cgroup/freezer", "freezer.state", ["THAWED", "FROZEN"]),
        ];
        for (parent, file, words) in kinds {
            let directory = Path::new(parent).join(NAME);
            if fs::create_dir_all(&directory).is_ok()
                && directory.join(file).exists()
                && fs::write(directory.join("cgroup.procs"), pid.to_string()).is_ok()
            {
                return Some(Self { directory, file, words });
            }
            let _ = fs::remove_dir(&directory);
        }
        skipped("no cgroup here can freeze a process");
        None
    }

    fn freeze(&self, freezes: bool) {
        fs::write(self.directory.join(self.file), self.words[usize::from(freezes)]).unwrap();
        let says = |file: &str, text: &str| {
            fs::read_to_string(self.directory.join(file)).is_ok_and(|found| found.contains(text))
        };
        wait_until("the cgroup is as asked", || match self.file {
            "cgroup.freeze" => says("cgroup.events", if freezes { "frozen 1" } else { "frozen 0" }),
            file => says(file, self.words[usize::from(freezes)]),
        });
    }
}

impl Drop for CgroupFreezer {
    fn drop(&mut self) {
        let _ = fs::write(self.directory.join(self.file), self.words[0]);
        let processes = fs::read_to_string(self.directory.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines() {
            if let Some(parent) = self.directory.parent() {
                let _ = fs::write(parent.join("cgroup.procs"), pid);
            }
        }
        let _ = fs::remove_dir(&self.directory);
    }
}

fn state_of(pid: u32) -> Option<char> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Stops it, and waits until it is.
fn stop(running: &RunningProgram, signal: Signal) {
    running.signal(signal);
    wait_until("it is stopped", || state_of(running.pid()) == Some('T'));
}

#[test]
fn a_daemon_that_stands_still_leaves_ksmd_asleep() {
    let Some(lock) = KernelLock::acquire() else { return };
    let _guests = [guest(&[MemoryPart::Unique { pages: 20_000 }])];
    let daemon = RunningProgram::daemon(ENDLESS, &[]);
    wait_for_work();
    stop(&daemon, Signal::STOP);
    assert_idle("stopped");
    daemon.signal(Signal::CONT);
    wait_for_work();
    if let Some(freezer) = CgroupFreezer::new(daemon.pid()) {
        freezer.freeze(true);
        assert_idle("frozen");
        freezer.freeze(false);
        wait_for_work();
    }
    daemon.end();
    assert_eq!(lock.changed_settings(), Vec::<String>::new());

    let daemon = RunningProgram::daemon(LONG_BATCHES, &[]);
    for _ in 0..5 {
        wait_for_work();
        stop(&daemon, Signal::STOP);
        assert_idle("stopped in a long batch");
        daemon.signal(Signal::CONT);
    }
    daemon.end();
    assert_eq!(lock.changed_settings(), Vec::<String>::new());

    let daemon = RunningProgram::daemon(ENDLESS, &[]);
    wait_for_work();
    daemon.kill();
    assert_idle("killed");
    let (code, out, err) = ksmith(&["doctor"]);
    assert!(out.contains("ksmd sleeps for a day after each batch"), "{code}: {out}{err}");
    assert_eq!(ksmith(&["restore"]).0, 0);
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn ksmd_rests_at_the_end_of_a_pass_until_it_is_decided_what_comes_next() {
    let Some(lock) = KernelLock::acquire() else { return };
    const PAGES: u64 = 20_000;
    let _guests = [guest(&[MemoryPart::Unique { pages: PAGES as usize }])];
    let directory = tempfile::tempdir().unwrap();
    let mut control = KsmControl::acquire(&Root::host(), &StateDir::at(directory.path()), false, false).unwrap();
    let (tell, told) = crossbeam_channel::unbounded();
    control.writer().on_rest(move || tell.send(()).unwrap());
    let settings = [
        (Knob::AdvisorMode, 0),
        (Knob::SmartScan, 0),
        (Knob::PagesToScan, 700),
        (Knob::SleepMillisecs, 0),
        (Knob::Run, 1),
    ];
    let scan = settings.into_iter().fold(KnobSettings::none(), |knobs, (knob, value)| knobs.with(knob, value));
    let mut visited_before = None;
    for _ in 0..10 {
        // ksmd scans before it is said where it is to rest: the first end is seconds away, however busy this host is.
        let passes = number("full_scans") + if visited_before.is_some() { 1 } else { 20 };
        let (_, errors) = control.writer().apply_leased(&scan);
        assert!(errors.is_empty(), "{errors:?}");
        control.writer().hold(Duration::from_secs(60), Some(passes)).unwrap();
        told.recv_timeout(Duration::from_secs(60)).unwrap();
        assert_eq!((control.writer().rest(), number("full_scans")), (BoundaryPause::Resting, passes));
        let visited = number("pages_scanned");
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!((number("pages_scanned"), number("full_scans")), (visited, passes), "it goes on");
        // Each pass but the first ones begins where ksmd rested.
        if let Some(before) = visited_before.replace(visited) {
            assert_eq!(visited - before, PAGES);
        }
    }
    control.restore().unwrap();
    assert_eq!(lock.changed_settings(), Vec::<String>::new());
}

#[test]
fn each_command_that_scans_may_be_stopped_in_the_middle() {
    let Some(lock) = KernelLock::acquire() else { return };
    let _guests = [guest(&[MemoryPart::Unique { pages: 20_000 }])];
    // A scan takes seconds.
    let (_file, config) = config_file("[limits]\nmax_cpu = \"5%\"\n");
    let run = ["run", "--config", &config, "--scan", "0.1", "--scan-others", "-q", "--", "sleep", "600"];
    let scans: [&[&str]; 2] = [&["scan", "--passes", "1000"], &run];
    for arguments in scans {
        // The terminal's stop is for groups that a shell waits for.
        let mut running = RunningProgram::start_with(arguments, |command| {
            command.process_group(0);
        });
        wait_for_work();
        // As Ctrl-Z does.
        stop(&running, Signal::TSTP);
        assert_idle(arguments[0]);
        running.signal(Signal::CONT);
        wait_for_work();
        running.signal(Signal::TERM);
        running.wait();
        assert_eq!(lock.changed_settings(), Vec::<String>::new(), "{arguments:?}");
    }
}

#[test]
fn each_signal_restores_or_does_no_harm() {
    let Some(lock) = KernelLock::acquire() else { return };
    let _guests = [guest(&[MemoryPart::Unique { pages: 20_000 }])];
    let (_file, config) = config_file(ENDLESS);
    let daemon = ["daemon", "--config", &config];
    let commands: [&[&str]; 2] = [&daemon, &["scan", "--passes", "1000"]];
    for (command, ending) in commands
        .into_iter()
        .flat_map(|command| [Signal::QUIT, Signal::ABORT, Signal::XCPU].map(|signal| (command, signal)))
    {
        let mut running = RunningProgram::start(command);
        wait_for_work();
        for harmless in [Signal::USR1, Signal::USR2, Signal::ALARM, Signal::PIPE, Signal::IO, Signal::XFSZ] {
            running.signal(harmless);
        }
        wait_for_work();
        running.signal(ending);
        let ended = running.wait();
        let code = i32::from(command[0] == "scan");
        assert_eq!(ended.code(), Some(code), "{command:?}, {ending:?}: {}", running.log());
        assert_eq!(lock.changed_settings(), Vec::<String>::new(), "{command:?}, {ending:?}");
    }
}
