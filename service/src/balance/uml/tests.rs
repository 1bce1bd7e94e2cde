use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::*;
use ksmith_host::act::StateDir;
use ksmith_host::guests::{GuestTracker, LibvirtUri};

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// A guest behind a real socket: 100 MiB, of which 10 are its kernel's.
#[derive(Debug)]
struct ConsoleGuest {
    free: u64,
    cache: u64,
    taken: u64,
    manner: ConsoleManner,
    /// Its kernel's PSI, if it has one, and the number of requests for it.
    pressure: Option<&'static str>,
    asked: u32,
    /// Memory that its programs come to use once it is short.
    used: u64,
}

/// The behaviour of the guest.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ConsoleManner {
    Honest,
    /// Says OK and does nothing.
    Lazy,
    /// Refuses to give.
    Refusing,
    /// Answers with something else.
    Babbling,
    /// Does not answer to `config`, but does it.
    Mute,
    /// Comes to use 5 MiB itself when it has little left.
    Needy,
}

impl ConsoleGuest {
    fn answer(&mut self, command: &str) -> Option<(bool, String)> {
        if self.manner == ConsoleManner::Babbling {
            return Some((false, "MemTotal: plenty\n".to_owned()));
        }
        let Some(change) = command.strip_prefix("config mem=") else {
            if command == "proc pressure/memory" {
                self.asked += 1;
                return Some(
                    self.pressure.map_or((true, "Failed to open file".to_owned()), |it| (false, it.to_owned())),
                );
            }
            if command != "proc meminfo" {
                return Some((true, "Failed to open file".to_owned()));
            }
            let line = |key: &str, bytes: u64| format!("{key}: {} kB\n", bytes / KIB);
            let text = line("MemTotal", 100 * MIB)
                + &line("MemFree", self.free)
                + &line("MemAvailable", self.free + self.cache)
                + &line("Cached", self.cache)
                + &line("AnonPages", 8 * MIB + self.used);
            // kswapd runs.
            let reclaimed = (2 * MIB).min(self.cache);
            if self.free < 2 * MIB {
                (self.free, self.cache) = (self.free + reclaimed, self.cache - reclaimed);
            }
            return Some((false, text));
        };
        let bytes: u64 = change[1..].trim_end_matches('K').parse::<u64>().unwrap() * KIB;
        match self.manner {
            ConsoleManner::Lazy => {}
            ConsoleManner::Refusing => return Some((true, "Can't plug memory".to_owned())),
            _ if change.starts_with('-') => {
                // It stops half way and says nothing of it.
                let given = bytes.min(self.free);
                (self.free, self.taken) = (self.free - given, self.taken + given);
                if self.manner == ConsoleManner::Needy
                    && self.used == 0
                    && self.free + self.cache < reserve(100 * MIB) + STEP
                {
                    self.used = 5 * MIB;
                    self.cache -= self.used;
                }
            }
            _ => {
                let back = bytes.min(self.taken);
                (self.free, self.taken) = (self.free + back, self.taken - back);
            }
        }
        (self.manner != ConsoleManner::Mute).then(|| (false, String::new()))
    }
}

fn serve(path: &Path, guest: Arc<Mutex<ConsoleGuest>>) {
    let socket = UnixDatagram::bind(path).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let length = u32::from_ne_bytes(buffer[8..12].try_into().unwrap()) as usize;
            let command = String::from_utf8_lossy(&buffer[12..(12 + length).min(count)]).into_owned();
            let Some((failed, text)) = guest.lock().unwrap().answer(&command) else { continue };
            let head: Vec<u8> =
                [u32::from(failed), 0, text.len() as u32].iter().flat_map(|n| n.to_ne_bytes()).collect();
            let _ = socket.send_to_addr(&[&head, text.as_bytes()].concat(), &from);
        }
    });
}

struct UmlStage {
    _tree: tempfile::TempDir,
    guest: Arc<Mutex<ConsoleGuest>>,
    uml: UmlActuator,
    ledger: MemoryLedger,
}

fn stage(manner: ConsoleManner) -> UmlStage {
    let tree = tempfile::tempdir().unwrap();
    let guest = Arc::new(Mutex::new(ConsoleGuest {
        free: 20 * MIB,
        cache: 60 * MIB,
        taken: 0,
        manner: ConsoleManner::Honest,
        pressure: None,
        asked: 0,
        used: 0,
    }));
    let path = tree.path().join("mconsole");
    serve(&path, Arc::clone(&guest));
    let ledger = MemoryLedger::open(&StateDir::at(tree.path().join("state"))).unwrap();
    let text = fs::read_to_string("/proc/self/stat").unwrap();
    let start_ticks = ksmith_core::kernel::PidStat::parse(&text).unwrap().start_ticks;
    let id = ProcessId { pid: std::process::id(), start_ticks };
    let target = GuestTracker::new(Root::host(), LibvirtUri::default()).target_by_id(id.into()).unwrap();
    let uml = UmlActuator::with(&Root::host(), Mconsole::at(path).unwrap(), &target, "u", &ledger).unwrap();
    guest.lock().unwrap().manner = manner;
    UmlStage { _tree: tree, guest, uml, ledger }
}

impl UmlStage {
    fn taken(&self) -> u64 {
        self.guest.lock().unwrap().taken
    }
}

#[test]
fn what_is_taken_is_what_the_guest_really_gave_down_to_its_reserve() {
    let mut stage = stage(ConsoleManner::Honest);
    let given = stage.uml.resize(70 * MIB).unwrap();
    assert_eq!((given, stage.taken()), (70 * MIB, 30 * MIB));
    let given = stage.uml.resize(0).unwrap();
    let left = {
        let guest = stage.guest.lock().unwrap();
        guest.free + guest.cache
    };
    assert_eq!(100 * MIB - given, stage.taken());
    assert!(left >= reserve(100 * MIB) && left < reserve(100 * MIB) + 2 * STEP, "{left}");
    assert_eq!(stage.ledger.entries()[0].given_bytes, given);
    assert_eq!(stage.uml.resize(given + 5 * MIB).unwrap(), given + 5 * MIB);
    assert_eq!(stage.uml.resize(u64::MAX).unwrap(), 100 * MIB);
    assert_eq!(stage.taken(), 0);
    assert!(stage.ledger.entries().is_empty());
}

#[test]
fn a_guest_that_comes_to_need_its_reserve_gets_as_much_back() {
    let mut stage = stage(ConsoleManner::Needy);
    let given = stage.uml.resize(0).unwrap();
    let (left, used) = {
        let guest = stage.guest.lock().unwrap();
        (guest.free + guest.cache, guest.used)
    };
    assert_eq!(used, 5 * MIB, "it became short");
    assert!(left >= reserve(100 * MIB) && left < reserve(100 * MIB) + 2 * STEP, "{left}");
    assert_eq!((stage.ledger.entries()[0].given_bytes, 100 * MIB - given), (given, stage.taken()));
}

#[test]
fn a_guest_that_says_ok_and_gives_nothing_is_left_soon_without_an_entry() {
    let mut stage = stage(ConsoleManner::Lazy);
    let started = Instant::now();
    assert_eq!(stage.uml.resize(0).unwrap(), 100 * MIB);
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(stage.ledger.entries().is_empty());
}

#[test]
fn a_refusal_or_a_malformed_answer_is_an_error_without_an_entry() {
    let mut refusing = stage(ConsoleManner::Refusing);
    assert!(matches!(refusing.uml.resize(0), Err(ActuatorError::Refused { .. })));
    assert!(refusing.ledger.entries().is_empty());
    let mut babbling = stage(ConsoleManner::Babbling);
    assert!(matches!(babbling.uml.read_figures(), Err(ActuatorError::Nonsense(_))));
    assert!(matches!(babbling.uml.resize(0), Err(ActuatorError::Nonsense(_))));
    assert!(babbling.ledger.entries().is_empty());
}

#[test]
fn a_step_that_is_unsure_while_the_ledger_is_put_right_does_no_harm() {
    let mut stage = stage(ConsoleManner::Honest);
    stage.uml.resize(70 * MIB).unwrap();
    // The guest's figures and the host's measure in the worst order.
    stage.uml.unsure = Some(50 * MIB);
    assert_eq!(stage.uml.read_figures().unwrap().given_bytes, 70 * MIB);
}

#[test]
fn a_step_without_an_answer_counts_as_taken_until_the_guest_was_seen() {
    let mut stage = stage(ConsoleManner::Mute);
    stage.uml.read_figures().unwrap();
    assert!(matches!(stage.uml.resize(90 * MIB), Err(ActuatorError::Silent { .. })));
    let noted = 100 * MIB - stage.ledger.entries()[0].given_bytes;
    assert!(noted >= stage.taken() && stage.taken() > 0);
    stage.guest.lock().unwrap().manner = ConsoleManner::Honest;
    assert_eq!(stage.uml.read_figures().unwrap().given_bytes, 100 * MIB - stage.taken());
    // Another ksmith, which knows the ledger alone, gives back at least as much.
    assert_eq!(stage.uml.resize(100 * MIB).unwrap(), 100 * MIB);
    assert_eq!(stage.taken(), 0);
}

#[test]
fn its_kernels_own_pressure_is_told_and_one_without_is_asked_once() {
    let mut stage = stage(ConsoleManner::Honest);
    stage.guest.lock().unwrap().pressure = Some("some avg10=7.25 avg60=0.00 avg300=0.00 total=9\n");
    assert_eq!(stage.uml.read_figures().unwrap().inside.psi_some_percent, Some(7.25));
    let mut stage = self::stage(ConsoleManner::Honest);
    for _ in 0..3 {
        assert_eq!(stage.uml.read_figures().unwrap().inside.psi_some_percent, None);
    }
    assert_eq!(stage.guest.lock().unwrap().asked, 1);
}
