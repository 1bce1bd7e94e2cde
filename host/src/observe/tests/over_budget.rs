//! Tests of users with more processes than are read of one user.

use std::collections::BTreeSet;

use super::*;
use crate::observe::watch_budget::WatchBudget;

impl HostTree {
    /// Adds a process of this user with mergeable memory and so many resident pages.
    fn process_of(&self, uid: u32, pid: u32, rss_pages: u64) {
        let stat = format!("{pid} (work) S 1 1 1 0 -1 0 7 0 0 0 3 4 0 0 20 0 1 0 {pid} 0 {rss_pages} 0\n");
        self.put(&format!("proc/{pid}/stat"), stat);
        self.put(&format!("proc/{pid}/comm"), "work\n");
        self.put(&format!("proc/{pid}/status"), format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n"));
        self.figures(pid, INVOLVED);
    }
}

fn pids(sample: &Sample) -> BTreeSet<u32> {
    sample.processes.iter().map(|process| process.id.pid).collect()
}

#[test]
fn of_one_user_those_that_could_save_most_are_read_and_the_rest_is_counted() {
    let mut host = HostTree::new();
    host.observer.processes.budget = WatchBudget::with(3);
    for pid in 100..120 {
        host.process_of(1000, pid, if pid < 117 { 10 } else { 1000 });
    }
    (200..203).for_each(|pid| host.process_of(1001, pid, 1));
    (300..310).for_each(|pid| host.process_of(0, pid, 1));
    let first = host.observer.sample();
    let others: BTreeSet<u32> = (200..203).chain(300..310).collect();
    assert!(pids(&first).is_superset(&others), "{:?}", pids(&first));
    let sample = host.observer.sample();
    assert_eq!(pids(&sample), (117..120).chain(others.clone()).collect());
    assert_eq!((sample.given_up.count, sample.given_up.unknown, sample.given_up.named.len()), (17, 17, 1));
    assert!(sample.has_unknown_figures() && sample.given_up.over_budget == 17);
    let sentences = sample.given_up.sentences();
    assert_eq!(
        sentences,
        ["work (pid 100) and 16 more are given up: 3 other processes of uid 1000 are read, the most for one user"]
    );
}

#[test]
fn a_place_that_becomes_free_is_taken_by_one_that_was_counted() {
    let mut host = HostTree::new();
    host.observer.processes.budget = WatchBudget::with(3);
    (100..110).for_each(|pid| host.process_of(1000, pid, 10));
    let first = pids(&host.observer.sample());
    assert_eq!(first.len(), 3);
    first.iter().for_each(|pid| host.exit(*pid));
    let later = host.sample_after(70);
    assert_eq!((later.processes.len(), later.given_up.count), (3, 4));
    assert!(pids(&later).is_disjoint(&first));
    (100..110).filter(|pid| !first.contains(pid)).for_each(|pid| host.figures(pid, UNINVOLVED));
    let none = host.sample_after(130);
    assert_eq!((none.processes.len(), none.given_up.count), (0, 0), "those without mergeable memory do not count");
}

#[test]
fn a_process_that_ends_or_is_ended_by_an_event_counts_no_more() {
    let mut host = HostTree::new();
    host.observer.processes.budget = WatchBudget::with(1);
    host.observer.notice(ProcessEvent::Lost);
    (100..104).for_each(|pid| host.process_of(1000, pid, 10));
    let sample = host.observer.sample();
    assert_eq!((sample.processes.len(), sample.given_up.count), (1, 3));
    let counted = (100..104).find(|pid| !pids(&sample).contains(pid)).unwrap();
    host.exit(counted);
    host.observer.notice(ProcessEvent::Exited(counted));
    assert_eq!(host.observer.sample().given_up.count, 2);
    host.observer.notice(ProcessEvent::Ended);
    let again = host.observer.sample();
    assert_eq!((again.processes.len(), again.given_up.count), (1, 2), "a scan finds them again");
}
