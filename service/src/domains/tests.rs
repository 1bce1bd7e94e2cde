use ksmith_core::decide::DecisionReason;
use ksmith_core::decide::domains::DomainMode;
use ksmith_core::kernel::KsmStat;
use ksmith_core::knobs::{Knob, KnobSettings};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, ProcessSample};
use ksmith_host::guests::{GuestTracker, LibvirtUri};
use ksmith_host::undo::StateDir;
use tempfile::TempDir;

use super::*;
use crate::testing::ThreadLog;

/// A tree with two virtual machines: `web` (PID 10) and `db` (PID 11).
fn tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    for (pid, name) in [(10, "web"), (11, "db")] {
        let directory = tree.path().join(format!("proc/{pid}"));
        std::fs::create_dir_all(&directory).unwrap();
        let stat = format!("{pid} (qemu-system-x86) S 1 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 10 0\n");
        std::fs::write(directory.join("stat"), stat).unwrap();
        std::fs::write(directory.join("cmdline"), format!("qemu-system-x86_64\0-name\0{name}\0")).unwrap();
        std::fs::write(directory.join("cgroup"), "0::/\n").unwrap();
        std::fs::write(directory.join("status"), "Uid:\t0\t0\t0\t0\n").unwrap();
    }
    tree
}

fn sample(second: u64, processes: &[(u32, &str)]) -> Sample {
    let process = |&(pid, name): &(u32, &str)| ProcessSample {
        ksm: KsmStat { mergeable: Some(true), ..KsmStat::default() },
        ..ProcessSample::new(ProcessId { pid, start_ticks: 7 }, name.into(), true)
    };
    Sample {
        at: Duration::from_secs(second),
        page_size: 4096,
        processes: processes.iter().map(process).collect(),
        ..Sample::default()
    }
}

/// A guard that admits the domain of `web`.
fn guard(root: &Root) -> DomainGuard {
    let rule = |name: &str| toml::from_str(&format!("domain = {name:?}\nname = {name:?}")).unwrap();
    let config = DomainsConfig {
        mode: DomainMode::One,
        admit: Some("web".to_owned()),
        rule: vec![rule("web"), rule("db")],
        ..DomainsConfig::default()
    };
    DomainGuard::new(root.clone(), config, off_list(root))
}

fn off_list(root: &Root) -> Option<OffList> {
    OffList::open(&StateDir::from_root(root)).ok()
}

/// Returns true if the guard lets ksmd run.
fn may_run(guard: &mut DomainGuard, sample: &Sample, known: &GuestSnapshot) -> bool {
    let knobs = KnobSettings::none().with(Knob::Run, 1);
    let decision = PolicyDecision::new(knobs, DecisionReason::new("burst", String::new()), Duration::from_secs(60));
    let decision = guard.guard(sample, known, decision);
    let runs = decision.knobs.get(Knob::Run) == Some(1);
    assert_eq!(runs, guard.parked().is_none());
    assert!(runs || decision.check_after <= SOON, "a parked ksmd is looked at soon");
    runs
}

#[test]
fn a_guest_that_can_not_be_noted_is_not_switched_off() {
    let tree = tree();
    let root = Root::at(tree.path());
    let directory = StateDir::from_root(&root);
    directory.make().unwrap();
    std::fs::create_dir(directory.path().join("undo.json.new")).unwrap();
    let list = OffList::open(&directory).unwrap();
    let both = sample(1, &[(10, "web"), (11, "db")]);
    let known = GuestTracker::new(root.clone(), LibvirtUri::default()).snapshot(&both);
    // Nor without the list, if it could not be read at the daemon's start.
    for off in [Some(list), None] {
        let mut guard = DomainGuard { off, ..guard(&root) };
        let log = ThreadLog::default();
        log.gather(|| assert!(!may_run(&mut guard, &both, &known)));
        let said = "db is not switched off, because that could not be recorded";
        assert!(log.text().contains(said), "{}", log.text());
    }
}

#[test]
fn a_process_that_the_snapshot_does_not_have_keeps_ksmd_parked() {
    let tree = tree();
    let root = Root::at(tree.path());
    let (mut guard, mut guests) = (guard(&root), GuestTracker::new(root.clone(), LibvirtUri::default()));
    let web = sample(1, &[(10, "web")]);
    assert!(!may_run(&mut guard, &web, &GuestSnapshot::default()), "the registry has not looked yet");
    assert_eq!(guard.parked(), Some("web (pid 10) is not known yet"));
    let known = guests.snapshot(&web);
    assert!(may_run(&mut guard, &web, &known));

    let both = sample(2, &[(10, "web"), (11, "db")]);
    assert!(!may_run(&mut guard, &both, &known), "a guest has started since");
    assert_eq!(guard.parked(), Some("db (pid 11) is not known yet"));
    let known = guests.snapshot(&both);
    assert!(!may_run(&mut guard, &both, &known));
    let why = guard.parked().unwrap();
    assert!(why.starts_with("db (pid 11) is of domain db (web is admitted)"), "{why}");
}

/// Makes a process one of an ordinary user. Its command line is then the choice of that user.
fn hand_over(tree: &TempDir, pid: u32) {
    std::fs::write(tree.path().join(format!("proc/{pid}/status")), "Uid:\t1000\t1000\t1000\t1000\n").unwrap();
}

#[test]
fn a_process_that_unmarks_its_memory_between_ksmds_visits_keeps_ksmd_parked() {
    let tree = tree();
    hand_over(&tree, 11);
    let root = Root::at(tree.path());
    let sample_of = |second, figures: KsmStat| {
        let mut sample = sample(second, &[(10, "web"), (11, "db")]);
        sample.processes[1].ksm = KsmStat { mergeable: Some(false), ..figures };
        sample
    };
    let (mut guard, mut guests) = (guard(&root), GuestTracker::new(root.clone(), LibvirtUri::default()));
    let none = sample_of(1, KsmStat { rmap_items: Some(0), merging_pages: Some(0), ..KsmStat::default() });
    let known = guests.snapshot(&none);
    assert!(may_run(&mut guard, &none, &known), "it never was mergeable");
    let in_trees = [
        KsmStat { rmap_items: Some(3), ..KsmStat::default() },
        KsmStat { rmap_items: Some(0), merging_pages: Some(2), zero_pages: Some(0), ..KsmStat::default() },
    ];
    for (second, figures) in (2..).zip(in_trees) {
        let sample = sample_of(second, figures);
        let known = guests.snapshot(&sample);
        assert!(!may_run(&mut guard, &sample, &known), "ksmd knows pages of it");
        let why = guard.parked().unwrap();
        assert!(why.starts_with("db [1000] (pid 11) belongs to no domain"), "{why}");
        assert!(why.contains("`ksmith unmerge`"), "{why}");
    }
}

#[test]
fn what_ksmd_knows_of_a_verified_guest_that_is_off_keeps_nothing_parked() {
    let tree = tree();
    let root = Root::at(tree.path());
    let (mut guard, mut guests) = (guard(&root), GuestTracker::new(root.clone(), LibvirtUri::default()));
    let mut both = sample(1, &[(10, "web"), (11, "db")]);
    both.processes[1].ksm = KsmStat { mergeable: Some(false), rmap_items: Some(3), ..KsmStat::default() };
    let known = guests.snapshot(&both);
    assert!(may_run(&mut guard, &both, &known));
}

/// As a monitor that was taken over does it.
#[test]
fn a_verified_guest_that_is_off_and_marks_memory_for_ksmds_visits_alone_keeps_ksmd_parked() {
    for seen in [[(0, 5), (2, 5)], [(9, 5), (9, 8)]] {
        let tree = tree();
        let root = Root::at(tree.path());
        let (mut guard, mut guests) = (guard(&root), GuestTracker::new(root.clone(), LibvirtUri::default()));
        let mut look = |second, (pages, passes): (u64, u64)| {
            let mut both = sample(second, &[(10, "web"), (11, "db")]);
            both.ksm.full_scans = Reading::Value(passes);
            both.processes[1].ksm =
                KsmStat { mergeable: Some(false), rmap_items: Some(pages), ..KsmStat::default() };
            let known = guests.snapshot(&both);
            may_run(&mut guard, &both, &known)
        };
        assert!(look(1, seen[0]), "ksmd forgets it by and by");
        assert!(!look(2, seen[1]) && !look(3, seen[1]), "{seen:?}");
        assert!(look(4, (0, seen[1].1)), "`ksmith unmerge`");
        assert!(!look(5, (1, 9)));
        let why = guard.parked().unwrap();
        assert!(why.starts_with("db (pid 11) is of domain db (web is admitted) and may merge: it is off"), "{why}");
    }
}

#[test]
fn a_process_that_calls_itself_a_guest_of_the_admitted_domain_keeps_ksmd_parked() {
    let tree = tree();
    hand_over(&tree, 10);
    let root = Root::at(tree.path());
    let mut guard = guard(&root);
    let web = sample(1, &[(10, "web")]);
    let known = GuestTracker::new(root.clone(), LibvirtUri::default()).snapshot(&web);
    assert!(!may_run(&mut guard, &web, &known));
    let why = guard.parked().unwrap();
    assert!(why.starts_with("web [1000] (pid 10) belongs to no domain"), "{why}");
}

#[test]
fn what_may_stay_mergeable_is_the_firmware_of_a_verified_guest() {
    for (is_verified, runs) in [(true, true), (false, false)] {
        let tree = tree();
        if !is_verified {
            hand_over(&tree, 11);
        }
        let smaps = "1000-2000 rw-p 00000000 00:00 0 \nVmFlags: rd mg\n";
        std::fs::write(tree.path().join("proc/11/smaps"), smaps).unwrap();
        let root = Root::at(tree.path());
        let rule = toml::from_str("domain = \"web\"\nname = \"web\"").unwrap();
        let config = DomainsConfig {
            mode: DomainMode::One,
            admit: Some("web".to_owned()),
            rule: vec![rule],
            remaining_mergeable_mib: 4,
            ..DomainsConfig::default()
        };
        let mut guard = DomainGuard::new(root.clone(), config, off_list(&root));
        let db = sample(1, &[(11, "db")]);
        let known = GuestTracker::new(root.clone(), LibvirtUri::default()).snapshot(&db);
        // Its own monitor says that it is off.
        guard.domains.adopt(db.processes[0].id.into());
        assert_eq!(may_run(&mut guard, &db, &known), runs, "verified: {is_verified}; {:?}", guard.parked());
        assert!(runs || guard.parked().unwrap().contains("whether that is firmware can't be told"));
    }
}

#[test]
fn where_the_kernel_tells_nothing_the_word_of_a_guest_counts_only_if_it_is_verified() {
    for (is_verified, runs) in [(true, true), (false, false)] {
        let tree = tree();
        if !is_verified {
            hand_over(&tree, 11);
        }
        let root = Root::at(tree.path());
        let mut guard = guard(&root);
        let mut db = sample(1, &[(11, "db")]);
        db.processes[0].ksm.mergeable = None;
        let known = GuestTracker::new(root.clone(), LibvirtUri::default()).snapshot(&db);
        guard.domains.adopt(db.processes[0].id.into());
        assert_eq!(may_run(&mut guard, &db, &known), runs, "verified: {is_verified}; {:?}", guard.parked());
    }
}

#[test]
fn a_process_that_executes_another_program_is_not_taken_for_the_guest_that_it_was() {
    let tree = tree();
    let root = Root::at(tree.path());
    let mut guard = guard(&root);
    let known = GuestTracker::new(root.clone(), LibvirtUri::default()).snapshot(&sample(1, &[(10, "web")]));
    assert!(may_run(&mut guard, &sample(2, &[(10, "web")]), &known));
    assert!(!may_run(&mut guard, &sample(3, &[(10, "other")]), &known));
    assert_eq!(guard.parked(), Some("other (pid 10) is not known yet"));
}

#[test]
fn a_guest_outside_is_switched_at_the_first_look_that_knows_it() {
    let tree = tree();
    let root = Root::at(tree.path());
    let mut guard = guard(&root);
    let db = sample(1, &[(11, "db")]);
    may_run(&mut guard, &db, &GuestSnapshot::default());
    let known = GuestTracker::new(root.clone(), LibvirtUri::default()).snapshot(&db);
    may_run(&mut guard, &db, &known);
    assert!(guard.parked().unwrap().ends_with("is being switched off"), "{:?}", guard.parked());
    // Its QEMU has no monitor, which the next looks tell.
    while !guard.parked().unwrap().contains("could not be switched off") {
        may_run(&mut guard, &db, &known);
    }
    assert!(guard.take_switched().is_empty(), "only a switch that worked is told to the registry");
}
