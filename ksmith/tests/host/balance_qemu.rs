//! Memory of real QEMU guests, taken and given back by their balloons.

use std::path::Path;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use ksmith_core::balance::{BalanceConfig, KsmStep};
use ksmith_core::sample::{ProcessSample, Sample};
use ksmith_host::guests::{GuestTracker, LibvirtUri};
use ksmith_service::balance_service::{BalanceRequest, BalanceService};
use ksmith_service::control::{ControlReply, ResizeRequest};
use ksmith_service::folder::FoldedFigures;
use ksmith_service::registry::PublishedSnapshot;
use serde_json::json;

use crate::support::linux::{LinuxGuest, LinuxKit};
use crate::support::own::on_own_host;
use crate::support::qmp::QmpClient;
use crate::support::vm::serves_qmp;
use crate::support::{actuator_of, process_id, wait_until};
use ksmith_host::act::StateDir;
use ksmith_host::root::Root;
use ksmith_service::balance::{ActuatorError, ActuatorFigures, GivenBack, MemoryActuator, MemoryLedger};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// The device, by no id of its own: it must be found.
const BALLOON: [&str; 2] = ["-device", "virtio-balloon-pci"];

fn open_actuator(guest: &LinuxGuest, ledger: &MemoryLedger) -> Result<Box<dyn MemoryActuator>, ActuatorError> {
    actuator_of(guest.pid(), &guest.name, ledger)
}

fn ledger(directory: &Path) -> MemoryLedger {
    MemoryLedger::open(&StateDir::at(directory.join("state"))).unwrap()
}

/// Returns a look with the guest's own statistics, once its balloon driver has sent them.
fn wait_for_statistics(actuator: &mut dyn MemoryActuator) -> ActuatorFigures {
    let mut look = ActuatorFigures::default();
    actuator.prepare();
    wait_until("the guest's driver tells", || {
        look = actuator.read_figures().unwrap();
        look.inside.available_bytes.is_some()
    });
    look
}

#[test]
fn a_balloon_takes_what_is_idle_and_gives_it_back() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
        let mut guest = kit.start("idle", 128, None, &BALLOON);
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        assert!(guest.touch(60, PATIENCE), "{}", guest.console());
        let ledger = ledger(directory.path());
        let mut actuator = open_actuator(&guest, &ledger).unwrap();
        let before = wait_for_statistics(actuator.as_mut());
        assert_eq!((before.whole_bytes, before.given_bytes), (128 * MIB, 128 * MIB));

        // More than it can spare: it keeps a reserve.
        let given = actuator.resize(MIB).unwrap();
        assert!(given < 90 * MIB, "{given} {before:?}");
        let after = actuator.read_figures().unwrap();
        assert_eq!(after.given_bytes, given);
        assert!(after.resident_bytes + 20 * MIB < before.resident_bytes, "{before:?} {after:?}");
        assert_eq!(ledger.entries()[0].given_bytes, given);
        assert!(!guest.has_killed(PATIENCE), "{}", guest.console());

        // Another ksmith gives it all back.
        let next = self::ledger(directory.path());
        assert_eq!(next.restore(&Root::host(), false).notes, ["idle has its 128 MiB again"]);
        assert_eq!(actuator.read_figures().unwrap().given_bytes, 128 * MIB);
        assert!(next.entries().is_empty());
        assert!(guest.leak("it", 60, PATIENCE), "{}", guest.console());
        assert!(!guest.has_killed(PATIENCE), "{}", guest.console());
    });
}

#[test]
fn a_guest_that_ignores_its_balloon_is_left_as_it_is() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
        // Its processor never starts, and so neither does a driver.
        let guest = kit.start("deaf", 64, None, &["-S", "-device", "virtio-balloon-pci,id=b"]);
        wait_until("QEMU serves QMP", || serves_qmp(&guest.socket));
        let ledger = ledger(directory.path());
        let mut actuator = match open_actuator(&guest, &ledger) {
            Ok(actuator) => actuator,
            // Without a driver QEMU has no balloon to speak of: nothing was begun then.
            Err(error) => return assert!(matches!(error, ActuatorError::Unable(_)), "{error}"),
        };
        let started = Instant::now();
        assert_eq!(actuator.resize(32 * MIB).unwrap(), 64 * MIB);
        assert!(started.elapsed() < Duration::from_secs(20));
        assert!(ledger.entries().is_empty());
    });
}

#[test]
fn without_a_balloon_it_says_what_to_do_and_an_ended_guest_is_gone() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
        let plain = kit.start("plain", 64, None, &["-S"]);
        wait_until("QEMU serves QMP", || serves_qmp(&plain.socket));
        let ledger = ledger(directory.path());
        // QEMU serves one peer at a time, and sees later that the last one has gone.
        let mut error = String::new();
        wait_until("QEMU serves the next peer", || {
            error = open_actuator(&plain, &ledger).unwrap_err().to_string();
            !error.contains("another peer is connected")
        });
        assert!(error.contains("-device virtio-balloon-pci"), "{error}");
        let mut guest = kit.start("ends", 96, None, &BALLOON);
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        let mut actuator = open_actuator(&guest, &ledger).unwrap();
        wait_for_statistics(actuator.as_mut());
        assert!(actuator.resize(88 * MIB).unwrap() < 96 * MIB);
        guest.kill();
        assert!(matches!(actuator.read_figures(), Err(ActuatorError::Gone)));
        assert!(matches!(actuator.resize(92 * MIB), Err(ActuatorError::Gone)));
        assert_eq!(ledger.restore(&Root::host(), false), GivenBack::default());
        assert!(ledger.entries().is_empty());
    });
}

/// The interval of the statistics of the guest's balloon, by its own monitor.
fn statistics_interval(socket: &Path) -> u64 {
    let path = "/machine/peripheral/b";
    let property = json!({ "path": path, "property": "guest-stats-polling-interval" });
    QmpClient::connect(socket).execute("qom-get", property).as_u64().unwrap()
}

#[test]
fn a_daemon_that_is_only_asked_leaves_a_guests_statistics_off() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(kit) = LinuxKit::make(directory.path(), &[]) else { return };
        let mut guest = kit.start("asked", 96, None, &["-device", "virtio-balloon-pci,id=b"]);
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        let state = StateDir::at(directory.path().join("state"));
        let id = process_id(guest.pid());
        let process =
            ProcessSample { rss_bytes: Some(96 * MIB), ..ProcessSample::new(id, "qemu-system-x86".into(), true) };
        let sample = Sample { page_size: 4096, processes: vec![process], ..Sample::default() };
        let guests = PublishedSnapshot::default();
        let config = BalanceConfig::default();
        let service = BalanceService::start(
            &Root::host(),
            &state,
            config,
            guests.clone(),
            FoldedFigures::default(),
            |_: KsmStep| (),
        )
        .unwrap();
        guests.publish(GuestTracker::new(Root::host(), LibvirtUri::default()).snapshot(&sample));
        service.waker().try_send(()).unwrap();
        let ask = |ask: BalanceRequest| {
            let (reply, answers) = bounded(1);
            service.send_request(ask, reply);
            answers.recv_timeout(PATIENCE).unwrap()
        };
        let resize = |dry_run| {
            ask(BalanceRequest::Resize(ResizeRequest {
                guest: "asked".to_owned(),
                give: false,
                bytes: 8 * MIB,
                dry_run,
            }))
        };
        wait_until("the daemon has looked", || match ask(BalanceRequest::Report) {
            ControlReply::Balance(report) => report.guests.iter().any(|row| row.guest.given_bytes == 96 * MIB),
            other => panic!("{other:?}"),
        });
        assert!(matches!(resize(true), ControlReply::Resized(_)));
        assert_eq!(statistics_interval(&guest.socket), 0, "only asked");
        assert!(matches!(resize(false), ControlReply::Resized(answer) if answer.given_bytes < 96 * MIB));
        assert_ne!(statistics_interval(&guest.socket), 0, "it has to know what the guest can spare");
    });
}
