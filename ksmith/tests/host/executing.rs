//! Processes that execute a program without an end: whoever reads their `stat` or their links waits.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::attack::RunningAttack;
use crate::support::own::on_own_host;
use crate::support::program::{RunningProgram, config_file, ksmith, status};
use crate::support::settings;
use crate::support::{guest, hold_off_ksm, skipped, wait_until};
use ksmith_core::kernel::ProcessMapping;
use ksmith_core::sample::Sample;
use ksmith_host::guests::{GuestTracker, LibvirtUri};
use ksmith_host::hypervisor::MonitorSocket;
use ksmith_host::hypervisor::qmp;
use ksmith_host::observe::{HostObserver, shows_mergeable};
use ksmith_host::root::Root;
use ksmith_lab::MemoryPart;

/// Guests named `foreign` are of another domain than those that may merge, and the daemon changes a setting.
const CONFIG: &str = "[policy]\nkind = \"fixed\"\n[policy.fixed]\nsettings = { pages_to_scan = 321, run = 0 }\n\
                      [domains]\nmode = \"one\"\nadmit = \"a\"\ndefault = \"a\"\n\
                      [[domains.rule]]\ndomain = \"b\"\nname = \"foreign\"\n";

/// A QEMU that never runs. Killed on drop.
struct ForeignMachine(Child);

impl ForeignMachine {
    /// `None`, said loudly, where there is no QEMU.
    fn start(directory: &Path) -> Option<Self> {
        let socket = directory.join("qmp");
        let child = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg", "-m", "64", "-display", "none", "-nodefaults", "-S", "-name", "foreign"])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())])
            .stdin(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Self(child)),
            Err(_) => {
                skipped("there is no qemu-system-x86_64");
                None
            }
        }
    }

    /// Returns true if its RAM is offered to KSM; `None` if it has none yet.
    fn offers_ram(&self) -> Option<bool> {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps", self.0.id())).ok()?;
        let mappings = ProcessMapping::parse_all(&text).ok()?;
        mappings.iter().find(|mapping| mapping.end - mapping.start == 64 << 20)?.is_mergeable()
    }
}

impl Drop for ForeignMachine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The sentence about a process that does not answer.
fn silence(pid: u32) -> String {
    format!("stat of process {pid} does not answer")
}

fn names_silence(sample: &Sample, pid: u32) -> bool {
    sample.given_up.named.iter().any(|process| process.pid == pid && process.why == silence(pid))
}

/// Does `body` while `count` processes execute without an end, which their guard ends after some seconds. If that happens before
/// `body` is done, it has waited for them, unless the machine is slow: so it is tried again.
pub fn while_processes_execute(count: usize, mut body: impl FnMut(&RunningAttack)) {
    for _ in 0..3 {
        let Some(attack) = RunningAttack::hold_exec(count) else { return };
        body(&attack);
        if attack.executes() {
            return;
        }
    }
    panic!("each time the guard ended the attack before all was done");
}

#[test]
fn neither_a_turn_nor_a_command_waits_for_a_process_that_executes_without_end() {
    on_own_host(|| {
        let _ksm_waits = hold_off_ksm();
        let good = guest(&[MemoryPart::Unique { pages: 1 }]);
        let (_config, path) = config_file("[daemon]\ncontrol_socket = \"/run/ksmith-is-not-here/control\"\n");
        while_processes_execute(2, |attack| {
            let mut observer = HostObserver::new(Root::host());
            let mut guests = GuestTracker::new(Root::host(), LibvirtUri::default());
            // The children are hypervisors by their name, and each is compared with its parent.
            wait_until("the children are guests, and the parents are named", || {
                let sample = observer.sample();
                let known = guests.snapshot(&sample).name(&sample).guests;
                let is_guest = |pid| known.iter().any(|guest| guest.processes.iter().any(|id| id.pid == pid));
                let is_good_there = sample.processes.iter().any(|process| process.id.pid == good.pid());
                attack.executing().all(|pid| names_silence(&sample, pid))
                    && attack.children().all(is_guest)
                    && (is_good_there || !shows_mergeable(&Root::host()))
            });
            let pid = attack.executing().next().unwrap().to_string();
            for command in [&["status"][..], &["guests"], &["doctor", &pid], &["estimate", &pid]] {
                ksmith(&[&["--config", &path], command].concat());
            }
        });
    });
}

#[test]
fn no_monitor_in_the_view_of_a_process_that_executes_without_end_is_waited_for() {
    on_own_host(|| {
        while_processes_execute(1, |attack| {
            let pid = attack.executing().next().unwrap();
            for path in ["/run/ksmith-is-not-here/monitor", "monitor"] {
                let error = qmp::connect(&Root::host(), pid, &[MonitorSocket::Path(path.to_owned())]).err();
                let said = error.unwrap().to_string();
                assert!(said.ends_with("its path does not answer in time"), "{said}");
            }
        });
    });
}

#[test]
fn the_daemon_answers_switches_guests_off_and_ends_while_a_process_executes_without_end() {
    on_own_host(|| {
        let _ksm_waits = hold_off_ksm();
        let directory = tempfile::tempdir().unwrap();
        let Some(machine) = ForeignMachine::start(directory.path()) else { return };
        wait_until("the guest offers its memory", || machine.offers_ram() == Some(true));
        let before = settings::now();
        while_processes_execute(2, |attack| {
            let daemon = RunningProgram::daemon(CONFIG, &[]);
            wait_until("the guest is switched off", || machine.offers_ram() == Some(false));
            let later = guest(&[MemoryPart::Unique { pages: 1 }]);
            wait_until("a new process is seen", || {
                let status = status().unwrap();
                status["processes"].as_array().unwrap().iter().any(|row| row["pid"] == later.pid())
            });
            let errors = status().unwrap()["errors"].to_string();
            assert!(!attack.executes() || attack.executing().all(|pid| errors.contains(&silence(pid))), "{errors}");
            assert_eq!(settings::now()["pages_to_scan"], "321");
            daemon.end();
            assert_eq!(settings::now(), before);
            assert_eq!(machine.offers_ram(), Some(true), "switched on again");
        });
    });
}
