use std::path::Path;

use super::*;
use ksmith_host::act::StateDir;

const MIB: u64 = 1 << 20;

/// A captured cgroup of 100 MiB, of which 60 are used and 30 page cache.
fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let directory = tree.path().join("sys/fs/cgroup/machine.slice/web");
    fs::create_dir_all(&directory).unwrap();
    let write = |file: &str, text: String| fs::write(directory.join(file), text).unwrap();
    write("memory.max", format!("{}\n", 100 * MIB));
    write("memory.high", "max\n".to_owned());
    write("memory.current", format!("{}\n", 60 * MIB));
    write("memory.reclaim", String::new());
    write(
        "memory.stat",
        format!("anon {}\ninactive_file {}\nactive_file {}\npgmajfault 7\n", 30 * MIB, 20 * MIB, 10 * MIB),
    );
    write(
        "memory.pressure",
        "some avg10=1.50 avg60=0 avg300=0 total=9\nfull avg10=0 avg60=0 avg300=0 total=0\n".to_owned(),
    );
    tree
}

fn ledger(tree: &Path) -> MemoryLedger {
    MemoryLedger::open(&StateDir::at(tree.join("state"))).unwrap()
}

fn open(tree: &Path, ledger: &MemoryLedger) -> Result<CgroupActuator, ActuatorError> {
    CgroupActuator::open(&Root::at(tree), "/machine.slice/web", "web", ledger)
}

fn text(tree: &Path, file: &str) -> String {
    fs::read_to_string(tree.join("sys/fs/cgroup/machine.slice/web").join(file)).unwrap().trim().to_owned()
}

#[test]
fn it_is_looked_at() {
    let tree = tree();
    let look = open(tree.path(), &ledger(tree.path())).unwrap().read_figures().unwrap();
    assert_eq!((look.whole_bytes, look.given_bytes, look.resident_bytes), (100 * MIB, 100 * MIB, 60 * MIB));
    assert_eq!(look.inside.available_bytes, Some(60 * MIB));
    assert_eq!((look.inside.cache_bytes, look.inside.psi_some_percent), (Some(30 * MIB), Some(1.5)));
}

#[test]
fn swapped_pages_have_the_size_of_the_hosts_pages() {
    let counts = CgroupStat::parse("pswpin 3\npswpout 5\n", 64 << 10).counts;
    assert_eq!((counts.swap_in_bytes, counts.swap_out_bytes), (Some(192 << 10), Some(320 << 10)));
}

#[test]
fn the_limit_stays_above_what_is_used_and_the_old_one_comes_back() {
    let tree = tree();
    let ledger = ledger(tree.path());
    let mut cgroup = open(tree.path(), &ledger).unwrap();
    // These files reclaim nothing, as a cgroup with a busy cache.
    assert_eq!(cgroup.resize(40 * MIB).unwrap(), 62 * MIB);
    assert_eq!(text(tree.path(), "memory.reclaim"), format!("{} swappiness=0", 22 * MIB));
    assert_eq!(text(tree.path(), "memory.high"), (62 * MIB).to_string());
    let entry = ledger.entries().remove(0);
    assert_eq!((entry.given_bytes, entry.cgroup.unwrap().high), (62 * MIB, "max".to_owned()));
    // The next ksmith knows the whole, though memory.high says less now.
    let mut next = open(tree.path(), &ledger).unwrap();
    assert_eq!(next.read_figures().unwrap().whole_bytes, 100 * MIB);
    assert_eq!(next.resize(80 * MIB).unwrap(), 80 * MIB);
    assert_eq!(text(tree.path(), "memory.high"), (80 * MIB).to_string());
    assert_eq!(next.resize(u64::MAX).unwrap(), 100 * MIB);
    assert_eq!(text(tree.path(), "memory.high"), "max");
    assert!(ledger.entries().is_empty());
}

#[test]
fn another_cgroup_of_that_name_owes_nothing_and_one_that_is_gone_is_gone() {
    let tree = tree();
    let ledger = ledger(tree.path());
    let mut old = open(tree.path(), &ledger).unwrap();
    old.resize(70 * MIB).unwrap();
    let directory = tree.path().join("sys/fs/cgroup/machine.slice/web");
    fs::rename(&directory, directory.with_file_name("old")).unwrap();
    assert!(matches!(old.read_figures(), Err(ActuatorError::Gone)));
    fs::create_dir(&directory).unwrap();
    for file in ["memory.max", "memory.current", "memory.stat"] {
        fs::copy(directory.with_file_name("old").join(file), directory.join(file)).unwrap();
    }
    fs::write(directory.join("memory.high"), "max\n").unwrap();
    let mut new = open(tree.path(), &ledger).unwrap();
    assert_eq!(new.read_figures().unwrap().given_bytes, 100 * MIB);
    assert!(ledger.entries().is_empty());
    // And this one's kernel is old.
    assert!(!new.abilities().can_take);
    assert!(new.resize(50 * MIB).unwrap_err().to_string().contains("5.19"));
}

#[test]
fn a_cgroup_that_can_not_be_resized_says_why() {
    let tree = tree();
    let ledger = ledger(tree.path());
    let why =
        |path: &str| CgroupActuator::open(&Root::at(tree.path()), path, "k", &ledger).unwrap_err().to_string();
    assert!(why("/").contains("no limits"));
    assert!(why("/../../etc").contains("no limits"));
    assert!(why("/none").contains("there is no cgroup"));
    fs::create_dir_all(tree.path().join("sys/fs/cgroup/memory/old")).unwrap();
    assert!(why("/old").contains("version 2"));
}

#[test]
fn a_limit_that_can_not_be_read_is_not_taken_for_none() {
    let tree = tree();
    let ledger = ledger(tree.path());
    let mut cgroup = open(tree.path(), &ledger).unwrap();
    let high = tree.path().join("sys/fs/cgroup/machine.slice/web/memory.high");
    fs::remove_file(&high).unwrap();
    fs::create_dir(&high).unwrap();
    assert!(cgroup.resize(70 * MIB).is_err(), "it would be given back as no limit");
    assert!(ledger.entries().is_empty());
    assert!(open(tree.path(), &ledger).is_err());
}
