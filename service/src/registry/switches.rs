//! The thread that switches guests for the registry, one after the other.

use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, unbounded};
use ksmith_host::guests::{SwitchError, Switched, Target};
use ksmith_host::root::Root;
use tracing::warn;

/// A switch that was carried out: the guest, whether on, and the outcome.
pub(super) type Done = (Target, bool, Result<Vec<Switched>, SwitchError>);

/// Switches that are under way.
#[derive(Debug)]
pub(super) struct Switches {
    jobs: Sender<(Target, bool)>,
    done: Receiver<Done>,
    under_way: usize,
}

impl Switches {
    /// Starts the thread.
    pub(super) fn new(root: &Root) -> Self {
        let (jobs, waiting) = unbounded::<(Target, bool)>();
        let (sender, done) = unbounded();
        let root = root.clone();
        let work = move || {
            for (target, on) in waiting {
                let outcome = target.switch(&root, on, false);
                if sender.send((target, on, outcome)).is_err() {
                    return;
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("guest-switch".to_owned()).spawn(work) {
            warn!("guests can't be switched: {error}");
        }
        Self { jobs, done, under_way: 0 }
    }

    /// Has a guest switched.
    pub(super) fn order(&mut self, target: Target, on: bool) -> Result<(), String> {
        self.jobs.send((target, on)).map_err(|error| error.to_string())?;
        self.under_way += 1;
        Ok(())
    }

    /// The channel on which outcomes arrive; each must be told to [`settle`](Self::settle).
    pub(super) fn outcomes(&self) -> Receiver<Done> {
        self.done.clone()
    }

    pub(super) fn settle(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// The next outcome, waited for until the deadline. `None` at once if no switch is under way.
    pub(super) fn wait(&self, deadline: Instant) -> Option<Done> {
        if self.under_way == 0 {
            return None;
        }
        self.done.recv_deadline(deadline).ok()
    }
}
