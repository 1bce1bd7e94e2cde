//! Lookups in processes, by a thread of their own: a turn waits neither for a walk over page tables nor for a process
//! that holds its reader up.

use std::collections::BTreeMap;
use std::fmt;

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_core::sample::ProcessId;
use ksmith_host::root::Root;
use tracing::warn;

/// A function that reads a property of a process.
type Look<T> = fn(&Root, u32) -> T;

/// Lookups of one kind. Each request carries a note, which comes back with the result.
pub(super) struct ProcessLookups<T, N> {
    root: Root,
    look: Look<T>,
    thread: Option<LookupThread<T>>,
    /// Lookups under way, each with its note. Without a note the result is discarded.
    under_way: BTreeMap<ProcessId, Option<N>>,
}

struct LookupThread<T> {
    jobs: Sender<ProcessId>,
    found: Receiver<(ProcessId, T)>,
}

impl<T, N> fmt::Debug for ProcessLookups<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("under_way", &self.under_way.len()).finish_non_exhaustive()
    }
}

impl<T: Send + 'static, N> ProcessLookups<T, N> {
    /// Creates lookups with none under way.
    pub(super) fn new(root: &Root, look: Look<T>) -> Self {
        Self { root: root.clone(), look, thread: None, under_way: BTreeMap::new() }
    }

    /// Requests a lookup. In a captured tree no process holds up its reader, so the result is returned at once.
    pub(super) fn request_lookup(&mut self, id: ProcessId, note: N) -> Option<(T, N)> {
        if !self.root.is_host() {
            return Some(((self.look)(&self.root, id.pid), note));
        }
        if self.thread.is_none() {
            self.thread = LookupThread::start(&self.root, self.look);
        }
        let thread = self.thread.as_ref()?;
        if !self.under_way.contains_key(&id) && thread.jobs.send(id).is_ok() {
            self.under_way.insert(id, Some(note));
        }
        None
    }

    /// Returns the results since the last call.
    pub(super) fn take_found(&mut self) -> Vec<(ProcessId, T, N)> {
        let Some(thread) = &self.thread else { return Vec::new() };
        let under_way = &mut self.under_way;
        let wanted = |(id, found)| Some((id, found, under_way.remove(&id)??));
        thread.found.try_iter().filter_map(wanted).collect()
    }

    /// Discards the result of a lookup under way.
    pub(super) fn forget(&mut self, id: ProcessId) {
        if let Some(note) = self.under_way.get_mut(&id) {
            *note = None;
        }
    }
}

impl<T: Send + 'static> LookupThread<T> {
    fn start(root: &Root, look: Look<T>) -> Option<Self> {
        let (jobs, waiting) = unbounded::<ProcessId>();
        let (sender, found) = unbounded();
        let root = root.clone();
        let work = move || {
            for id in waiting {
                if sender.send((id, look(&root, id.pid))).is_err() {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("domain-looks".to_owned()).spawn(work);
        started.inspect_err(|why| warn!("no thread looks into guests: {why}")).ok()?;
        Some(Self { jobs, found })
    }
}
