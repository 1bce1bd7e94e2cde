//! The balance service with guests that speak a user-mode Linux's protocol, and do not always keep to it. Their processes
//! are real and do nothing; their consoles are this test's.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::process_id;
use crossbeam_channel::bounded;
use ksmith_core::balance::{BalanceConfig, KsmStep, PoolScope};
use ksmith_core::model::BalanceReport;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use ksmith_host::act::StateDir;
use ksmith_host::guests::{GuestTracker, LibvirtUri};
use ksmith_host::root::Root;
use ksmith_service::balance::MemoryLedger;
use ksmith_service::balance_service::{BalanceRequest, BalanceService};
use ksmith_service::control::{ControlReply, HoldRequest, ResizeReply, ResizeRequest};
use ksmith_service::folder::FoldedFigures;
use ksmith_service::registry::PublishedSnapshot;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const WHOLE: u64 = 128 * MIB;
const PATIENCE: Duration = Duration::from_secs(60);

/// The behaviour of a simulated guest.
#[derive(Debug, Clone, Copy, PartialEq)]
enum GuestBehavior {
    Honest,
    /// Replies OK and does nothing.
    Lazy,
    Garbage,
    Hangs,
    /// Ends while memory is taken from it.
    Exits,
}

/// A guest's memory: 16 MiB are in use.
#[derive(Debug)]
struct FakeGuestMemory {
    free: u64,
    cache: u64,
    taken: u64,
    manner: GuestBehavior,
}

impl FakeGuestMemory {
    fn answer(&mut self, command: &str) -> Option<String> {
        match self.manner {
            GuestBehavior::Hangs => return None,
            GuestBehavior::Garbage => return Some("MemTotal: plenty\n".to_owned()),
            _ => {}
        }
        let Some(change) = command.strip_prefix("config mem=") else {
            let line = |key: &str, bytes: u64| format!("{key}: {} kB\n", bytes / KIB);
            let text = line("MemTotal", WHOLE)
                + &line("MemFree", self.free)
                + &line("MemAvailable", self.free + self.cache)
                + &line("Cached", self.cache)
                + &line("AnonPages", 8 * MIB);
            // kswapd runs.
            let reclaimed = (8 * MIB).min(self.cache);
            (self.free, self.cache) = (self.free + reclaimed, self.cache - reclaimed);
            return Some(text);
        };
        let bytes = change[1..].trim_end_matches('K').parse::<u64>().unwrap() * KIB;
        if self.manner == GuestBehavior::Lazy {
            return Some(String::new());
        }
        if change.starts_with('-') {
            let given = bytes.min(self.free);
            (self.free, self.taken) = (self.free - given, self.taken + given);
        } else {
            let back = bytes.min(self.taken);
            (self.free, self.taken) = (self.free + back, self.taken - back);
        }
        Some(String::new())
    }
}

/// A process that looks like a user-mode Linux, with a console of ours.
struct FakeGuest {
    child: Arc<Mutex<Child>>,
    memory: Arc<Mutex<FakeGuestMemory>>,
    id: ProcessId,
}

impl FakeGuest {
    fn start(directory: &Path, name: &str, manner: GuestBehavior) -> Self {
        let guest = Self::start_mute(directory, name, manner);
        guest.open_console(directory, name);
        guest
    }

    /// A guest that has no console yet.
    fn start_mute(directory: &Path, name: &str, manner: GuestBehavior) -> Self {
        let program = directory.join(name).join("linux");
        let console = directory.join(name).join(name);
        fs::create_dir_all(&console).unwrap();
        let text = program.with_extension("text");
        fs::write(&text, "#!/bin/sh\nread -r _\n").unwrap();
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).unwrap();
        crate::support::copy_program(&text, &program);
        let child = Command::new(&program)
            .args([
                format!("umid={name}"),
                "mem=128M".to_owned(),
                format!("uml_dir={}", directory.join(name).display()),
            ])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // Its end of input is its end: it goes with this test, whatever becomes of it.
        let pid = child.id();
        let _ = child.stdin.as_ref().unwrap();
        let memory = Arc::new(Mutex::new(FakeGuestMemory { free: 16 * MIB, cache: 96 * MIB, taken: 0, manner }));
        let child = Arc::new(Mutex::new(child));
        // A program that is just being started has no command line yet by which it could be known.
        wait_until("it is what it was started as", || {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"/bin/sh"))
        });
        Self { child, memory, id: process_id(pid) }
    }

    fn open_console(&self, directory: &Path, name: &str) {
        let console = directory.join(name).join(name);
        let socket = UnixDatagram::bind(console.join("mconsole")).unwrap();
        fs::write(console.join("pid"), format!("{}\n", self.id.pid)).unwrap();
        let (there, victim) = (Arc::clone(&self.memory), Arc::clone(&self.child));
        std::thread::spawn(move || serve(&socket, &there, &victim));
    }

    fn taken(&self) -> u64 {
        self.memory.lock().unwrap().taken
    }
}

impl Drop for FakeGuest {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn serve(socket: &UnixDatagram, memory: &Mutex<FakeGuestMemory>, child: &Mutex<Child>) {
    let mut buffer = [0; 1024];
    while let Ok((count, from)) = socket.recv_from(&mut buffer) {
        let length = u32::from_ne_bytes(buffer[8..12].try_into().unwrap()) as usize;
        let command = String::from_utf8_lossy(&buffer[12..(12 + length).min(count)]).into_owned();
        if memory.lock().unwrap().manner == GuestBehavior::Exits && command.starts_with("config mem=-") {
            let mut child = child.lock().unwrap();
            let _ = child.kill();
            let _ = child.wait();
            continue;
        }
        let Some(text) = memory.lock().unwrap().answer(&command) else { continue };
        let head: Vec<u8> = [0_u32, 0, text.len() as u32].iter().flat_map(|n| n.to_ne_bytes()).collect();
        let _ = socket.send_to_addr(&[&head, text.as_bytes()].concat(), &from);
    }
}

/// The service over these guests alone, on a pool that is always short.
struct BalanceFixture {
    tree: tempfile::TempDir,
    sample: Sample,
    guests: PublishedSnapshot,
}

impl BalanceFixture {
    fn from_guests(tree: tempfile::TempDir, guests: &[&FakeGuest]) -> Self {
        let process = |guest: &&FakeGuest| ProcessSample {
            rss_bytes: Some(WHOLE),
            ..ProcessSample::new(guest.id, "linux".into(), true)
        };
        let processes = guests.iter().map(process).collect();
        Self {
            tree,
            guests: PublishedSnapshot::default(),
            sample: Sample { page_size: 4096, processes, ..Sample::default() },
        }
    }

    fn directory(&self) -> StateDir {
        StateDir::at(self.tree.path().join("state"))
    }

    fn service(&self, config: BalanceConfig) -> BalanceService {
        let merging = |_: KsmStep| ();
        let directory = self.directory();
        let service = BalanceService::start(
            &Root::host(),
            &directory,
            config,
            self.guests.clone(),
            FoldedFigures::default(),
            merging,
        )
        .unwrap();
        self.show(&service, &self.sample);
        service
    }

    /// Publishes the guests of a sample, as the registry does.
    fn show(&self, service: &BalanceService, sample: &Sample) {
        self.guests.publish(GuestTracker::new(Root::host(), LibvirtUri::default()).snapshot(sample));
        let _ = service.waker().try_send(());
    }

    fn ledger(&self) -> MemoryLedger {
        MemoryLedger::open(&self.directory()).unwrap()
    }
}

/// More must be available than the host has: every guest gives all that it can.
fn always_short() -> BalanceConfig {
    BalanceConfig {
        enabled: true,
        low_percent: 99.9,
        high_percent: 100.0,
        cooldown_seconds: 0.1,
        step_percent: 10.0,
        urgent_step_percent: 20.0,
        ..BalanceConfig::default()
    }
}

/// The host is never short, and has never enough above its marks to give back by itself.
fn never_short() -> BalanceConfig {
    BalanceConfig { enabled: true, low_percent: 0.1, high_percent: 100.0, ..BalanceConfig::default() }
}

fn send_request(service: &BalanceService, ask: BalanceRequest) -> ControlReply {
    let (reply, answers) = bounded(1);
    service.send_request(ask, reply);
    answers.recv_timeout(PATIENCE).unwrap()
}

fn report(service: &BalanceService) -> BalanceReport {
    match send_request(service, BalanceRequest::Report) {
        ControlReply::Balance(report) => *report,
        other => panic!("{other:?}"),
    }
}

fn resize(service: &BalanceService, guest: &str, give: bool, bytes: u64) -> Result<ResizeReply, String> {
    match send_request(
        service,
        BalanceRequest::Resize(ResizeRequest { guest: guest.to_owned(), give, bytes, dry_run: false }),
    ) {
        ControlReply::Resized(answer) => Ok(answer),
        ControlReply::Error { message } | ControlReply::NoGuest { message } => Err(message),
        other => panic!("{other:?}"),
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn among_guests_that_lie_hang_babble_and_exit_the_honest_one_is_balanced() {
    let tree = tempfile::tempdir().unwrap();
    let start = |name: &str, manner| FakeGuest::start(tree.path(), name, manner);
    let (honest, lazy) = (start("honest", GuestBehavior::Honest), start("lazy", GuestBehavior::Lazy));
    let (garbage, hangs) = (start("garbage", GuestBehavior::Garbage), start("hangs", GuestBehavior::Hangs));
    let exits = start("exits", GuestBehavior::Exits);
    let stage = BalanceFixture::from_guests(tree, &[&honest, &lazy, &garbage, &hangs, &exits]);
    let service = stage.service(always_short());
    // 16 MiB are in use, 16 stay in reserve.
    wait_until("the honest one gives what it can", || honest.taken() > 80 * MIB);
    wait_until("the others are left alone, or gone", || {
        let report = report(&service);
        let trouble = |name: &str| {
            report.guests.iter().find(|row| row.guest.name == name).is_some_and(|row| row.guest.trouble.is_some())
        };
        ["lazy", "garbage", "hangs"].into_iter().all(trouble)
    });
    let taken = honest.taken();
    let entries = stage.ledger().entries();
    let noted = entries.iter().find(|entry| entry.name == "honest").unwrap();
    assert!(noted.whole_bytes - noted.given_bytes >= taken, "the ledger never says less than was taken");
    let left = honest.memory.lock().unwrap();
    assert!(left.free + left.cache >= 16 * MIB, "{left:?}");
    drop(left);
    assert_eq!(lazy.taken() + garbage.taken() + hangs.taken(), 0);
    service.configure(BalanceConfig { give_back_on_exit: true, ..never_short() });
    drop(service);
    assert_eq!(honest.taken(), 0, "it has everything again");
    assert!(stage.ledger().entries().iter().all(|entry| entry.name != "honest"));
}

#[test]
fn a_new_guest_is_polled_once_and_balanced_as_soon_as_its_console_is_there() {
    let tree = tempfile::tempdir().unwrap();
    let directory = tree.path().to_owned();
    let guest = FakeGuest::start_mute(&directory, "late", GuestBehavior::Honest);
    let stage = BalanceFixture::from_guests(tree, &[&guest]);
    // It is handed over once: whatever comes of it, the service does by itself.
    let service = stage.service(always_short());
    wait_until("its console is missed", || {
        let trouble = |report: BalanceReport| report.guests.first()?.guest.trouble.clone();
        trouble(report(&service)).is_some_and(|why| why.contains("management console was not found"))
    });
    guest.open_console(&directory, "late");
    wait_until("it gives what it can", || guest.taken() > 80 * MIB);
    drop(service);
    assert_eq!(guest.taken(), 0);
}

#[test]
fn the_next_daemon_carries_on_and_what_is_not_carried_on_is_given_back() {
    let tree = tempfile::tempdir().unwrap();
    let guest = FakeGuest::start(tree.path(), "u", GuestBehavior::Honest);
    let stage = BalanceFixture::from_guests(tree, &[&guest]);
    let service = stage.service(BalanceConfig { give_back_on_exit: false, ..never_short() });
    wait_until("it is met", || {
        !report(&service).guests.is_empty() && resize(&service, "u", false, 40 * MIB).is_ok()
    });
    assert_eq!(guest.taken(), 40 * MIB);
    drop(service);
    assert_eq!(guest.taken(), 40 * MIB, "as if it had been killed");
    let service = stage.service(BalanceConfig { give_back_on_exit: false, ..never_short() });
    wait_until("the next one knows", || {
        report(&service).guests.first().is_some_and(|row| row.guest.given_bytes == WHOLE - 40 * MIB)
    });
    drop(service);
    // Out of sight is not gone: what was taken is not forgotten.
    let service = stage.service(BalanceConfig { give_back_on_exit: false, ..never_short() });
    wait_until("it is met again", || !report(&service).guests.is_empty());
    stage.show(&service, &Sample { page_size: 4096, ..Sample::default() });
    wait_until("it is out of sight", || {
        resize(&service, "u", true, MIB).is_err_and(|why| why.contains("there is no guest"))
    });
    assert_eq!(stage.ledger().entries().len(), 1);
    drop(service);
    let service = stage.service(BalanceConfig::default());
    wait_until("one that does not balance gives back", || guest.taken() == 0);
    wait_until("and strikes it out", || stage.ledger().entries().is_empty());
    drop(service);
    let config = BalanceConfig { give_back_on_exit: false, ..never_short() };
    let service = stage.service(config.clone());
    wait_until("it gives once more", || resize(&service, "u", false, 8 * MIB).is_ok());
    assert_eq!(guest.taken(), 8 * MIB);
    service.configure(BalanceConfig { pool: PoolScope::Cgroup("another".to_owned()), ..config });
    wait_until("it is of another pool and has everything again", || guest.taken() == 0);
}

#[test]
fn people_take_give_and_hold_and_are_told_what_came_of_it() {
    let tree = tempfile::tempdir().unwrap();
    let guest = FakeGuest::start(tree.path(), "u", GuestBehavior::Honest);
    let stage = BalanceFixture::from_guests(tree, &[&guest]);
    let service = stage.service(never_short());
    wait_until("it has told", || report(&service).guests.first().is_some_and(|row| row.guest.can_take));
    let answer = resize(&service, "u", false, 30 * MIB).unwrap();
    // In whole steps of its actuator, which are 4 MiB.
    assert_eq!((answer.from_bytes, answer.given_bytes, guest.taken()), (WHOLE, WHOLE - 32 * MIB, 32 * MIB));
    let answer = resize(&service, "u", false, WHOLE).unwrap();
    assert!(answer.given_bytes > answer.wanted_bytes && answer.given_bytes < 48 * MIB, "{answer:?}");
    let answer = resize(&service, &guest.id.pid.to_string(), true, 2 * WHOLE).unwrap();
    assert_eq!((answer.given_bytes, guest.taken()), (WHOLE, 0));
    let planned = ResizeRequest { guest: "u".to_owned(), give: false, bytes: 32 * MIB, dry_run: true };
    let ControlReply::Resized(planned) = send_request(&service, BalanceRequest::Resize(planned)) else {
        panic!("it is no plan")
    };
    let amounts = (planned.from_bytes, planned.wanted_bytes, planned.given_bytes);
    assert_eq!((amounts, guest.taken()), ((WHOLE, WHOLE - 32 * MIB, WHOLE), 0), "a dry run takes nothing");
    assert!(resize(&service, "missing", true, MIB).unwrap_err().contains("there is no guest \"missing\""));
    let hold = |release| {
        send_request(&service, BalanceRequest::Hold(HoldRequest { guest: "u".to_owned(), release, dry_run: false }))
    };
    let planned = HoldRequest { guest: "u".to_owned(), release: false, dry_run: true };
    assert!(
        matches!(send_request(&service, BalanceRequest::Hold(planned)), ControlReply::Done { message } if message.contains("would be"))
    );
    assert!(matches!(hold(false), ControlReply::Done { message } if message.contains("left alone")));
    service.configure(always_short());
    wait_until("the pool is short", || ["short", "urgent"].contains(&report(&service).state.as_str()));
    assert_eq!(guest.taken(), 0);
    assert!(matches!(hold(true), ControlReply::Done { .. }));
    wait_until("it is balanced again", || guest.taken() > 0);
}
