//! Messages to the daemon between two turns.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use ksmith_core::balance::KsmStep;
use ksmith_host::observe::ProcessEvent;
use ksmith_host::signals::Signal;

use super::{Daemon, DaemonHost};
use crate::control::PendingRequest;
use crate::user_socket::ScanQueue;

/// The capacity of the inbox. Process events that do not fit become a scan; other senders wait.
pub(super) const INBOX: usize = 256;

/// The shortest time between two looks at new processes. A look that takes longer is followed by as long a pause.
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
    /// A turn as soon as events of processes may bring one forward.
    TurnByEvent,
    Turn,
    End,
}

impl<H: DaemonHost> Daemon<H> {
    /// Handles messages until the deadline, and all that are there by then. Returns true if it is time to end.
    pub(super) fn serve_until(&mut self, mut deadline: Instant, inbox: &Receiver<DaemonMessage>) -> bool {
        let mut next_glance = self.environment.now();
        loop {
            let now = self.environment.now();
            let glance = self.controller.host().next_glance();
            let glance = glance.map(|wait| (now + wait).max(next_glance)).filter(|at| *at < deadline);
            let next = match self.environment.receive(inbox, glance.unwrap_or(deadline)) {
                Ok(message) => self.take_in(message),
                Err(RecvTimeoutError::Timeout) if glance.is_some() => {
                    let began = self.environment.now();
                    let has_found = self.controller.host_mut().glance();
                    let ended = self.environment.now();
                    next_glance = ended + GLANCE_PAUSE.max(ended.duration_since(began));
                    if has_found { InboxStep::TurnByEvent } else { InboxStep::Wait }
                }
                Err(RecvTimeoutError::Timeout) => InboxStep::Turn,
                // The signal thread holds a sender for ever.
                Err(RecvTimeoutError::Disconnected) => InboxStep::End,
            };
            match next {
                InboxStep::End => return true,
                InboxStep::Turn => break,
                InboxStep::TurnByEvent => deadline = deadline.min(self.event_turn_from),
                InboxStep::Wait => {}
            }
            if self.environment.now() >= deadline {
                break;
            }
        }
        self.serve_waiting(inbox)
    }

    /// Handles the messages that wait, so that a request, or the signal to end, waits for one turn at most, however many
    /// events came before it. Returns true if it is time to end.
    fn serve_waiting(&mut self, inbox: &Receiver<DaemonMessage>) -> bool {
        for _ in 0..INBOX {
            let Some(message) = self.environment.receive_waiting(inbox) else { return false };
            if matches!(self.take_in(message), InboxStep::End) {
                return true;
            }
        }
        false
    }

    fn take_in(&mut self, message: DaemonMessage) -> InboxStep {
        let is_due = match message {
            DaemonMessage::Processes(events) => {
                // A guest that has started or ended does not wait for the deadline.
                let is_urgent = self.controller.host_mut().notice(events);
                return if is_urgent { InboxStep::TurnByEvent } else { InboxStep::Wait };
            }
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
            DaemonMessage::Rest => true,
        };
        if is_due { InboxStep::Turn } else { InboxStep::Wait }
    }
}
