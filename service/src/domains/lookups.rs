//! Lookups in processes, by a thread of their own: a turn waits neither for a walk over page tables nor for a process
//! that holds its reader up.

use std::collections::BTreeMap;
use std::fmt;

use crossbeam_channel::TryRecvError;
use ksmith_core::sample::ProcessId;
use ksmith_host::root::Root;
use ksmith_host::worker_thread::WorkerThread;
use tracing::warn;

/// Lookups that may wait for the thread. More are requested again in a later turn.
const WAITING: usize = 256;

/// A function that reads a property of a process.
type Look<T> = fn(&Root, u32) -> T;

/// Lookups of one kind. Each request carries a note, which comes back with the result.
pub(super) struct ProcessLookups<T, N> {
    root: Root,
    look: Look<T>,
    worker: Option<WorkerThread<ProcessId, (ProcessId, T)>>,
    /// Lookups under way, each with its note. Without a note the result is discarded.
    under_way: BTreeMap<ProcessId, Option<N>>,
}

impl<T, N> fmt::Debug for ProcessLookups<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("under_way", &self.under_way.len()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static, N> ProcessLookups<T, N> {
    /// Creates lookups with none under way.
    pub(super) fn new(root: &Root, look: Look<T>) -> Self {
        Self { root: root.clone(), look, worker: None, under_way: BTreeMap::new() }
    }

    /// Requests a lookup. In a captured tree no process holds up its reader, so the result is returned at once.
    pub(super) fn request_lookup(&mut self, id: ProcessId, note: N) -> Option<(T, N)> {
        if !self.root.is_host() {
            return Some(((self.look)(&self.root, id.pid), note));
        }
        if self.worker.is_none() {
            let (root, look) = (self.root.clone(), self.look);
            let started = WorkerThread::start_replying("domain-looks", WAITING, move |id: ProcessId| {
                (id, look(&root, id.pid))
            });
            self.worker = started.inspect_err(|why| warn!("no thread looks into guests: {why}")).ok();
        }
        let worker = self.worker.as_ref()?;
        if !self.under_way.contains_key(&id) && worker.queue_request(id).is_ok() {
            self.under_way.insert(id, Some(note));
        }
        None
    }

    /// Returns the results since the last call.
    pub(super) fn take_found(&mut self) -> Vec<(ProcessId, T, N)> {
        let mut results = Vec::new();
        while let Some(worker) = &self.worker {
            match worker.poll_reply() {
                Ok((id, found)) => {
                    results.extend(self.under_way.remove(&id).flatten().map(|note| (id, found, note)));
                }
                Err(TryRecvError::Empty) => break,
                // The thread has died, with all that was under way. The next request starts another.
                Err(TryRecvError::Disconnected) => {
                    self.worker = None;
                    self.under_way.clear();
                }
            }
        }
        results
    }

    /// Discards the result of a lookup under way.
    pub(super) fn forget(&mut self, id: ProcessId) {
        if let Some(note) = self.under_way.get_mut(&id) {
            *note = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_died_is_replaced_and_its_lookups_are_requested_again() {
        let id = |pid| ProcessId { pid, start_ticks: 0 };
        let look = |_: &Root, pid: u32| 6_u32.checked_div(pid).unwrap();
        let mut lookups = ProcessLookups::new(&Root::host(), look);
        let wait = |lookups: &mut ProcessLookups<u32, char>| {
            while lookups.take_found().is_empty() && lookups.worker.is_some() {
                std::thread::yield_now();
            }
        };
        assert_eq!(lookups.request_lookup(id(0), 'a'), None);
        wait(&mut lookups);
        assert!(lookups.under_way.is_empty());
        assert_eq!(lookups.request_lookup(id(2), 'b'), None);
        let found = std::iter::repeat_with(|| lookups.take_found()).find(|found| !found.is_empty());
        assert_eq!(found, Some(vec![(id(2), 3, 'b')]));
    }
}
