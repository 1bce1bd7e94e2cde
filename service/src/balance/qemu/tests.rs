use std::cell::Cell;
use std::sync::{Arc, Mutex};

use super::*;

const MIB: u64 = 1 << 20;

thread_local! {
    /// Offset of the test's clock, in seconds.
    static STEP: Cell<i64> = const { Cell::new(0) };
}

fn stepped() -> Duration {
    let step = Duration::from_secs(STEP.get().unsigned_abs());
    if STEP.get() < 0 { clock().saturating_sub(step) } else { clock() + step }
}

/// An in-memory QEMU with a balloon that follows its target down to `stops_at`.
#[derive(Debug, Clone)]
struct FakeQemu(Arc<Mutex<FakeQemuState>>);

#[derive(Debug)]
struct FakeQemuState {
    actual: u64,
    stops_at: u64,
    available: u64,
    /// `None`: its driver does not report it.
    total: Option<u64>,
    /// Age of the statistics, in seconds.
    age: u64,
    targets: Vec<u64>,
    major_faults: u64,
    /// Number of targets after which it stops answering.
    silent_after: Option<usize>,
}

impl QmpMonitor for FakeQemu {
    fn execute(&mut self, command: &str, arguments: Value, _patience: Duration) -> Result<Value, MonitorError> {
        let mut qemu = self.0.lock().unwrap();
        if qemu.silent_after == Some(qemu.targets.len()) {
            return Err(MonitorError::NoMonitor);
        }
        Ok(match (command, arguments.get("property").and_then(Value::as_str)) {
            ("query-balloon", _) => json!({ "actual": qemu.actual }),
            ("balloon", _) => {
                let target = arguments["value"].as_u64().unwrap();
                qemu.targets.push(target);
                qemu.actual = if target < qemu.actual { target.max(qemu.stops_at) } else { target };
                json!({})
            }
            ("qom-get", Some("guest-stats")) => {
                let now = stepped().as_secs();
                let total = qemu.total.unwrap_or(u64::MAX);
                let stats = json!({
                    "stat-available-memory": qemu.available,
                    "stat-total-memory": total,
                    "stat-major-faults": qemu.major_faults,
                });
                json!({ "last-update": now - qemu.age, "stats": stats })
            }
            other => panic!("unexpected request {other:?}"),
        })
    }
}

fn balloon(stops_at: u64, available: u64) -> (tempfile::TempDir, FakeQemu, QemuActuator, MemoryLedger) {
    let tree = tempfile::tempdir().unwrap();
    let ledger = MemoryLedger::open(&ksmith_host::act::StateDir::at(tree.path().join("state"))).unwrap();
    let text = std::fs::read_to_string("/proc/self/stat").unwrap();
    let id = ProcessId {
        pid: std::process::id(),
        start_ticks: ksmith_core::kernel::PidStat::parse(&text).unwrap().start_ticks,
    };
    let guests = ksmith_host::guests::GuestTracker::new(Root::host(), ksmith_host::guests::LibvirtUri::default());
    let target = guests.target_by_id(id.into()).unwrap();
    let qemu = FakeQemuState {
        actual: 100 * MIB,
        stops_at,
        available,
        total: None,
        age: 0,
        targets: Vec::new(),
        major_faults: 0,
        silent_after: None,
    };
    let qemu = FakeQemu(Arc::new(Mutex::new(qemu)));
    let account = LedgerAccount::open(&ledger, "q", "q", target.identity.kind, id, 100 * MIB);
    let device = ResizeDevice::Balloon;
    let path = Some("/machine/peripheral/b".to_owned());
    let (rates, takes, filling) = (CounterRates::default(), RecentTakes::default(), FillRate::default());
    let (root, gives_way, clock) = (Root::host(), false, stepped);
    let balloon = QemuActuator {
        root,
        target,
        device,
        balloon: path,
        account,
        rates,
        takes,
        filling,
        gives_way,
        is_prepared: false,
        clock,
    };
    (tree, qemu, balloon, ledger)
}

#[test]
fn a_balloon_that_stands_still_is_taken_back_to_where_it_is() {
    let (_tree, mut qemu, mut balloon, ledger) = balloon(90 * MIB, 90 * MIB);
    assert_eq!(balloon.do_resize(&mut qemu, 50 * MIB).unwrap(), 90 * MIB);
    assert_eq!(qemu.0.lock().unwrap().targets, [50 * MIB, 90 * MIB]);
    assert_eq!(ledger.entries()[0].given_bytes, 90 * MIB);
    assert_eq!(balloon.do_resize(&mut qemu, 100 * MIB).unwrap(), 100 * MIB);
    assert!(ledger.entries().is_empty());
}

#[test]
fn a_guest_gets_its_whole_back_to_the_byte() {
    let (_tree, mut qemu, ..) = balloon(0, 0);
    let whole = 100 * MIB + 4096;
    let mut rounded = |to: u64| ResizeDevice::Balloon.rounded(&mut qemu, to, whole).unwrap();
    assert_eq!([u64::MAX, whole, whole - 1, 5, 0].map(&mut rounded), [whole, whole, 100 * MIB, MIB, MIB]);
}

#[test]
fn an_old_word_is_not_taken_twice() {
    let (_tree, mut qemu, mut balloon, _ledger) = balloon(0, 90 * MIB);
    qemu.0.lock().unwrap().age = 5;
    assert_eq!(balloon.do_resize(&mut qemu, 60 * MIB).unwrap(), 60 * MIB);
    let (inside, ..) = balloon.statistics(&mut qemu).unwrap();
    assert_eq!(inside.available_bytes, Some(50 * MIB), "40 MiB were taken since it said 90");
    // 50 MiB are left, whatever it goes on saying.
    assert_eq!(balloon.do_resize(&mut qemu, MIB).unwrap(), 10 * MIB + reserve(100 * MIB));
    let mut takes = RecentTakes::default();
    (0..3).for_each(|second| takes.record_take(Duration::from_secs(10 + second), 1 << second));
    assert_eq!([9, 11, 12, 13].map(|second| takes.since(Duration::from_secs(second))), [7, 6, 4, 0]);
}

#[test]
fn a_take_right_after_a_word_counts_however_the_clocks_stand_to_each_other() {
    let millis = Duration::from_millis;
    for offset in (0..1000).step_by(7) {
        let day = |steady: Duration| steady + millis(1_000_000 + offset);
        for (word, take, look) in [(3990, 3991, 4100), (3990, 4010, 5020), (3010, 3020, 3990), (3000, 3000, 6000)] {
            let (word, take, look) = (millis(word), millis(take), millis(look));
            let told_at = day(word).as_secs();
            let earliest = earliest(look, day(look), told_at);
            assert!(earliest <= word && word - earliest < millis(1000), "{offset}: {earliest:?}");
            let mut takes = RecentTakes::default();
            takes.record_take(take, 7);
            assert_eq!(takes.since(earliest), 7, "{offset}: {word:?} {take:?} {look:?}");
        }
    }
}

#[test]
fn what_a_guest_gives_after_its_monitor_fell_silent_is_not_taken_twice() {
    let (_tree, mut qemu, mut balloon, _ledger) = balloon(0, 90 * MIB);
    qemu.0.lock().unwrap().silent_after = Some(1);
    balloon.do_resize(&mut qemu, 60 * MIB).unwrap_err();
    qemu.0.lock().unwrap().silent_after = None;
    let (inside, ..) = balloon.statistics(&mut qemu).unwrap();
    assert_eq!(inside.available_bytes, Some(50 * MIB), "the balloon has its target");
    // Said again and again it counts once, and the next resize ends it.
    assert_eq!(balloon.takes.since(Duration::MAX), 40 * MIB, "it may go on");
    assert_eq!(balloon.do_resize(&mut qemu, 80 * MIB).unwrap(), 80 * MIB);
    assert_eq!((balloon.takes.since(Duration::MAX), balloon.takes.since(Duration::ZERO)), (0, 40 * MIB));
}

#[test]
fn a_take_of_which_nothing_came_is_taken_back_and_counts_no_more_once_it_is_old() {
    let silent = || {
        let (tree, mut qemu, mut balloon, ledger) = balloon(90 * MIB, 90 * MIB);
        qemu.0.lock().unwrap().silent_after = Some(1);
        balloon.do_resize(&mut qemu, 60 * MIB).unwrap_err();
        qemu.0.lock().unwrap().silent_after = None;
        (tree, qemu, balloon, ledger)
    };
    let (_tree, mut qemu, mut balloon, _ledger) = silent();
    assert_eq!(balloon.do_resize(&mut qemu, 90 * MIB).unwrap(), 90 * MIB);
    assert_eq!(qemu.0.lock().unwrap().targets, [60 * MIB, 90 * MIB], "where it is, so that it does not go on");
    assert_eq!(balloon.takes.since(Duration::ZERO), 10 * MIB);

    let (_tree, mut qemu, mut balloon, _ledger) = silent();
    let then = balloon.takes.under_way.unwrap().begun;
    let see =
        |balloon: &mut QemuActuator, seconds, bytes| balloon.takes.see(then + Duration::from_secs(seconds), bytes);
    see(&mut balloon, STALE_SECONDS, 90 * MIB);
    assert_eq!(balloon.takes.since(Duration::MAX), 40 * MIB, "it may still go on");
    see(&mut balloon, STALE_SECONDS + 1, 90 * MIB);
    let counted =
        |balloon: &QemuActuator| (balloon.takes.since(Duration::MAX), balloon.takes.since(Duration::ZERO));
    assert_eq!(counted(&balloon), (0, 10 * MIB));
    see(&mut balloon, STALE_SECONDS + 2, 88 * MIB);
    assert_eq!(counted(&balloon).1, 12 * MIB, "a driver that wakes late is counted as far as it comes");
    assert_eq!(balloon.do_resize(&mut qemu, 90 * MIB).unwrap(), 90 * MIB);
    assert_eq!(qemu.0.lock().unwrap().targets, [60 * MIB, 90 * MIB], "and told to stop by the next resize");
}

#[test]
fn no_guest_is_squeezed_below_its_reserve() {
    let (_tree, mut qemu, mut balloon, _ledger) = balloon(0, 30 * MIB);
    let reserve = reserve(100 * MIB);
    assert_eq!(balloon.do_resize(&mut qemu, MIB).unwrap(), 70 * MIB + reserve);
    qemu.0.lock().unwrap().available = 0;
    assert_eq!(balloon.do_resize(&mut qemu, MIB).unwrap(), 70 * MIB + reserve, "nothing can be spared");
}

#[test]
fn old_and_missing_statistics_tell_nothing() {
    let told = |last: u64, stats: Value| json!({ "last-update": last, "stats": stats });
    assert_eq!(read_statistics(&told(0, json!({})), 100), None);
    assert_eq!(read_statistics(&told(50, json!({})), 100), None);
    assert_eq!(read_statistics(&told(4000, json!({})), 100), None, "the clock was set back");
    assert_eq!(read_statistics(&json!("what?"), 100), None);
    let stats = json!({ "stat-free-memory": 5, "stat-available-memory": u64::MAX, "stat-swap-in": -1 });
    let (inside, counts, at) = read_statistics(&told(99, stats), 100).unwrap();
    assert_eq!(at, 99);
    assert_eq!((inside.free_bytes, inside.available_bytes, counts.swap_in_bytes), (Some(5), None, None));
}

#[test]
fn faults_are_counted_over_the_time_between_two_tellings_of_the_guest() {
    let (_tree, mut qemu, mut balloon, _ledger) = balloon(0, 90 * MIB);
    let mut told = |age: u64, major_faults: u64| {
        (qemu.0.lock().unwrap().age, qemu.0.lock().unwrap().major_faults) = (age, major_faults);
        balloon.inside(&mut qemu).major_faults_per_second
    };
    // The looks are milliseconds apart; the guest's tellings ten seconds, and what passes between the two lines.
    assert_eq!(told(12, 1000), None);
    let rate = told(2, 1500).unwrap();
    assert!((25.0..=50.0).contains(&rate), "500 faults in ten seconds: {rate}");
}

#[test]
fn what_a_guest_will_have_filled_before_it_tells_again_is_not_taken() {
    // Statistics of 12 s ago, and those of 4 s ago: 16 MiB in 8 s.
    let told = |qemu: &FakeQemu, age: u64, total: u64, available: u64| {
        let mut qemu = qemu.0.lock().unwrap();
        (qemu.age, qemu.total, qemu.available) = (age, Some(total), available);
    };
    let fill = |gives_way: bool| {
        let (tree, mut qemu, mut balloon, ledger) = balloon(0, 0);
        balloon.gives_way = gives_way;
        told(&qemu, 12, 95 * MIB, 80 * MIB);
        assert_eq!(balloon.statistics(&mut qemu).unwrap().0.available_bytes, Some(80 * MIB));
        told(&qemu, 4, 95 * MIB, 64 * MIB);
        (tree, qemu, balloon, ledger)
    };
    let (_tree, mut qemu, mut balloon, _ledger) = fill(false);
    let available = balloon.statistics(&mut qemu).unwrap().0.available_bytes.unwrap();
    // A second may pass between two lines, so the two statistics may be 7 to 9 s apart.
    let filled = |seconds: u64| 16 * MIB / seconds * (4 + POLLING);
    assert!((64 * MIB - filled(7)..=64 * MIB - filled(9)).contains(&available), "{available}");
    let left = balloon.do_resize(&mut qemu, MIB).unwrap();
    assert!((36 * MIB + filled(9)..=36 * MIB + filled(7)).contains(&(left - reserve(100 * MIB))), "{left}");

    let (_tree, mut qemu, mut balloon, _ledger) = fill(true);
    let available = balloon.statistics(&mut qemu).unwrap().0.available_bytes;
    assert_eq!(available, Some(64 * MIB), "the balloon of such a guest is part of what it uses");
}

#[test]
fn a_take_is_not_filling() {
    let (_tree, mut qemu, mut balloon, _ledger) = balloon(0, 0);
    for (age, total) in [(6, 95), (4, 75), (2, 55)] {
        let mut inner = qemu.0.lock().unwrap();
        (inner.age, inner.total, inner.available) = (age, Some(total * MIB), (total - 15) * MIB);
        drop(inner);
        let (inside, ..) = balloon.statistics(&mut qemu).unwrap();
        assert_eq!(inside.available_bytes, Some((total - 15) * MIB));
    }
}

#[test]
fn a_clock_that_is_set_hides_no_memory_of_a_guest() {
    for step in [-86_400, -3600, -8, 8, 3600] {
        STEP.set(0);
        let (_tree, mut qemu, mut balloon, _ledger) = balloon(0, 90 * MIB);
        assert_eq!(balloon.do_resize(&mut qemu, 60 * MIB).unwrap(), 60 * MIB);
        STEP.set(step);
        // Some seconds later the guest says anew what it has.
        balloon.takes.ended.iter_mut().for_each(|(at, _)| *at -= Duration::from_secs(5));
        qemu.0.lock().unwrap().available = 50 * MIB;
        let (inside, ..) = balloon.statistics(&mut qemu).unwrap();
        assert_eq!(inside.available_bytes, Some(50 * MIB), "the clock was set by {step} s");
    }
}

/// A monitor that records the properties that it is told to set.
struct RecordingMonitor(Vec<String>, u64);

impl QmpMonitor for RecordingMonitor {
    fn execute(&mut self, command: &str, arguments: Value, _patience: Duration) -> Result<Value, MonitorError> {
        if command == "qom-get" {
            return Ok(json!(self.1));
        }
        self.0.push(format!("{command} {}", arguments["property"].as_str().unwrap()));
        Ok(json!({}))
    }
}

#[test]
fn statistics_are_switched_on_once() {
    for (interval, told) in [(0, 1), (2, 0)] {
        let mut monitor = RecordingMonitor(Vec::new(), interval);
        assert_eq!(switch_statistics_on(&mut monitor, "/machine/balloon"), told == 1);
        assert_eq!(monitor.0, vec!["qom-set guest-stats-polling-interval"; told]);
    }
}

#[test]
fn a_ledger_to_read_says_so_and_no_guest_is_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let state = ksmith_host::act::StateDir::at(directory.path());
    assert!(MemoryLedger::open_to_read(&state).unwrap().is_to_read());
    assert!(!MemoryLedger::open(&state).unwrap().is_to_read());
}

/// A monitor that gives these answers one after the other, whatever is asked, and then none.
#[derive(Debug)]
struct LiarQemu {
    answers: std::vec::IntoIter<Option<Value>>,
    /// The most that it has said the guest has.
    most: u64,
    targets: Vec<u64>,
}

impl QmpMonitor for LiarQemu {
    fn execute(&mut self, command: &str, arguments: Value, _patience: Duration) -> Result<Value, MonitorError> {
        if command == "balloon" {
            self.targets.push(arguments["value"].as_u64().unwrap());
        }
        let answer = self.answers.next().flatten().ok_or(MonitorError::NoMonitor)?;
        self.most = self.most.max(answer["actual"].as_u64().unwrap_or(0));
        Ok(answer)
    }
}

/// A truthful QEMU of which one answer, with this number, is lost or makes no sense. The command is carried out.
struct OddOnce {
    qemu: FakeQemu,
    left: usize,
    odd: Option<Value>,
}

impl QmpMonitor for OddOnce {
    fn execute(&mut self, command: &str, arguments: Value, patience: Duration) -> Result<Value, MonitorError> {
        let answer = self.qemu.execute(command, arguments, patience);
        let is_odd = self.left == 0;
        self.left = self.left.wrapping_sub(1);
        if is_odd { self.odd.clone().ok_or(MonitorError::NoMonitor) } else { answer }
    }
}

#[test]
fn after_an_odd_answer_at_any_step_of_a_take_the_guest_gets_its_whole_back() {
    let odd =
        [json!(null), json!({ "actual": -1 }), json!({ "actual": "all" }), json!([[]]), json!({ "stats": 7 })];
    for odd in odd.map(Some).into_iter().chain([None]) {
        for left in 0..4 {
            let (_tree, qemu, mut balloon, ledger) = balloon(0, 90 * MIB);
            let mut monitor = OddOnce { qemu: qemu.clone(), left, odd: odd.clone() };
            let taken = balloon.do_resize(&mut monitor, 60 * MIB);
            let actual = qemu.0.lock().unwrap().actual;
            let noted = ledger.entries().first().map_or(100 * MIB, |entry| entry.given_bytes);
            let when = format!("{odd:?} as answer {left}: {taken:?}");
            assert!(noted <= actual, "the ledger says {noted} of {actual}: {when}");
            assert_eq!(balloon.do_resize(&mut monitor, 100 * MIB).unwrap(), 100 * MIB, "{when}");
            assert_eq!((qemu.0.lock().unwrap().actual, ledger.entries().len()), (100 * MIB, 0), "{when}");
        }
    }
}

mod lies {
    use proptest::prelude::*;

    use super::*;

    fn any_bytes() -> impl Strategy<Value = u64> {
        prop_oneof![0..=200 * MIB, Just(100 * MIB), Just(0), Just(u64::MAX), any::<u64>()]
    }

    fn any_answer() -> impl Strategy<Value = Option<Value>> {
        let now = clock().as_secs();
        let time = prop_oneof![Just(now), Just(0), any::<u64>()];
        let statistics =
            (any_bytes(), any_bytes(), any_bytes(), time).prop_map(|(available, total, faults, at)| {
                json!({ "last-update": at, "stats": {
                "stat-available-memory": available, "stat-total-memory": total, "stat-major-faults": faults } })
            });
        prop_oneof![
            4 => any_bytes().prop_map(|bytes| Some(json!({ "actual": bytes }))),
            3 => statistics.prop_map(Some),
            1 => Just(Some(json!({ "actual": -1 }))),
            1 => Just(Some(json!([[]]))),
            1 => Just(Some(json!("\u{1b}[2J"))),
            1 => Just(None),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn whatever_a_balloon_says_its_whole_stays_as_noted_and_no_target_is_beyond_what_it_had(
            answers in prop::collection::vec(any_answer(), 0..7),
            to in any_bytes(),
        ) {
            let (_tree, _, mut balloon, ledger) = balloon(0, 0);
            let mut liar = LiarQemu { answers: answers.into_iter(), most: 100 * MIB, targets: Vec::new() };
            let _ = balloon.do_resize(&mut liar, to);
            prop_assert!(liar.targets.iter().all(|target| *target <= liar.most), "{:?}", liar);
            for entry in ledger.entries() {
                prop_assert!(entry.whole_bytes == 100 * MIB && entry.given_bytes <= entry.whole_bytes, "{:?}", entry);
            }
        }
    }
}
