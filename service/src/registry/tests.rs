use std::time::Duration;

use crossbeam_channel::bounded;
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::sample::{MergeForecast, ProcessSample};

use super::*;

fn registry(root: &Root) -> GuestRegistry {
    GuestRegistry::start(root, None, GuestsConfig::default(), false).unwrap()
}

fn sample(second: u64, processes: &[(u32, &str)]) -> Sample {
    let process =
        |&(pid, name): &(u32, &str)| ProcessSample::new(ProcessId { pid, start_ticks: 7 }, name.into(), true);
    let processes = processes.iter().map(process).collect();
    Sample { at: Duration::from_secs(second), page_size: 4096, processes, ..Sample::default() }
}

/// Waits for the snapshot of that second.
fn snapshot_of(registry: &GuestRegistry, second: u64) -> Arc<GuestSnapshot> {
    loop {
        let snapshot = registry.newest();
        if snapshot.at == Duration::from_secs(second) {
            return snapshot;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_question_is_answered_and_a_flood_refused() {
    let tree = tempfile::tempdir().unwrap();
    let registry = registry(&Root::at(tree.path()));
    let (reply, answers) = bounded(1);
    registry.report(sample(1, &[]), DomainsConfig::default(), reply);
    let ControlReply::Guests(report) = answers.recv().unwrap() else { panic!("another answer") };
    assert!(report.guests.is_empty());
    let waiting: Vec<_> = (0..10 * INBOX)
        .map(|_| {
            let (reply, answers) = bounded(1);
            registry.report(Sample::default(), DomainsConfig::default(), reply);
            answers
        })
        .collect();
    drop(registry);
    // Each was answered or, at the end, let go.
    assert!(waiting.into_iter().all(|answers| answers.recv_timeout(Duration::from_secs(20)).is_ok()));
}

#[test]
fn a_new_process_or_program_is_handed_over_at_once_and_the_same_now_and_then() {
    let tree = tempfile::tempdir().unwrap();
    let mut registry = registry(&Root::at(tree.path()));
    let one = [(1, "one")];
    registry.offer_sample(&sample(1, &one));
    let first = snapshot_of(&registry, 1);
    assert!(first.knows(&sample(1, &one).processes[0]));
    registry.offer_sample(&sample(2, &one));
    registry.offer_sample(&sample(3, &[(1, "one"), (2, "two")]));
    snapshot_of(&registry, 3);
    assert_eq!(registry.last_look, Some(Duration::from_secs(3)));
    let other = [(1, "other"), (2, "two")];
    assert!(!registry.newest().knows(&sample(4, &other).processes[0]));
    registry.offer_sample(&sample(4, &other));
    assert!(snapshot_of(&registry, 4).knows(&sample(4, &other).processes[0]));
    registry.offer_sample(&sample(13, &other));
    assert_eq!(registry.last_look, Some(Duration::from_secs(4)));
    registry.offer_sample(&sample(14, &other));
    assert_eq!(registry.last_look, Some(Duration::from_secs(14)));
    assert_eq!(first.list.guests.len(), 1, "a snapshot never changes");
}

#[test]
fn where_guests_are_pruned_a_new_forecast_is_handed_over_at_once() {
    let tree = tempfile::tempdir().unwrap();
    let mut registry = registry(&Root::at(tree.path()));
    let forecast = ProcessForecast { pid: 1, forecast: MergeForecast::default(), new_bytes: 0 };
    let foretold = Sample { process_forecasts: [forecast].into(), ..sample(2, &[]) };
    let last_look = |registry: &mut GuestRegistry| {
        registry.offer_sample(&sample(1, &[]));
        registry.offer_sample(&foretold);
        registry.last_look.take()
    };
    assert_eq!(last_look(&mut registry), Some(Duration::from_secs(1)), "nobody goes by it");
    registry.prunes = true;
    assert_eq!(last_look(&mut registry), Some(Duration::from_secs(2)));
}

#[test]
fn a_follower_is_woken_by_each_snapshot() {
    let tree = tempfile::tempdir().unwrap();
    let mut registry = registry(&Root::at(tree.path()));
    let (waker, woken) = bounded(1);
    registry.follow(waker, || true);
    for second in 1..4 {
        registry.offer_sample(&sample(second, &[(u32::try_from(second).unwrap(), "guest")]));
        woken.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(registry.newest().at, Duration::from_secs(second));
    }
}
