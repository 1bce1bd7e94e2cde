use std::path::Path;

use crossbeam_channel::unbounded;
use ksmith_core::guest::{GuestKind, SwitchOffReason, group};
use ksmith_core::kernel::{HostReadings, Meminfo};
use ksmith_core::sample::{ProcessId, ProcessSample};

use super::worker::LOOK_DEADLINE;
use super::*;

const MIB: u64 = 1 << 20;

/// A worker that finds zeros in one half of each huge page, and frees 100 MiB of them.
const WORKER: &str = r#"
while read -r line; do
    case "$line" in
    *'"action":"look"'*) echo '{"cpu_seconds":0.01,"outcome":{"looked":{"zero_mapped_bytes":0,"ksm_zero_bytes":0,
"huge_bytes":209715200,"huge_page_bytes":2097152,"sampled_pages":32,"foldable_pages":32,"zero_bytes":33554432}}}' | tr -d '\n'; echo;;
    *) echo '{"cpu_seconds":0.2,"outcome":{"folded":[{"looked_bytes":209715200,"freed_bytes":104857600,"split_pages":100,
"cpu_seconds":0.1},{"zero_mapped_bytes":104857600,"ksm_zero_bytes":0,"huge_bytes":0,"huge_page_bytes":2097152,"sampled_pages":0,
"foldable_pages":0,"zero_bytes":0}]}}' | tr -d '\n'; echo;;
    esac
done
"#;

fn shell(script: &str) -> Vec<String> {
    ["/bin/sh", "-c", script].map(str::to_owned).into()
}

/// A worker that writes its PID down and then answers nothing.
fn silent(directory: &Path) -> Vec<String> {
    shell(&format!("echo $$ > {}/pid; exec sleep 1000", directory.display()))
}

fn all() -> FoldConfig {
    FoldConfig { mode: FoldMode::All, ..FoldConfig::default() }
}

fn process(pid: u32, is_vm: bool) -> ProcessSample {
    let id = ProcessId { pid, start_ticks: 5 };
    ProcessSample { rss_bytes: Some(300 * MIB), ..ProcessSample::new(id, format!("web{pid}").into(), is_vm) }
}

fn sample(processes: Vec<ProcessSample>) -> Sample {
    let memory = Reading::Value(Meminfo { total: Some(1 << 30), ..Meminfo::default() });
    let host = HostReadings { memory, ..HostReadings::default() };
    Sample { at: Duration::from_secs(1000), page_size: 4096, host, processes, ..Sample::default() }
}

/// Waits for the effect of another thread, however long that takes.
fn wait_until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for a note of this state.
fn wait_for_note(notes: &Notes, state: &str) -> String {
    let found = || notes.lock().unwrap().iter().find(|note| note.state == state).map(|note| note.text.clone());
    wait_until(|| found().is_some());
    found().unwrap()
}

/// Waits until the process in the file has ended.
fn wait_for_end(directory: &Path) {
    let pid = std::fs::read_to_string(directory.join("pid")).unwrap();
    wait_until(|| !Path::new("/proc").join(pid.trim()).exists());
}

#[test]
fn a_process_is_looked_at_and_folded_and_its_figure_published() {
    let figures = FoldedFigures::default();
    let mut folder = Folder::start(shell(WORKER), all(), figures.clone(), |_| Vec::new()).unwrap();
    folder.offer_sample(&sample(vec![process(7, false)]));
    wait_until(|| figures.total_bytes() == Some(100 * MIB));
    assert_eq!(
        wait_for_note(&folder.notes, "fold"),
        "fold web7 (pid 7): 100 % of sampled huge pages hold zeros, about 100 MiB for 74 ms of CPU"
    );
    wait_for_note(&folder.notes, "folded");
    assert!(folder.drain_notes().len() >= 2 && folder.drain_notes().is_empty());
    // The process has ended.
    folder.offer_sample(&Sample { at: Duration::from_secs(1003), ..sample(Vec::new()) });
    wait_until(|| figures.total_bytes().is_none());
}

#[test]
fn a_process_that_holds_the_child_up_is_given_up_and_the_child_killed() {
    let directory = tempfile::tempdir().unwrap();
    let (figures, notes) = (FoldedFigures::default(), Notes::default());
    let mut worker = FolderWorker::new(
        silent(directory.path()),
        all(),
        figures.clone(),
        Box::new(|_| Vec::new()),
        Arc::clone(&notes),
    );
    assert_eq!(worker.look_deadline, LOOK_DEADLINE);
    worker.look_deadline = Duration::from_millis(300);
    let (orders, inbox) = unbounded();
    let thread = std::thread::spawn(move || worker.work(&inbox));
    orders.send(FolderOrder::Take(Box::new(sample(vec![process(7, false)])))).unwrap();
    assert!(
        wait_for_note(&notes, "silent")
            .starts_with("web7 (pid 7) does not let its memory be read; next look in 1 h")
    );
    wait_for_end(directory.path());
    assert_eq!(figures.total_bytes(), None, "nothing is known of it");
    drop(orders);
    thread.join().unwrap();
}

#[test]
fn the_end_waits_for_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut folder =
        Folder::start(silent(directory.path()), all(), FoldedFigures::default(), |_| Vec::new()).unwrap();
    folder.offer_sample(&sample(vec![process(7, false)]));
    let pid = directory.path().join("pid");
    wait_until(|| std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
    drop(folder);
    wait_for_end(directory.path());
}

#[test]
fn a_child_that_does_not_start_or_talks_nonsense_is_said_once() {
    for command in [vec!["/nonexistent/ksmith".to_owned()], shell("read line; echo hello"), shell("exit 0")] {
        let mut folder = Folder::start(command, all(), FoldedFigures::default(), |_| Vec::new()).unwrap();
        folder.offer_sample(&sample(vec![process(7, false)]));
        assert!(wait_for_note(&folder.notes, "hindered").starts_with("nothing is folded: "));
        folder.offer_sample(&Sample { at: Duration::from_secs(1010), ..sample(vec![process(8, false)]) });
        wait_until(|| folder.worker.free_slots() == WAITING);
        assert_eq!(folder.drain_notes().len(), 1);
    }
}

#[test]
fn the_mode_chooses_the_processes() {
    let sample = sample(vec![process(1, true), process(2, true), process(3, false)]);
    let (mut guests, _) = group(&sample, |_| None);
    for guest in &mut guests {
        (guest.kind, guest.is_verified) = (GuestKind::new("qemu"), guest.id().pid() != 2);
    }
    let chosen = |mode| {
        let config = FoldConfig { mode, ..FoldConfig::default() };
        let name_guests: NameGuests = Box::new(|_| Vec::new());
        let worker = FolderWorker::new(Vec::new(), config, FoldedFigures::default(), name_guests, Notes::default());
        let pids = worker.candidates(&sample, &guests).into_iter().map(|candidate| candidate.id.pid);
        pids.collect::<Vec<_>>()
    };
    assert_eq!(chosen(FoldMode::All), [1, 2, 3]);
    assert_eq!(chosen(FoldMode::Guests), [1], "verified machines only");
    assert!(chosen(FoldMode::Off).is_empty(), "nothing was folded");
}

#[test]
fn requests_and_replies_are_read_as_they_are_written() {
    use ksmith_core::fold::{FoldLook, FoldPass};
    use ksmith_host::fold::CollapseTally;
    use protocol::{FoldAction, FoldOutcome, FoldReply, FoldRequest};

    let request = FoldRequest {
        pid: 7,
        start_ticks: 5,
        action: FoldAction::Fold,
        cpu_limit_seconds: 0.5,
        least_zero_permille: 125,
        samples: 32,
    };
    let text = serde_json::to_string(&request).unwrap();
    assert!(text.contains(r#""action":"fold""#), "{text}");
    assert_eq!(serde_json::from_str::<FoldRequest>(&text).unwrap(), request);
    let (pass, look) = (FoldPass { freed_bytes: 5, ..FoldPass::default() }, FoldLook::default());
    for outcome in [
        FoldOutcome::Looked(look),
        FoldOutcome::Folded(pass, look),
        FoldOutcome::Collapsed(CollapseTally { collapsed_bytes: 7, is_done: true, ..CollapseTally::default() }),
        FoldOutcome::Gone,
        FoldOutcome::Silent,
        FoldOutcome::Failed("a\nb".to_owned()),
        FoldOutcome::Hindered("c".to_owned()),
    ] {
        let reply = FoldReply { cpu_seconds: 1.5, outcome };
        let text = serde_json::to_string(&reply).unwrap();
        assert!(!text.contains('\n'));
        assert_eq!(serde_json::from_str::<FoldReply>(&text).unwrap(), reply);
    }
}

/// A worker that puts 64 MiB together in each pass, and needs two.
const COLLAPSER: &str = r#"
done=false
while read -r line; do
    case "$line" in
    *'"action":"collapse"'*) echo '{"cpu_seconds":0.2,"outcome":{"collapsed":{"collapsed_bytes":67108864,"refused_bytes":0,
"cpu_seconds":0.1,"is_done":'$done'}}}' | tr -d '\n'; echo; done=true;;
    *) echo '{"cpu_seconds":0.2,"outcome":"gone"}';;
    esac
done
"#;

#[test]
fn a_guest_that_is_off_for_its_splits_is_put_together_while_nothing_is_folded() {
    let sample = sample(vec![process(7, true)]);
    let (mut guests, _) = group(&sample, |_| None);
    (guests[0].switched_off, guests[0].offered) = (Some(SwitchOffReason::Splits), Some(false));
    let config = FoldConfig::default();
    assert_eq!(config.mode, FoldMode::Off);
    let mut folder =
        Folder::start(shell(COLLAPSER), config, FoldedFigures::default(), move |_| guests.clone()).unwrap();
    folder.offer_sample(&sample);
    let note = wait_for_note(&folder.notes, "collapsed");
    assert!(note.starts_with("128 MiB of ") && note.contains("in huge pages again, for 200 ms of CPU"), "{note}");
}
