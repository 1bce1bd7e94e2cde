//! A search for processes that ksmd tracks and the observer does not know: the observer looks at processes that offered
//! nothing only now and then.
//!
//! The kernel's own count gives them away: the pages that ksmd tracks in all are more than those of all processes that
//! are known. Then a thread of its own reads every process. A process that has ended leaves pages behind too, until
//! ksmd visits them: so the count alone shows nothing.

use std::collections::BTreeSet;
use std::time::Duration;

use crossbeam_channel::TryRecvError;
use ksmith_core::decide::domains::{GUARD_LOOK, GUARD_SLEEP};
use ksmith_core::kernel::KsmStat;
use ksmith_core::reading::Reading;
use ksmith_core::sample::Sample;
use ksmith_host::reader;
use ksmith_host::root::{Root, outcome};
use ksmith_host::worker_thread::WorkerThread;
use tracing::warn;

/// The longest wait of a turn for the answers of all processes, some 10 us each.
const PATIENCE: Duration = Duration::from_millis(5);

/// The age up to which answers count while newer ones are pending. A process that ksmd has visited for the first time
/// is found before the second visit: with the time to the next look this is shorter than [`GUARD_SLEEP`].
const FRESH: Duration = Duration::from_millis(250);

const _: () = assert!(FRESH.as_millis() + GUARD_LOOK.as_millis() < GUARD_SLEEP.as_millis());

/// Searches for processes that may merge and are not known.
#[derive(Debug)]
pub(super) struct UnknownSearch {
    root: Root,
    worker: Option<SearchWorker>,
    /// Time of the request under way.
    asked: Option<Duration>,
    /// The newest answers, and the time of their request.
    last: Option<(Duration, Vec<u32>)>,
}

/// A thread that finds the processes that may merge and are not known.
type SearchWorker = WorkerThread<BTreeSet<u32>, Option<Vec<u32>>>;

impl UnknownSearch {
    pub(super) fn new(root: &Root) -> Self {
        Self { root: root.clone(), worker: None, asked: None, last: None }
    }

    /// Returns the processes that may merge and are missing in the sample; `None` while that is not known.
    pub(super) fn find_unknown(&mut self, sample: &Sample) -> Option<Vec<u32>> {
        let known: u64 = sample.processes.iter().filter_map(|process| process.ksm.rmap_items).sum();
        if sample.ksm.tracks_at_most(known) {
            return Some(Vec::new());
        }
        let known: BTreeSet<u32> = sample.processes.iter().map(|process| process.id.pid).collect();
        if !self.root.is_host() {
            return may_merge(&self.root, &known);
        }
        match self.worker.as_ref().map(SearchWorker::poll_reply) {
            Some(Ok(found)) => self.last = self.asked.take().zip(found),
            // The thread has ended, with the request that was under way.
            Some(Err(TryRecvError::Disconnected)) => (self.worker, self.asked) = (None, None),
            Some(Err(TryRecvError::Empty)) | None => {}
        }
        if self.worker.is_none() {
            self.worker = start_search(&self.root);
        }
        let worker = self.worker.as_ref()?;
        if self.asked.is_none() && worker.queue_request(known.clone()).is_ok() {
            self.asked = Some(sample.at);
            if let Ok(found) = worker.await_reply(PATIENCE) {
                self.last = self.asked.take().zip(found);
            }
        }
        let (_, found) = self.last.as_ref().filter(|(at, _)| sample.at.saturating_sub(*at) < FRESH)?;
        Some(found.iter().filter(|pid| !known.contains(pid)).copied().collect())
    }
}

fn start_search(root: &Root) -> Option<SearchWorker> {
    let root = root.clone();
    let started = WorkerThread::start_replying("domain-unknown", 1, move |known| may_merge(&root, &known));
    started.inspect_err(|why| warn!("no thread looks for processes: {why}")).ok()
}

/// Returns the processes that may merge and are not `known`; `None` if /proc can't be listed. A process that does not
/// answer, or whose answer is not understood, may.
fn may_merge(root: &Root, known: &BTreeSet<u32>) -> Option<Vec<u32>> {
    let mut pids = Vec::new();
    for entry in std::fs::read_dir(root.path("proc")).ok()? {
        pids.extend(entry.ok()?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    pids.retain(|pid| !known.contains(pid));
    let is_involved = |text: &str| match KsmStat::parse(text) {
        Ok(stat) => stat.mergeable == Some(true) || stat.rmap_items.unwrap_or(0) > 0,
        Err(_) => true,
    };
    if !root.is_host() {
        let text = |pid: &u32| root.text(format!("proc/{pid}/ksm_stat"));
        pids.retain(|pid| text(pid).value().is_some_and(|text| is_involved(text)));
        return Some(pids);
    }
    let may_merge = |(pid, answer): (u32, std::io::Result<Vec<u8>>)| {
        let may = match answer {
            Ok(bytes) => is_involved(&String::from_utf8_lossy(&bytes)),
            // One that has ended merges nothing.
            Err(error) => outcome::<()>(&error) != Reading::Absent,
        };
        may.then_some(pid)
    };
    Some(reader::read_each(&pids, "ksm_stat").into_iter().filter_map(may_merge).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_count_can_not_be_read_processes_are_asked() {
        let tree = tempfile::tempdir().unwrap();
        let directory = tree.path().join("proc/7");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("ksm_stat"), "ksm_rmap_items 5\nksm_mergeable: yes\n").unwrap();
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.pages_unshared = Reading::Denied;
        assert_eq!(UnknownSearch::new(&Root::at(tree.path())).find_unknown(&sample), Some(vec![7]));
    }

    #[test]
    fn an_unknown_process_is_found_once_the_count_says_so() {
        let tree = tempfile::tempdir().unwrap();
        let add = |pid: u32, text: &str| {
            let directory = tree.path().join(format!("proc/{pid}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("ksm_stat"), text).unwrap();
        };
        add(7, "ksm_rmap_items 5\nksm_mergeable: yes\n");
        add(8, "ksm_rmap_items 0\nksm_mergeable: no\n");
        let mut unknown = UnknownSearch::new(&Root::at(tree.path()));
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.pages_unshared = Reading::Value(0);
        assert_eq!(unknown.find_unknown(&sample), Some(vec![]), "no process is asked while the count is right");
        sample.ksm.pages_unshared = Reading::Value(5);
        assert_eq!(unknown.find_unknown(&sample), Some(vec![7]));
        add(9, "no such words\n");
        assert_eq!(unknown.find_unknown(&sample).map(BTreeSet::from_iter), Some(BTreeSet::from([7, 9])));
        std::fs::rename(tree.path().join("proc"), tree.path().join("moved")).unwrap();
        assert_eq!(unknown.find_unknown(&sample), None, "processes that can't be listed may be there");
    }

    #[test]
    fn a_thread_that_ended_before_it_answered_is_replaced() {
        let worker = WorkerThread::start("ended", 1, |_, _| ()).unwrap();
        assert!(worker.await_reply(Duration::MAX).is_err());
        let mut unknown =
            UnknownSearch { root: Root::host(), worker: Some(worker), asked: Some(Duration::ZERO), last: None };
        let mut sample = Sample { page_size: 4096, at: Duration::from_secs(1), ..Sample::default() };
        sample.ksm.pages_unshared = Reading::Value(5);
        unknown.find_unknown(&sample);
        let answer = || unknown.worker.as_ref().unwrap().await_reply(Duration::from_secs(60));
        assert!(unknown.last.is_some() || answer().is_ok());
    }
}
