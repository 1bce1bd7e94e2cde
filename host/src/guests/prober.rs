//! Asks guests' hypervisors in threads of their own, so that one that hangs delays no other.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use ksmith_core::guest::GuestId;

use crate::hypervisor::{Answer, Target};
use crate::root::Root;

/// Questions that may be under way at once. Each takes milliseconds, or half a second where a guest hangs.
const THREADS: usize = 4;

/// Questions that may wait; more come again at the next look.
const WAITING: usize = 4096;

/// The threads that ask.
#[derive(Debug)]
pub(super) struct Prober {
    jobs: Sender<Target>,
    answers: Receiver<(GuestId, Answer)>,
    under_way: usize,
}

impl Prober {
    /// Starts the threads. `None` where the host gives us none.
    pub(super) fn start(root: &Root) -> Option<Self> {
        let (jobs, waiting) = bounded::<Target>(WAITING);
        let (sender, answers) = unbounded();
        let mut started = 0;
        for _ in 0..THREADS {
            let (waiting, sender, root) = (waiting.clone(), sender.clone(), root.clone());
            let work = move || {
                for target in waiting {
                    if sender.send((target.id, target.ask(&root))).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("guest-probe".to_owned()).stack_size(256 << 10);
            started += usize::from(thread.spawn(work).is_ok());
        }
        (started > 0).then_some(Self { jobs, answers, under_way: 0 })
    }

    /// Has a guest asked. Returns whether it will be.
    pub(super) fn ask(&mut self, target: Target) -> bool {
        let accepted = self.jobs.try_send(target).is_ok();
        self.under_way += usize::from(accepted);
        accepted
    }

    /// An answer that is there already.
    pub(super) fn answer(&mut self) -> Option<(GuestId, Answer)> {
        let answer = self.answers.try_recv().ok()?;
        self.under_way = self.under_way.saturating_sub(1);
        Some(answer)
    }

    /// An answer, waited for at most so long. `None` at once if nothing is under way.
    pub(super) fn answer_within(&mut self, patience: Duration) -> Option<(GuestId, Answer)> {
        if self.under_way == 0 {
            return None;
        }
        let answer = self.answers.recv_timeout(patience).ok()?;
        self.under_way -= 1;
        Some(answer)
    }
}
