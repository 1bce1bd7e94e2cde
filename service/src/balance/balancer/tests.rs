//! The balancer with actuators that follow, and with some that do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ksmith_core::balance::ReportedFigures;
use ksmith_host::act::StateDir;
use tempfile::TempDir;

use super::super::member::BalanceCandidate;
use super::super::worker::MakeActuator;
use super::super::{ActuatorAbilities, ActuatorError, ActuatorFigures, MemoryActuator};
use super::*;

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(200);

/// The behaviour of a fake guest.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FakeManner {
    Honest,
    Hangs,
    Ignores,
    Garbage,
    ExitsWhenResized,
}

#[derive(Debug)]
struct FakeActuator {
    given: Arc<Mutex<u64>>,
    used: u64,
    manner: FakeManner,
    /// True once the guest was prepared for resizes, which writes to it.
    prepared: Arc<AtomicBool>,
}

const WHOLE: u64 = 1000 * MIB;

impl MemoryActuator for FakeActuator {
    fn prepare(&mut self) {
        self.prepared.store(true, Ordering::Release);
    }

    fn read_figures(&mut self) -> Result<ActuatorFigures, ActuatorError> {
        match self.manner {
            FakeManner::Hangs => std::thread::sleep(SOON * 3),
            FakeManner::Garbage => return Err(ActuatorError::Nonsense("blah".to_owned())),
            _ => {}
        }
        let given_bytes = *self.given.lock().unwrap();
        let inside =
            ReportedFigures { available_bytes: Some(given_bytes - self.used), ..ReportedFigures::default() };
        Ok(ActuatorFigures { given_bytes, whole_bytes: WHOLE, resident_bytes: given_bytes, inside })
    }

    fn resize(&mut self, to_bytes: u64) -> Result<u64, ActuatorError> {
        match self.manner {
            FakeManner::ExitsWhenResized => return Err(ActuatorError::Gone),
            FakeManner::Ignores => {}
            _ => *self.given.lock().unwrap() = to_bytes,
        }
        Ok(*self.given.lock().unwrap())
    }

    fn abilities(&self) -> ActuatorAbilities {
        ActuatorAbilities { way: "fake", can_take: true, can_give: true, step_bytes: MIB, why_not: None }
    }
}

struct BalancerStage {
    tree: TempDir,
    balancer: Balancer,
    given: BTreeMap<String, Arc<Mutex<u64>>>,
    prepared: BTreeMap<String, Arc<AtomicBool>>,
}

impl BalancerStage {
    fn new(guests: &[(&str, u64, FakeManner)]) -> Self {
        Self::with(guests, |candidate| candidate)
    }

    /// Creates the same stage with candidates changed by `change`.
    fn with(guests: &[(&str, u64, FakeManner)], change: impl Fn(BalanceCandidate) -> BalanceCandidate) -> Self {
        let tree = tempfile::tempdir().unwrap();
        let directory = StateDir::at(tree.path().join("state"));
        let (ledger, holds) = (MemoryLedger::open(&directory).unwrap(), HoldList::open(&directory).unwrap());
        let config = BalanceConfig { cooldown_seconds: 0.001, ..BalanceConfig::default() };
        let mut stage = Self {
            balancer: Balancer::new(Root::at(tree.path()), config, ledger, holds),
            tree,
            given: BTreeMap::new(),
            prepared: BTreeMap::new(),
        };
        stage.pool(10_000, 5000);
        let mut found = Vec::new();
        for &(name, used, manner) in guests {
            let given = Arc::new(Mutex::new(WHOLE));
            stage.given.insert(name.to_owned(), Arc::clone(&given));
            let prepared = Arc::new(AtomicBool::new(false));
            stage.prepared.insert(name.to_owned(), Arc::clone(&prepared));
            let candidate = BalanceCandidate { whole_bytes: WHOLE, ..BalanceCandidate::from_cgroup(name) };
            let make = Box::new(move || {
                let (given, prepared) = (Arc::clone(&given), Arc::clone(&prepared));
                Ok(Box::new(FakeActuator { given, used: used * MIB, manner, prepared }) as Box<dyn MemoryActuator>)
            }) as MakeActuator;
            found.push((change(candidate), make));
        }
        stage.balancer.discover_with(found);
        stage
    }

    fn pool(&self, total: u64, available: u64) {
        let proc = self.tree.path().join("proc");
        std::fs::create_dir_all(&proc).unwrap();
        let text = format!("MemTotal: {} kB\nMemAvailable: {} kB\n", total << 10, available << 10);
        std::fs::write(proc.join("meminfo"), text).unwrap();
    }

    fn given(&self, name: &str) -> u64 {
        *self.given[name].lock().unwrap() / MIB
    }

    /// One turn, with all that it decides carried out.
    fn turn(&mut self, patience: Duration) -> BalanceTurn {
        std::thread::sleep(Duration::from_millis(2));
        let turn = self.balancer.decide(patience).unwrap().clone();
        self.balancer.carry_out();
        self.settle();
        turn
    }

    fn settle(&mut self) {
        let answers = self.balancer.answers();
        while self.balancer.is_acting() {
            self.balancer.accept(answers.recv_timeout(SOON).unwrap());
        }
    }

    fn trouble(&self, name: &str) -> Option<String> {
        let report = self.balancer.report().unwrap();
        report.guests.iter().find(|row| row.guest.name == name).unwrap().guest.trouble.clone()
    }

    fn ordered(&mut self, name: &str, gives: bool, mib: u64) -> Result<u64, String> {
        let ordered = self.balancer.order(name, gives, mib * MIB).map_err(|why| why.to_string())?;
        let answers = self.balancer.answers();
        loop {
            if let Some(outcome) = self.balancer.order_outcome(&ordered.key, ordered.from_bytes) {
                return outcome.map(|bytes| bytes / MIB).map_err(|why| why.to_string());
            }
            self.balancer.accept(answers.recv_timeout(SOON).unwrap());
        }
    }
}

#[test]
fn memory_is_taken_while_the_pool_is_short_and_comes_back() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest), ("b", 900, FakeManner::Honest)]);
    assert_eq!(stage.turn(SOON).plan.actions, []);
    stage.pool(10_000, 900);
    stage.turn(SOON);
    stage.turn(SOON);
    // Each in proportion to what it can give; the first is held to its step.
    assert_eq!(stage.given("a"), 900);
    assert!((950..960).contains(&stage.given("b")), "{}", stage.given("b"));
    let report = stage.balancer.report().unwrap();
    assert_eq!(
        (report.state.as_str(), report.recent.len(), report.recent[0].got_bytes.is_some()),
        ("short", 4, true)
    );
    stage.pool(10_000, 5000);
    assert!(stage.balancer.give_back(SOON).is_empty());
    assert_eq!((stage.given("a"), stage.given("b")), (1000, 1000));
}

#[test]
fn a_guest_that_hangs_does_not_delay_the_others() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest), ("hangs", 200, FakeManner::Hangs)]);
    stage.pool(10_000, 900);
    stage.turn(SHORT);
    assert_eq!(stage.given("a"), 950);
    assert_eq!(stage.trouble("hangs").as_deref(), Some("it does not answer"));
    stage.turn(SHORT);
    assert_eq!((stage.given("a"), stage.given("hangs")), (900, 1000));
}

#[test]
fn a_guest_that_ignores_its_balloon_or_answers_garbage_is_left_alone() {
    let mut stage =
        BalancerStage::new(&[("ignores", 200, FakeManner::Ignores), ("garbage", 200, FakeManner::Garbage)]);
    stage.pool(10_000, 900);
    for _ in 0..4 {
        stage.turn(SOON);
    }
    assert!(stage.trouble("ignores").unwrap().starts_with("it does not follow"));
    assert!(stage.trouble("garbage").unwrap().contains("blah"));
    assert_eq!(stage.balancer.report().unwrap().recent.len(), 3, "asked three times, and then no more");
}

#[test]
fn a_guest_that_exits_during_a_resize_is_removed_and_no_other() {
    let mut stage =
        BalancerStage::new(&[("exits", 200, FakeManner::ExitsWhenResized), ("a", 200, FakeManner::Honest)]);
    stage.pool(10_000, 900);
    stage.turn(SOON);
    stage.turn(SOON);
    let names: Vec<String> =
        stage.balancer.report().unwrap().guests.into_iter().map(|row| row.guest.name).collect();
    assert_eq!(names, ["a"]);
    assert_eq!(stage.given("a"), 900);
}

#[test]
fn an_order_may_take_down_to_the_floor_and_give_up_to_the_whole() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest), ("b", 200, FakeManner::Ignores)]);
    stage.balancer.poll_guests(SOON);
    assert_eq!(stage.ordered("a", false, 120), Ok(880));
    assert_eq!(stage.ordered("a", true, 20), Ok(900));
    // Its use, and a reserve of 50 MiB.
    assert_eq!(stage.ordered("a", false, 5000), Ok(250));
    assert_eq!(stage.ordered("a", true, 5000), Ok(1000));
    let stayed = stage.ordered("b", false, 100).unwrap_err();
    assert!(stayed.contains("it does not move its memory"), "{stayed}");
    assert!(stage.ordered("none", true, 1).unwrap_err().contains("there is no guest"));
}

#[test]
fn a_held_guest_is_left_alone_by_the_policy_and_not_by_an_order() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest), ("b", 200, FakeManner::Honest)]);
    assert!(stage.balancer.hold("a", true).unwrap().contains("left alone from now on"));
    stage.pool(10_000, 900);
    stage.turn(SOON);
    assert_eq!((stage.given("a"), stage.given("b")), (1000, 950));
    assert_eq!(stage.ordered("a", false, 100), Ok(900));
    stage.balancer.hold("a", false).unwrap();
    stage.turn(SOON);
    assert_eq!(stage.given("a"), 850);
}

#[test]
fn at_the_end_no_more_is_given_back_than_the_pool_has() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest)]);
    stage.balancer.poll_guests(SOON);
    stage.ordered("a", false, 700).unwrap();
    stage.pool(10_000, 600);
    let notes = stage.balancer.give_back(SOON);
    assert!(notes[0].contains("a gets back 100 of 700 MiB"), "{notes:?}");
    assert_eq!(stage.given("a"), 400);
}

#[test]
fn at_the_end_guests_that_could_not_be_asked_are_named() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest)]);
    let path = stage.tree.path().join("sys/fs/cgroup/other");
    std::fs::create_dir_all(&path).unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&path).unwrap());
    let entry = super::super::ledger::LedgerEntry {
        key: "cgroup:other".to_owned(),
        name: "other".to_owned(),
        kind: ksmith_core::guest::GuestKind::new("container"),
        process: ksmith_core::sample::ProcessId { pid: 0, start_ticks: 0 },
        whole_bytes: 100 * MIB,
        given_bytes: 40 * MIB,
        libvirt: None,
        device: None,
        cgroup: Some(super::super::ledger::OriginalCgroup {
            path: "other".to_owned(),
            inode,
            high: "max".to_owned(),
        }),
    };
    stage.balancer.ledger.record_entry(entry).unwrap();
    assert_eq!(stage.balancer.give_back(SOON), ["other has 40 of its 100 MiB; later: ksmith restore"]);
}

#[test]
fn a_pool_that_has_lost_its_limit_does_not_keep_what_was_taken() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest)]);
    stage.balancer.poll_guests(SOON);
    stage.ordered("a", false, 100).unwrap();
    let pool = PoolScope::Cgroup("gone".to_owned());
    stage.balancer.configure(BalanceConfig { pool, ..stage.balancer.config.clone() });
    assert!(stage.balancer.decide(SOON).is_err());
    assert_eq!(stage.balancer.give_back(SOON), [] as [String; 0]);
    assert_eq!(stage.given("a"), 1000);
}

#[test]
fn a_guest_that_does_not_follow_is_still_asked() {
    let mut stage = BalancerStage::new(&[("ignores", 200, FakeManner::Ignores)]);
    stage.pool(10_000, 900);
    for _ in 0..4 {
        stage.turn(SOON);
    }
    assert!(stage.trouble("ignores").is_some());
    *stage.given["ignores"].lock().unwrap() = 700 * MIB;
    stage.turn(SOON);
    assert_eq!(stage.balancer.report().unwrap().guests[0].guest.given_bytes, 700 * MIB);
}

#[test]
fn an_order_during_a_planned_step_is_carried_out_after_it() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest)]);
    stage.balancer.poll_guests(SOON);
    stage.ordered("a", false, 500).unwrap();
    // The policy gives while the operator takes.
    stage.balancer.resize("cgroup:a", 500 * MIB, 600 * MIB, String::new());
    assert_eq!(stage.ordered("a", false, 100), Ok(400));
}

#[test]
fn a_new_guest_that_could_not_be_resized_at_first_is_tried_again() {
    let mut stage = BalancerStage::new(&[]);
    let candidate = BalanceCandidate { whole_bytes: WHOLE, ..BalanceCandidate::from_cgroup("late") };
    let tries = Arc::new(Mutex::new(0));
    let make = Box::new(move || {
        *tries.lock().unwrap() += 1;
        match *tries.lock().unwrap() {
            1..5 => Err(ActuatorError::Unable("there is no cgroup late".to_owned())),
            _ => {
                let given = Arc::new(Mutex::new(WHOLE));
                Ok(Box::new(FakeActuator {
                    given,
                    used: 200 * MIB,
                    manner: FakeManner::Honest,
                    prepared: Arc::default(),
                }) as Box<dyn MemoryActuator>)
            }
        }
    }) as MakeActuator;
    stage.balancer.discover_with(vec![(candidate, make)]);
    stage.turn(SOON);
    assert!(stage.trouble("late").unwrap().contains("no cgroup"));
    // It is not discovered again, and no turn asks it.
    let answers = stage.balancer.answers();
    while !stage.balancer.take_first_answer() {
        let soon = stage.balancer.poll_new_guests().unwrap_or(SOON);
        if let Ok(answer) = answers.recv_timeout(soon) {
            stage.balancer.accept(answer);
        }
    }
    stage.turn(SOON);
    assert_eq!(stage.trouble("late"), None, "a new guest's first failures do not count");
}

#[test]
fn no_turn_waits_for_a_new_guest_that_hangs() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest), ("hangs", 200, FakeManner::Hangs)]);
    stage.balancer.poll_new_guests();
    stage.pool(10_000, 900);
    let answers = stage.balancer.answers();
    stage.balancer.accept(answers.recv_timeout(SOON).unwrap());
    let started = Instant::now();
    stage.turn(SOON);
    assert!(started.elapsed() < SOON, "the turn waited for it");
    assert_eq!((stage.given("a"), stage.given("hangs")), (950, 1000));
}

#[test]
fn a_pool_that_cannot_be_looked_at_is_an_error_and_nothing_is_done() {
    let mut stage = BalancerStage::new(&[("a", 200, FakeManner::Honest)]);
    stage.turn(SOON);
    std::fs::remove_file(stage.tree.path().join("proc/meminfo")).unwrap();
    assert!(stage.balancer.decide(SOON).is_err());
    assert!(stage.balancer.report().is_none());
}

/// A candidate of an ordinary user, if its name says so.
fn of_its_user(candidate: BalanceCandidate) -> BalanceCandidate {
    match candidate.name.starts_with("user") {
        true => {
            BalanceCandidate { is_verified: false, user: Some("alice".to_owned()), uid: Some(1000), ..candidate }
        }
        false => candidate,
    }
}

#[test]
fn one_user_with_guests_that_hang_uses_up_no_threads_and_delays_no_other_guest() {
    let names: Vec<String> = (0..300).map(|n| format!("user-{n}")).collect();
    let spoofs = names.iter().map(|name| (name.as_str(), 100, FakeManner::Hangs));
    let guests: Vec<_> =
        spoofs.chain([("web", 100, FakeManner::Honest), ("db", 100, FakeManner::Honest)]).collect();
    let mut stage = BalancerStage::with(&guests, of_its_user);
    assert_eq!(stage.balancer.pool_of_threads.threads(), 0, "nothing is asked before it is needed");
    stage.balancer.poll_guests(SHORT);
    while ["web", "db"].iter().any(|name| stage.balancer.members[&format!("cgroup:{name}")].known.is_none()) {
        stage.balancer.poll_guests(SHORT);
    }
    assert!(stage.balancer.pool_of_threads.threads() <= LIMITS.threads);
}

#[test]
fn a_guest_that_is_not_verified_is_left_alone_unless_the_operator_trusts_its_user() {
    for (users, is_balanced) in [(vec![], false), (vec!["alice"], true), (vec!["a*"], true), (vec!["bob"], false)] {
        let mut stage = BalancerStage::with(
            &[("user", 100, FakeManner::Honest), ("web", 100, FakeManner::Honest)],
            of_its_user,
        );
        let users = users.into_iter().map(str::to_owned).collect();
        stage.balancer.configure(BalanceConfig { users, cooldown_seconds: 0.001, ..BalanceConfig::default() });
        stage.balancer.poll_guests(SOON);
        let view = stage.balancer.view().unwrap();
        let of = |name: &str| view.guests.iter().find(|guest| guest.name == name).unwrap();
        assert!(of("web").can_take && of("web").can_give && of("web").trouble.is_none());
        assert_eq!((of("user").can_take, of("user").can_give), (is_balanced, is_balanced));
        assert_eq!(of("user").trouble.is_none(), is_balanced);
    }
}

#[test]
fn a_claim_gets_no_terms_no_hold_and_no_name() {
    let mut stage = BalancerStage::new(&[]);
    let rule = toml::from_str("name = 'web'\nclass = 'gold'\nfloor_mib = 512").unwrap();
    stage.balancer.configure(BalanceConfig { rule: vec![rule], ..BalanceConfig::default() });
    let verified = BalanceCandidate { uuid: Some("aa".to_owned()), ..BalanceCandidate::from_cgroup("web") };
    let claims =
        BalanceCandidate { key: "7:7".to_owned(), is_verified: false, uid: Some(1000), ..verified.clone() };
    let gold = |candidate: &BalanceCandidate| candidate.terms(&stage.balancer.config).class.name == "gold";
    assert!(gold(&verified) && !gold(&claims));
    assert!(
        verified.names_in_holds().any(|name| name == "aa") && !claims.names_in_holds().any(|name| name == "aa")
    );
    let make = || Box::new(|| Err(ActuatorError::Gone)) as MakeActuator;
    stage.balancer.discover_with(vec![(verified, make()), (claims, make())]);
    for wanted in ["web", "aa"] {
        assert_eq!(stage.balancer.find(wanted).unwrap().0, "cgroup:web");
    }
}

#[test]
fn only_guests_that_are_balanced_or_ordered_to_are_prepared() {
    let guests =
        [("held", 300, FakeManner::Honest), ("free", 300, FakeManner::Honest), ("claims", 300, FakeManner::Honest)];
    let mut stage = BalancerStage::with(&guests, |candidate| BalanceCandidate {
        is_verified: candidate.name != "claims",
        ..candidate
    });
    let prepared = |stage: &BalancerStage| {
        let is = |name: &&str| stage.prepared[*name].load(Ordering::Acquire);
        ["held", "free", "claims"].into_iter().filter(is).collect::<Vec<_>>()
    };
    stage.balancer.hold("held", true).unwrap();
    // What only reads: a balance that is asked and does not act.
    stage.balancer.decide(SOON).unwrap();
    assert_eq!(prepared(&stage), [""; 0]);
    stage.balancer.configure(BalanceConfig { enabled: true, ..stage.balancer.config.clone() });
    stage.balancer.decide(SOON).unwrap();
    assert_eq!(prepared(&stage), ["free"]);
    // The operator may do what a policy may not.
    let ordered = stage.balancer.order("held", false, 100 * MIB).unwrap();
    let answers = stage.balancer.answers();
    while stage.balancer.order_outcome(&ordered.key, ordered.from_bytes).is_none() {
        stage.balancer.accept(answers.recv_timeout(SOON).unwrap());
    }
    assert_eq!(prepared(&stage), ["held", "free"]);
}
