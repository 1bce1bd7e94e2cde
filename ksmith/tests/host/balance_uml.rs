//! Memory of real user-mode Linux guests, taken and given back.

use crate::support;
use crate::support::own::on_own_host;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::image::UmlImage;
use ksmith_host::act::StateDir;
use ksmith_host::root::Root;
use ksmith_service::balance::{ActuatorError, GivenBack, MemoryLedger};

const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn ledger(directory: &Path) -> MemoryLedger {
    MemoryLedger::open(&StateDir::at(directory.join("state"))).unwrap()
}

#[test]
fn a_guest_gives_its_page_cache_lives_and_gets_it_back() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(image) = UmlImage::make(directory.path(), 64) else { return };
        let mut guest = image.start("giver", 128, None);
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        let ledger = ledger(directory.path());
        let mut actuator = guest.actuator(&ledger);
        let before = actuator.read_figures().unwrap();
        assert_eq!((before.whole_bytes, before.given_bytes), (128 * MIB, 128 * MIB));
        assert!(before.resident_bytes > 80 * MIB && before.inside.cache_bytes.unwrap() > 60 * MIB, "{before:?}");

        // All that it has: it stops at what the guest needs.
        let given = actuator.resize(0).unwrap();
        let after = actuator.read_figures().unwrap();
        assert_eq!(after.given_bytes, given);
        assert!(given < 64 * MIB, "{after:?}");
        assert!(after.resident_bytes < before.resident_bytes / 2, "{before:?} {after:?}");
        assert!(after.inside.available_bytes.unwrap() > 4 * MIB, "{after:?}");
        assert_eq!(ledger.entries()[0].given_bytes, given);
        assert!(guest.answers(PATIENCE), "{}", guest.console());

        // A part, then the rest; what it reads again is cached again.
        let part = actuator.resize(given + 20 * MIB).unwrap();
        assert!(part > given + 18 * MIB && part <= given + 20 * MIB, "{given} {part}");
        assert_eq!(actuator.resize(u64::MAX).unwrap(), 128 * MIB);
        assert!(ledger.entries().is_empty());
        assert!(guest.run("cat /usr/share/data/* > /dev/null", PATIENCE), "{}", guest.console());
        let again = actuator.read_figures().unwrap();
        assert!(again.resident_bytes > after.resident_bytes + 32 * MIB, "{after:?} {again:?}");
    });
}

#[test]
fn the_successor_of_a_killed_ksmith_gives_everything_back() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(image) = UmlImage::make(directory.path(), 32) else { return };
        let mut guest = image.start("orphan", 96, None);
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        let first = ledger(directory.path());
        let given = guest.actuator(&first).resize(60 * MIB).unwrap();
        assert!(given < 62 * MIB, "{given}");
        drop(first);
        let next = ledger(directory.path());
        let mut actuator = guest.actuator(&next);
        let look = actuator.read_figures().unwrap();
        assert_eq!((look.given_bytes, look.whole_bytes), (given, 96 * MIB));
        let available = look.inside.available_bytes.unwrap();
        let all = next.restore(&Root::host(), false);
        assert_eq!((all.notes, all.lacking), (vec!["orphan has its 96 MiB again".to_owned()], vec![]));
        assert!(next.entries().is_empty());
        let look = guest.actuator(&next).read_figures().unwrap();
        assert_eq!(look.given_bytes, 96 * MIB);
        assert!(look.inside.available_bytes.unwrap() > available + 30 * MIB, "{look:?}");
    });
}

#[test]
fn a_guest_that_hangs_costs_its_patience_and_one_that_ended_is_gone() {
    on_own_host(|| {
        let directory = tempfile::tempdir().unwrap();
        let Some(image) = UmlImage::make(directory.path(), 8) else { return };
        let mut guest = image.start("stuck", 64, None);
        assert!(guest.boot(PATIENCE), "{}", guest.console());
        let ledger = ledger(directory.path());
        let mut actuator = guest.actuator(&ledger);
        let had = actuator.read_figures().unwrap().given_bytes;
        let signal = |signal| {
            rustix::process::kill_process(rustix::process::Pid::from_raw(guest.pid() as i32).unwrap(), signal)
                .unwrap()
        };
        signal(rustix::process::Signal::STOP);
        let started = Instant::now();
        assert!(matches!(actuator.read_figures(), Err(ActuatorError::Silent { .. })));
        assert!(matches!(actuator.resize(had - 8 * MIB), Err(ActuatorError::Silent { .. })));
        assert!(started.elapsed() < Duration::from_secs(20));
        signal(rustix::process::Signal::CONT);
        support::wait_until("it answers again", || actuator.read_figures().is_ok());
        assert!(actuator.resize(had - 8 * MIB).unwrap() < had);
        guest.kill();
        assert!(matches!(actuator.read_figures(), Err(ActuatorError::Gone)));
        assert!(matches!(actuator.resize(had), Err(ActuatorError::Gone)));
        assert_eq!(ledger.restore(&Root::host(), false), GivenBack::default());
        assert!(ledger.entries().is_empty());
    });
}
