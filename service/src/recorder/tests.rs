use std::fs;
use std::path::Path;

use ksmith_core::controller::ApplyOutcome;
use ksmith_core::decide::{DecisionReason, PolicyDecision};
use ksmith_core::fold::FoldNote;
use ksmith_core::knobs::{Knob, KnobChange, KnobSettings};
use ksmith_record::{
    FOLD_POLICY, HistoryReader, HistoryReport, HistoryTier, PRUNE_POLICY, ReportQuery, ReportResolution,
};
use tempfile::TempDir;

use super::*;
use crate::control::{ControlReply, ControlRequest};
use crate::testing::{BEGIN, DaemonScene};

const FILE: &str = "var/lib/ksmith/history/history.db";

fn history(root: &Path) -> HistoryReport {
    let query = ReportQuery {
        since: BEGIN - 1000,
        until: i64::MAX,
        guest: None,
        columns: Vec::new(),
        resolution: ReportResolution::Tier(HistoryTier::Sample),
    };
    HistoryReader::open(&root.join(FILE)).unwrap().read_report(&query).unwrap()
}

struct RecorderRig {
    directory: TempDir,
    recorder: Recorder,
}

fn rig() -> RecorderRig {
    rig_in(tempfile::tempdir().unwrap())
}

fn rig_in(directory: TempDir) -> RecorderRig {
    let root = Root::at(directory.path());
    let config = HistoryConfig::default();
    let recorder = Recorder::start(&root, &config, GuestRules::default(), |_| Vec::new(), BEGIN).unwrap();
    recorder.flush();
    RecorderRig { directory, recorder }
}

fn change(knob: Knob, old: u64, new: u64) -> KnobChange {
    KnobChange { knob, old, new }
}

fn turn(at: u64, state: &'static str) -> TickOutcome {
    let reason = DecisionReason::new(state, "a sentence").with_detail("1 +\n1");
    TickOutcome {
        sample: Sample { at: Duration::from_secs(at), page_size: 4096, ..Sample::default() },
        decision: PolicyDecision::new(KnobSettings::none(), reason, Duration::from_secs(1)),
        applied: ApplyOutcome::default(),
        unkept: Vec::new(),
        foreign: Vec::new(),
    }
}

impl RecorderRig {
    fn record_tick(&mut self, tick: &TickOutcome) {
        let at = tick.sample.at;
        let day_clock = BEGIN + i64::try_from(at.as_millis()).unwrap();
        self.recorder.record_turn(&RecordedTurn {
            tick,
            notices: &[],
            folds: &[],
            prunes: &[],
            policy: "profit",
            ksmd_cpu_percent: Some(1.5),
            day_clock,
            uptime: at,
        });
    }

    fn history(&self) -> HistoryReport {
        history(self.directory.path())
    }
}

fn states(report: &HistoryReport) -> Vec<&str> {
    report.decisions.iter().map(|decision| decision.state.as_str()).collect()
}

fn kinds(report: &HistoryReport) -> Vec<&str> {
    report.events.iter().map(|event| event.kind.as_str()).collect()
}

#[test]
fn changes_of_state_are_decisions_and_the_pace_of_ksmd_is_none() {
    let mut rig = rig();
    let mut slower = turn(3, "burst");
    slower.applied.changes = vec![change(Knob::PagesToScan, 100, 50)];
    let mut smart = turn(4, "burst");
    smart.applied.changes = vec![change(Knob::SmartScan, 1, 0), change(Knob::PagesToScan, 50, 70)];
    for tick in [turn(1, "parked"), turn(2, "burst"), slower, smart, turn(5, "burst"), turn(6, "parked")] {
        rig.record_tick(&tick);
    }
    rig.recorder.flush();
    let report = rig.history();
    assert_eq!(states(&report), ["parked", "burst", "burst", "parked"]);
    assert_eq!(report.decisions[2].settings, "smart_scan 1 -> 0, pages_to_scan 50 -> 70");
    assert_eq!(report.decisions[2].reason_detail.as_deref(), Some("1 +\\n1"), "one line");
    assert_eq!((report.rows.len(), rig.recorder.status().lost), (6, 0));
    assert_eq!(report.rows[0][0].as_f64(), Some((BEGIN + 1000) as f64 / 1000.0));
}

#[test]
fn of_decisions_without_end_some_are_recorded_and_the_others_counted() {
    let mut rig = rig();
    // A guest that may merge at each second look.
    for at in 1..=2000 {
        rig.record_tick(&turn(at, if at % 2 == 0 { "guarded" } else { "burst" }));
        if at % 10 == 0 {
            rig.recorder.flush();
        }
    }
    rig.recorder.flush();
    let decisions = rig.history().decisions;
    assert!((120..=320).contains(&decisions.len()), "{}", decisions.len());
    let left_out = |reason: &str| -> usize {
        reason.split_once(" (").map_or(0, |(_, note)| note.split(' ').next().unwrap().parse().unwrap())
    };
    let all = decisions.iter().map(|decision| 1 + left_out(&decision.reason)).sum::<usize>();
    assert!((1980..=2000).contains(&all), "each is recorded or counted, but for the last few: {all}");
}

#[test]
fn decisions_to_fold_and_prune_are_recorded_beside_those_of_the_policy() {
    let mut rig = rig();
    rig.record_tick(&turn(1, "parked"));
    let tick = turn(2, "parked");
    let fold = FoldNote { state: "fold", text: "fold web1: 34 % of sampled\nhuge pages hold zeros".to_owned() };
    let prune = DecisionReason::new("off", "web2 (pid 2): merging off: it cost 1 MiB");
    rig.recorder.record_turn(&RecordedTurn {
        tick: &tick,
        notices: &[],
        folds: &[fold],
        prunes: &[prune],
        policy: "profit",
        ksmd_cpu_percent: None,
        day_clock: BEGIN + 2000,
        uptime: Duration::ZERO,
    });
    rig.recorder.flush();
    let report = rig.history();
    assert_eq!(states(&report), ["parked", "fold", "off"]);
    assert_eq!([1, 2].map(|at| &report.decisions[at].policy), [FOLD_POLICY, PRUNE_POLICY]);
    assert!(
        report.decisions[1].reason.starts_with("fold web1: 34 % of sampled")
            && !report.decisions[1].reason.contains('\n')
    );
}

#[test]
fn turns_that_follow_closely_are_one_moment_and_lose_no_decision() {
    let mut rig = rig();
    for (milliseconds, state) in [(0, "a"), (100, "b"), (200, "a"), (1000, "b"), (1100, "c")] {
        let mut tick = turn(0, state);
        tick.sample.at = Duration::from_millis(10_000 + milliseconds);
        rig.record_tick(&tick);
    }
    rig.record_tick(&turn(20, "c"));
    rig.recorder.flush();
    let report = rig.history();
    assert_eq!(states(&report), ["a", "b", "a", "b", "c"]);
    assert_eq!(report.rows.len(), 3);
}

#[test]
fn other_programs_faults_and_a_clock_that_is_set_are_events() {
    let mut rig = rig();
    for at in 1..30 {
        let mut tick = turn(at, "parked");
        tick.foreign = vec![change(Knob::PagesToScan, at, 100)];
        tick.applied.errors = vec!["run: permission denied".to_owned()];
        rig.record_tick(&tick);
        rig.recorder.flush();
    }
    let tick = turn(31, "parked");
    let day_clock = BEGIN - 86_400_000;
    rig.recorder.record_turn(&RecordedTurn {
        tick: &tick,
        notices: &[],
        folds: &[],
        prunes: &[],
        policy: "profit",
        ksmd_cpu_percent: None,
        day_clock,
        uptime: Duration::ZERO,
    });
    rig.recorder.flush();
    let query = ReportQuery {
        since: 0,
        until: i64::MAX,
        guest: None,
        columns: Vec::new(),
        resolution: ReportResolution::Rows(9),
    };
    let report = HistoryReader::open(&rig.directory.path().join(FILE)).unwrap().read_report(&query).unwrap();
    let mut found = kinds(&report);
    found.sort_unstable();
    assert_eq!(found, ["clock_set", "daemon_started", "problem", "setting_changed_by_others"]);
    assert!(
        report.events.iter().any(|event| event.text == "the wall clock was set by -86431 s"),
        "{:?}",
        report.events
    );
}

#[test]
fn a_locked_file_delays_no_turn_and_what_was_lost_is_said() {
    let mut rig = rig();
    let file = rig.directory.path().join(FILE);
    let other = rusqlite::Connection::open(&file).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // The thread waits for the lock again and again. Turns go on, whatever their number.
    let mut at = 0;
    while rig.recorder.status().lost == 0 || rig.recorder.status().problem.is_none() {
        at += 1;
        rig.record_tick(&turn(at, "parked"));
        // A day of turns is far more than it takes.
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.record_tick(&turn(at + 1, "burst"));
    let problem = rig.recorder.status().problem.unwrap();
    assert!(problem.contains("history.db") && problem.contains("locked"), "{problem}");
    other.execute_batch("ROLLBACK").unwrap();
    while rig.recorder.status().problem.is_some() {
        at += 2;
        rig.record_tick(&turn(at, "burst"));
        rig.recorder.flush();
    }
    rig.record_tick(&turn(at + 9, "burst"));
    rig.recorder.flush();
    let report = rig.history();
    assert_eq!(states(&report), ["parked", "burst"], "{:?}", report.decisions);
    assert!(!report.rows.is_empty());
    let gaps: Vec<_> = report.events.iter().filter(|event| event.kind == "gap").collect();
    let told = gaps.iter().map(|event| event.text.split(' ').next().unwrap().parse::<u64>().unwrap()).sum::<u64>();
    assert_eq!(told, rig.recorder.status().lost, "{gaps:?}");
}

#[test]
fn a_file_that_becomes_corrupt_is_set_aside_and_begun_anew() {
    let mut rig = rig();
    rig.record_tick(&turn(1, "parked"));
    rig.recorder.flush();
    let file = rig.directory.path().join(FILE);
    // The log would hide what the file says.
    rusqlite::Connection::open(&file).unwrap().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let length = fs::metadata(&file).unwrap().len();
    fs::write(&file, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
    let mut at = 1;
    while !file.with_file_name("history.db.damaged").exists() || rig.recorder.status().problem.is_some() {
        at += 1;
        rig.record_tick(&turn(at, "burst"));
        rig.recorder.flush();
        assert!(at < 1000, "{:?}", rig.recorder.status());
    }
    assert!(!rig.history().rows.is_empty());
}

#[test]
fn a_daemon_records_from_its_start_to_its_end_and_says_so() {
    let mut scene = DaemonScene::new("");
    scene.at(30, |world| world.machine.write(Knob::SmartScan, 0).unwrap());
    let (answers, _waiting) = scene.ask_at(40, ControlRequest::Status);
    scene.at(60, |_| {});
    scene.run().unwrap();
    let report = history(scene.root());
    let kinds = kinds(&report);
    assert_eq!((kinds.first(), kinds.last()), (Some(&"daemon_started"), Some(&"daemon_stopped")), "{kinds:?}");
    assert!(!report.decisions.is_empty());
    assert!(
        report.events.iter().all(|event| (BEGIN as f64 / 1e3..=BEGIN as f64 / 1e3 + 61.0).contains(&event.time))
    );
    let Ok(ControlReply::Status(status)) = answers.recv() else { panic!("no status") };
    let history = status.history.unwrap();
    assert_eq!(history.problem, None);
    assert!(history.path.ends_with(FILE), "{}", history.path);
}

#[test]
fn without_a_place_for_the_file_the_daemon_takes_the_same_turns() {
    let turns = |prepare: fn(&Path)| {
        let mut scene = DaemonScene::new("");
        prepare(scene.root());
        let (answers, _waiting) = scene.ask_at(40, ControlRequest::Status);
        scene.at(60, |_| {});
        let outcome = scene.run().unwrap();
        let Ok(ControlReply::Status(status)) = answers.recv() else { panic!("no status") };
        (scene.world().turns.clone(), status, outcome.restored)
    };
    let (usual, _, restored) = turns(|_| {});
    // A file where the directory is to be.
    let (turns, status, restored_too) = turns(|root| {
        fs::create_dir_all(root.join("var/lib")).unwrap();
        fs::write(root.join("var/lib/ksmith"), "").unwrap();
    });
    assert_eq!((turns, restored_too), (usual, restored));
    // The thread may not have tried yet.
    if let Some(problem) = status.history.clone().unwrap().problem {
        assert!(status.errors().contains(&format!("the history is not recorded: {problem}")));
    }
}

#[test]
fn a_place_where_no_file_can_be_is_a_problem_that_the_status_names() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("var/lib")).unwrap();
    fs::write(directory.path().join("var/lib/ksmith"), "").unwrap();
    let mut rig = rig_in(directory);
    rig.record_tick(&turn(1, "parked"));
    rig.recorder.flush();
    let status = rig.recorder.status();
    assert!(status.problem.is_some_and(|problem| problem.contains("var/lib/ksmith")));
    assert_eq!((status.recorded, status.lost), (0, 1));
}

#[test]
fn the_bounds_that_no_setting_changes_are_those_of_the_store() {
    assert_eq!(HistoryConfig::default().bounds(), ksmith_record::HistoryBounds::default());
}

#[test]
fn a_daemon_that_is_told_so_records_nothing() {
    let mut scene = DaemonScene::new("[history]\nenabled = false");
    scene.at(10, |_| {});
    scene.run().unwrap();
    assert!(!scene.root().join("var").exists());
}

#[test]
fn wrong_settings_are_refused() {
    for (text, why) in [
        ("samples_hours = 1", "2 hours"),
        ("minutes_days = 0", "a day"),
        ("hours_years = 0", "over 0"),
        ("max_mib = 3", "4 MiB"),
        ("guest_seconds = 0", "over 0"),
        ("path = \"history.db\"", "absolute"),
        ("speed = 1", "there is no key \"speed\" in [history]"),
    ] {
        let read = crate::config::Config::parse(Path::new("ksmith.toml"), &format!("[history]\n{text}"));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
