//! The answers of the guests' threads.

use std::time::Duration;

use ksmith_core::model::ResizeRecord;
use tracing::warn;

use super::super::member::ResizeOrder;
use super::super::worker::{ActuatorAnswer, ActuatorAnswerKind};
use super::super::{ActuatorAbilities, ActuatorError, ActuatorFigures};
use super::Balancer;

impl Balancer {
    /// Handles the answer of a guest's thread.
    pub fn accept(&mut self, answer: ActuatorAnswer) {
        let Some(member) = self.members.values_mut().find(|member| member.number == answer.number) else { return };
        let key = member.candidate.key.clone();
        match answer.kind {
            ActuatorAnswerKind::Looked(outcome) => {
                member.looking = false;
                self.accept_look(&key, outcome);
            }
            ActuatorAnswerKind::Resized { from, to, outcome } => {
                member.resizing = None;
                self.accept_resize(&key, [from, to], outcome);
            }
        }
    }

    fn accept_look(&mut self, key: &str, outcome: Result<(ActuatorFigures, ActuatorAbilities), ActuatorError>) {
        let now = self.now();
        let Some(member) = self.members.get_mut(key) else { return };
        let error = match outcome {
            Ok(known) => {
                (member.known, member.error) = (Some(known), None);
                self.has_first_answer |= member.first_poll.take().is_some();
                return self.go_on(key);
            }
            Err(ActuatorError::Gone) => return self.remove(key),
            Err(error) => error,
        };
        (member.error, member.ordered) = (Some(error.to_string()), None);
        if member.first_poll.as_mut().is_some_and(|it| it.retry(now)) {
            return;
        }
        member.first_poll = None;
        if let ActuatorError::Unable(_) = error {
            // Asking again would not change that.
            member.worker = None;
        } else {
            self.backoff.record_failure(key, error.to_string(), now);
        }
    }

    fn accept_resize(&mut self, key: &str, [from, to]: [u64; 2], outcome: Result<u64, ActuatorError>) {
        let now = self.now();
        let Some(member) = self.members.get_mut(key) else { return };
        match &outcome {
            Ok(got) => {
                if let Some((look, _)) = &mut member.known {
                    look.given_bytes = *got;
                }
                self.backoff.record_resize(key, [from, to, *got], now);
            }
            Err(ActuatorError::Gone) => self.remove(key),
            Err(error) => {
                warn!("{}: {error}", member.candidate.name);
                self.backoff.record_failure(key, error.to_string(), now);
            }
        }
        let got = outcome.as_ref().ok().copied();
        let open = |done: &&mut (Duration, ResizeRecord)| done.1.key == key && !done.1.is_over();
        if let Some((_, done)) = self.done.iter_mut().rev().find(open) {
            (done.got_bytes, done.error) = (got, outcome.err().map(|error| error.to_string()));
        }
        // The next step of an order needs a fresh look. So does its first, after a step of the policy's.
        let goes_on = |order: ResizeOrder| got.is_some_and(|got| !order.moves(from, to) || order.moves(from, got));
        match self.members.get_mut(key) {
            Some(member) if member.ordered.is_some_and(goes_on) => {
                member.looking = member.worker.as_ref().is_some_and(|worker| worker.request_figures(true));
            }
            _ => self.end_order(key),
        }
    }
}
