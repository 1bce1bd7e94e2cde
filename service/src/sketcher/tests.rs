use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ksmith_core::sample::ProcessId;
use ksmith_host::memory::process::OpenProcess;
use ksmith_sketch::{SketchClock, new_secret, read_secret};
use tempfile::TempDir;

use super::worker::WorkPause;
use super::*;
use crate::config::Config;
use crate::control::{ControlReply, ControlRequest};
use crate::testing::DaemonScene;

/// A tree with a secret, and a configuration that spends all of a CPU.
struct SketcherRig {
    tree: TempDir,
    config: SketchConfig,
}

fn rig() -> SketcherRig {
    let tree = tempfile::tempdir().unwrap();
    fs::create_dir_all(tree.path().join("etc/ksmith")).unwrap();
    new_secret(&tree.path().join("etc/ksmith/fleet.key")).unwrap();
    let config = SketchConfig {
        enabled: true,
        host: Some("node-1".to_owned()),
        max_cpu_percent: 100.0,
        again_seconds: 0,
        ..SketchConfig::default()
    };
    SketcherRig { tree, config }
}

/// This very process as a guest: its memory may be read by any user.
fn own_process() -> Guest {
    let own = OpenProcess::open(std::process::id()).unwrap();
    Guest::plain("own", ProcessId { pid: own.pid, start_ticks: own.start_ticks })
}

impl SketcherRig {
    fn root(&self) -> Root {
        Root::at(self.tree.path())
    }

    fn start(&self, guests: Vec<Guest>) -> Sketcher {
        Sketcher::start(&self.root(), &self.config, Terms::default(), move |_| guests.clone()).unwrap()
    }

    fn worker(&self, guests: Vec<Guest>) -> (SketcherWorker, Arc<Mutex<SketchStatus>>) {
        let status = Arc::new(Mutex::new(SketchStatus::default()));
        let worker = SketcherWorker::new(
            &self.root(),
            &self.config,
            Box::new(move |_| guests.clone()),
            Arc::clone(&status),
            Arc::default(),
        );
        (worker, status)
    }

    fn file(&self) -> std::path::PathBuf {
        self.tree.path().join("var/lib/ksmith/sketch/node-1.parquet")
    }
}

/// Waits for the effect of another thread, however long that takes.
fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_file_is_written_after_the_first_round_and_told() {
    let rig = rig();
    let mut sketcher = rig.start(vec![own_process()]);
    sketcher.offer_sample(&Sample::default());
    wait_until(|| sketcher.status().written > 0);
    let status = sketcher.status();
    assert_eq!((status.guests, status.missing, status.problem), (1, 0, None));
    let found = fs::metadata(rig.file()).unwrap();
    assert_eq!((found.len(), found.permissions().mode() & 0o777), (status.bytes, 0o640));
    assert_eq!(&fs::read(rig.file()).unwrap()[..4], b"PAR1");
    assert!(status.path.ends_with("node-1.parquet") && status.memory_bytes > 0 && status.cpu_seconds > 0.0);
}

#[test]
fn a_guest_that_can_not_be_read_is_named_and_the_others_are_written() {
    let rig = rig();
    let gone = Guest { processes: vec![ProcessId { pid: 1, start_ticks: u64::MAX }], ..own_process() };
    let mut sketcher = rig.start(vec![own_process(), gone]);
    sketcher.offer_sample(&Sample::default());
    wait_until(|| sketcher.status().written > 0);
    let status = sketcher.status();
    assert_eq!((status.guests, status.missing, status.problem), (1, 1, None));
    let bytes = fs::read(rig.file()).unwrap();
    assert!(bytes.windows(17).any(|part| part == b"\"why\":\"it has end"), "the reason is in the file");
}

#[test]
fn a_secret_that_others_may_read_stops_the_file_until_it_is_mended() {
    let rig = rig();
    let secret = rig.tree.path().join("etc/ksmith/fleet.key");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let mut sketcher = rig.start(vec![own_process()]);
    sketcher.offer_sample(&Sample::default());
    wait_until(|| sketcher.status().problem.is_some());
    assert!(sketcher.status().problem.unwrap().contains("chmod 600"));
    assert!(!rig.file().exists());
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    sketcher.offer_sample(&Sample { at: PERIOD, ..Sample::default() });
    wait_until(|| sketcher.status().written > 0);
    assert_eq!(sketcher.status().problem, None);
}

/// Returns the id of a key in the metadata of a sketch file: two bytes of Thrift behind its name.
fn metadata(path: &Path, name: &str) -> Option<String> {
    let bytes = fs::read(path).unwrap();
    let at = bytes.windows(name.len()).position(|part| part == name.as_bytes())?;
    Some(String::from_utf8(bytes[at + name.len() + 2..][..32].to_vec()).unwrap())
}

fn work_until_idle(worker: &mut SketcherWorker) {
    while !matches!(worker.turn(), WorkPause::Idle(_)) {}
}

#[test]
fn a_key_that_is_prepared_comes_into_use_without_a_gap() {
    let rig = rig();
    let secret = rig.tree.path().join("etc/ksmith/fleet.key");
    let next = rig.tree.path().join("etc/ksmith/fleet.key.next");
    let (mut worker, status) = rig.worker(vec![own_process()]);
    worker.meet(Box::default(), &Terms::default());
    work_until_idle(&mut worker);
    let old = read_secret(&secret).unwrap().id();
    let key_id = || metadata(&rig.file(), "ksmith.key_id").unwrap();
    let ready = || metadata(&rig.file(), "ksmith.next_key_id");
    assert_eq!((key_id(), ready()), (old.clone(), None));

    // Others may read the next secret: it is not used, and the file of the old one goes on.
    new_secret(&next).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o644)).unwrap();
    worker.meet(Box::default(), &Terms::default());
    work_until_idle(&mut worker);
    worker.write();
    assert_eq!((key_id(), ready(), status.lock().unwrap().problem.clone()), (old.clone(), None, None));

    fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).unwrap();
    let new = read_secret(&next).unwrap().id();
    worker.meet(Box::default(), &Terms::default());
    worker.write();
    assert_eq!((key_id(), ready()), (old.clone(), None), "not read yet");
    let before = status.lock().unwrap().written;
    work_until_idle(&mut worker);
    // The file says so at once, and is written once for it.
    assert_eq!((key_id(), ready()), (old, Some(new.clone())));
    work_until_idle(&mut worker);
    assert_eq!(status.lock().unwrap().written, before + 1);

    // The very next turn writes what was read before.
    fs::rename(&next, &secret).unwrap();
    worker.meet(Box::default(), &Terms::default());
    worker.turn();
    assert_eq!((key_id(), ready()), (new, None));
}

#[test]
fn a_key_that_was_not_prepared_leaves_the_old_file_until_all_guests_are_read() {
    let rig = rig();
    let secret = rig.tree.path().join("etc/ksmith/fleet.key");
    let (mut worker, status) = rig.worker(vec![own_process()]);
    worker.meet(Box::default(), &Terms::default());
    work_until_idle(&mut worker);
    let (old, written) = (metadata(&rig.file(), "ksmith.key_id"), status.lock().unwrap().written);
    fs::remove_file(&secret).unwrap();
    new_secret(&secret).unwrap();
    worker.meet(Box::default(), &Terms::default());
    worker.turn();
    assert_eq!((metadata(&rig.file(), "ksmith.key_id"), status.lock().unwrap().written), (old, written));
    work_until_idle(&mut worker);
    assert_eq!(metadata(&rig.file(), "ksmith.key_id"), Some(read_secret(&secret).unwrap().id()));
}

#[test]
fn a_secret_that_is_refused_for_a_while_costs_no_sketch() {
    let rig = rig();
    let secret = rig.tree.path().join("etc/ksmith/fleet.key");
    let (mut worker, status) = rig.worker(vec![own_process()]);
    worker.meet(Box::default(), &Terms::default());
    work_until_idle(&mut worker);
    let written = || status.lock().unwrap().written;
    let before = written();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    worker.meet(Box::default(), &Terms::default());
    work_until_idle(&mut worker);
    assert!(written() == before && status.lock().unwrap().problem.as_ref().unwrap().contains("chmod 600"));
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    worker.meet(Box::default(), &Terms::default());
    worker.turn();
    assert_eq!((written(), status.lock().unwrap().problem.clone()), (before + 1, None));
}

#[test]
fn a_disk_that_refuses_the_file_is_told_and_tried_again() {
    let rig = rig();
    let parent = rig.tree.path().join("var/lib/ksmith");
    fs::create_dir_all(&parent).unwrap();
    fs::write(parent.join("sketch"), "a file where the directory is to be").unwrap();
    let (mut worker, status) = rig.worker(vec![own_process()]);
    worker.meet(Box::default(), &Terms::default());
    worker.write();
    let problem = status.lock().unwrap().problem.clone().unwrap();
    assert!(problem.contains("node-1.parquet"), "{problem}");
    fs::remove_file(parent.join("sketch")).unwrap();
    worker.write();
    let status = status.lock().unwrap().clone();
    assert_eq!((status.problem, status.written), (None, 1));
}

#[test]
fn work_is_paid_for_with_sleep() {
    let rig = rig();
    let config = SketchConfig { max_cpu_percent: 0.1, ..rig.config.clone() };
    let (mut worker, status) = SketcherRig { config, ..rig }.worker(Vec::new());
    let clock = SketchClock::start();
    let began = std::time::Instant::now();
    for _ in 0..2 {
        worker.paid(|_| {
            let end = thread_seconds() + 0.002;
            while thread_seconds() < end {}
            WorkPause::None
        });
    }
    let spent = status.lock().unwrap().cpu_seconds;
    assert!(spent >= 0.004);
    let free = worker.free.duration_since(began).as_secs_f64();
    // A thousandth of a CPU: each millisecond costs a second, and two debts add up.
    assert!(free >= spent * 1000.0 * 0.999, "{spent} s of work, free after {free} s");
    assert!(clock.now().at < Duration::from_secs(60), "and none of that was waited for here");
}

fn use_cpu(seconds: f64) {
    let end = thread_seconds() + seconds;
    while thread_seconds() < end {}
}

#[test]
fn what_lies_between_two_pieces_of_work_is_charged_too() {
    let rig = rig();
    let (mut worker, status) = rig.worker(Vec::new());
    worker.paid(|_| WorkPause::None);
    let before = status.lock().unwrap().cpu_seconds;
    // Like being woken.
    use_cpu(0.003);
    worker.paid(|_| WorkPause::None);
    let spent = status.lock().unwrap().cpu_seconds - before;
    assert!(spent >= 0.003, "{spent}");
}

#[test]
fn what_other_threads_spend_is_charged_once() {
    let rig = rig();
    let status = Arc::new(Mutex::new(SketchStatus::default()));
    let elsewhere = Elsewhere::default();
    let (root, handed) = (rig.root(), Arc::clone(&elsewhere));
    let mut worker = SketcherWorker::new(&root, &rig.config, Box::new(|_| Vec::new()), Arc::clone(&status), handed);
    elsewhere.store(5_000_000, Ordering::Relaxed);
    worker.paid(|_| WorkPause::None);
    let spent = status.lock().unwrap().cpu_seconds;
    assert!(spent >= 0.005 && elsewhere.load(Ordering::Relaxed) == 0, "{spent}");
    worker.paid(|_| WorkPause::None);
    assert!(status.lock().unwrap().cpu_seconds - spent < 0.005);
}

#[test]
fn a_daemon_keeps_its_turns_whatever_becomes_of_the_file() {
    let turns = |config: &str, prepare: fn(&Path)| {
        let mut scene = DaemonScene::new(config);
        prepare(scene.root());
        let (answers, _waiting) = scene.ask_at(40, ControlRequest::Status);
        scene.at(60, |_| {});
        let outcome = scene.run().unwrap();
        let Ok(ControlReply::Status(status)) = answers.recv() else { panic!("no status") };
        (scene.world().turns.clone(), outcome.restored, status)
    };
    let (usual, restored, status) = turns("", |_| {});
    assert_eq!(status.sketch, None, "off by default");
    // No secret, and a file where the directory is to be.
    let (others, restored_too, status) = turns("[sketch]\nenabled = true", |root| {
        fs::create_dir_all(root.join("var/lib/ksmith")).unwrap();
        fs::write(root.join("var/lib/ksmith/sketch"), "").unwrap();
    });
    assert_eq!((others, restored_too), (usual, restored));
    let sketch = status.sketch.clone().unwrap();
    // The thread may not have tried yet.
    if let Some(problem) = sketch.problem {
        assert!(status.errors().contains(&format!("no sketch file is written: {problem}")));
    }
}

#[test]
fn a_thread_that_does_not_answer_delays_no_turn() {
    let rig = rig();
    let (release, held) = crossbeam_channel::bounded::<()>(0);
    let guests = move |_: &Sample| {
        // Like a guest that does not let its memory be read.
        let _ = held.recv();
        Vec::new()
    };
    let mut sketcher = Sketcher::start(&rig.root(), &rig.config, Terms::default(), guests).unwrap();
    for at in 0..1000 {
        sketcher.offer_sample(&Sample { at: PERIOD * at, ..Sample::default() });
    }
    assert!(sketcher.worker.free_slots() <= 1 && sketcher.status().written == 0);
    assert!(sketcher.elsewhere.load(Ordering::Relaxed) > 0, "handing over has its price");
    sketcher.configure(DomainsConfig::default(), BalanceConfig::default());
    drop(release);
    wait_until(|| sketcher.status().written > 0);
}

#[test]
fn wrong_settings_are_refused() {
    for (text, why) in [
        ("rate = \"1/63\"", "is not a rate"),
        ("rate = \"64\"", "is not a rate"),
        ("secret = \"fleet.key\"", "absolute"),
        ("directory = \"sketch\"", "absolute"),
        ("host = \"a/b\"", "letters, digits"),
        ("host = \"..\"", "letters, digits"),
        ("host = \"\"", "letters, digits"),
        ("per_guest = 0", "1 to 1048576"),
        ("every_minutes = 0", "over 0"),
        ("max_cpu_percent = 0.0", "over 0"),
        ("max_cpu_percent = nan", "over 0"),
        ("speed = 1", "there is no key \"speed\" in [sketch]"),
    ] {
        let read = Config::parse(Path::new("ksmith.toml"), &format!("[sketch]\n{text}"));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
    let config = Config::parse(Path::new("ksmith.toml"), "[sketch]\nrate = \"1/64\"").unwrap();
    assert_eq!(config.sketch.rate_rule(), ksmith_sketch::RateRule::Stated("1/64".parse().unwrap()));
}
