//! Messages to the daemon between two turns.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use ksmith_core::balance::KsmStep;
use ksmith_host::observe::ProcessEvent;
use ksmith_host::signals::Signal;

use super::{Daemon, DaemonHost};
use crate::control::PendingRequest;
use crate::user_socket::ScanQueue;

/// The shortest time between two looks at new processes.
const GLANCE_PAUSE: Duration = Duration::from_millis(50);

/// A message to the daemon's thread.
#[derive(Debug)]
pub enum DaemonMessage {
    /// A step of balance for merging.
    Merging(KsmStep),
    /// A signal to the process.
    Signal(Signal),
    /// A request at the control socket or the read-only one.
    Asked(PendingRequest),
    /// Scans wait at the user socket.
    UserScans(ScanQueue),
    /// Process events of the kernel.
    Processes(Vec<ProcessEvent>),
    /// A pass boundary, at which ksmd pauses until the next decision.
    Rest,
}

impl From<Vec<ProcessEvent>> for DaemonMessage {
    fn from(events: Vec<ProcessEvent>) -> Self {
        Self::Processes(events)
    }
}

/// The step that follows a message.
enum InboxStep {
    Wait,
    Turn,
    End,
}

impl<H: DaemonHost> Daemon<H> {
    /// Handles messages until the deadline. Returns true if it is time to end.
    pub(super) fn serve_until(&mut self, deadline: Instant, inbox: &Receiver<DaemonMessage>) -> bool {
        let mut next_glance = self.environment.now();
        loop {
            let now = self.environment.now();
            let glance = self.controller.host().next_glance();
            let glance = glance.map(|wait| (now + wait).max(next_glance)).filter(|at| *at < deadline);
            let next = match self.environment.receive(inbox, glance.unwrap_or(deadline)) {
                Ok(message) => self.take_in(message),
                Err(RecvTimeoutError::Timeout) if glance.is_some() => {
                    let has_found = self.controller.host_mut().glance();
                    next_glance = self.environment.now() + GLANCE_PAUSE;
                    if has_found { InboxStep::Turn } else { InboxStep::Wait }
                }
                Err(RecvTimeoutError::Timeout) => InboxStep::Turn,
                // The signal thread holds a sender for ever.
                Err(RecvTimeoutError::Disconnected) => InboxStep::End,
            };
            match next {
                InboxStep::End => return true,
                InboxStep::Turn => return false,
                // The channel gives what it has even when the deadline has passed.
                InboxStep::Wait if self.environment.now() >= deadline => return false,
                InboxStep::Wait => {}
            }
        }
    }

    fn take_in(&mut self, message: DaemonMessage) -> InboxStep {
        let is_due = match message {
            DaemonMessage::Signal(Signal::End) => return InboxStep::End,
            DaemonMessage::Signal(Signal::Reload) => {
                self.reload();
                true
            }
            DaemonMessage::Asked(asked) => self.answer(asked),
            DaemonMessage::UserScans(queue) => {
                self.user_scans.add_all(&queue);
                self.serve_users()
            }
            DaemonMessage::Merging(step) => self.change_merging(&step),
            // A guest that has started or ended does not wait for the deadline.
            DaemonMessage::Rest => true,
            DaemonMessage::Processes(events) => self.controller.host_mut().notice(events),
        };
        if is_due { InboxStep::Turn } else { InboxStep::Wait }
    }
}
