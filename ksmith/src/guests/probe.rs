//! What a guest's own hypervisor says of it: asked in threads of their own, so that one that hangs holds up nobody.

use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use ksmith_core::guest::Kind;
use ksmith_core::sample::ProcessId;

use super::mconsole::Mconsole;
use super::monitor::{MonitorError, Told, ask};
use super::switch::Target;
use crate::root::Root;

/// Questions that may be under way at once. Each takes milliseconds, or half a second where somebody hangs.
const THREADS: usize = 4;

/// Questions that may wait; more come again at the next look.
const WAITING: usize = 4096;

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Probed {
    /// From QEMU's monitor.
    pub(super) told: Option<Told>,
    /// The guest's own view of its memory.
    pub(super) memory_bytes: Option<u64>,
    /// Its name, where only its hypervisor knows it.
    pub(super) name: Option<String>,
    /// Why there is no answer.
    pub(super) error: Option<String>,
}

/// Whether there is anybody to ask.
pub(super) fn can_be_asked(target: &Target) -> bool {
    match target.identity.kind {
        // libvirt marks a domain as tainted that is spoken to behind its back: for a mere look that is too much.
        Kind::Qemu => target.has_own_socket(),
        Kind::Uml => true,
        _ => false,
    }
}

/// Asks one guest. Waits up to half a second where it hangs.
fn probe(root: &Root, target: &Target) -> Probed {
    match target.identity.kind {
        Kind::Qemu => match target.monitor(root).and_then(|mut monitor| ask(monitor.as_mut())) {
            Ok(told) => Probed { told: Some(told), ..Probed::default() },
            Err(MonitorError::NoMonitor) => Probed::default(),
            Err(error) => Probed { error: Some(error.to_string()), ..Probed::default() },
        },
        Kind::Uml => {
            let Some(console) = Mconsole::of(root, target.id.pid) else { return Probed::default() };
            let name = console.name().map(str::to_owned);
            match console.memory_bytes() {
                Ok(memory_bytes) => Probed { memory_bytes, name, ..Probed::default() },
                Err(error) => Probed { name, error: Some(error.to_string()), ..Probed::default() },
            }
        }
        _ => Probed::default(),
    }
}

/// The threads that ask.
#[derive(Debug)]
pub(super) struct Prober {
    jobs: Sender<Target>,
    answers: Receiver<(ProcessId, Probed)>,
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
                    if sender.send((target.id, probe(&root, &target))).is_err() {
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
    pub(super) fn answer(&mut self) -> Option<(ProcessId, Probed)> {
        let answer = self.answers.try_recv().ok()?;
        self.under_way = self.under_way.saturating_sub(1);
        Some(answer)
    }

    /// An answer, waited for at most so long. `None` at once if nothing is under way.
    pub(super) fn answer_within(&mut self, patience: Duration) -> Option<(ProcessId, Probed)> {
        if self.under_way == 0 {
            return None;
        }
        let answer = self.answers.recv_timeout(patience).ok()?;
        self.under_way -= 1;
        Some(answer)
    }
}
