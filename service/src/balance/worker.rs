//! One guest's thread: it owns the guest's actuator and waits for it, so that no other thread has to.

use std::io;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{Abilities, Actuator, ActuatorError, Look};

/// Creates the actuator. Runs in the guest's thread, since it asks the hypervisor.
pub(super) type MakeActuator = Box<dyn Fn() -> Result<Box<dyn Actuator>, ActuatorError> + Send>;

/// A request to the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Look,
    Resize { from: u64, to: u64 },
}

/// The answer of a guest's thread, for [`Balancer::accept`](super::Balancer::accept).
#[derive(Debug)]
pub struct Answer {
    pub(super) number: u64,
    pub(super) kind: AnswerKind,
}

/// The content of an [`Answer`].
#[derive(Debug)]
pub(super) enum AnswerKind {
    Looked(Result<(Look, Abilities), ActuatorError>),
    Resized { from: u64, to: u64, outcome: Result<u64, ActuatorError> },
}

/// A handle of the thread. After its drop the thread ends with its present request.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Sender<Job>,
}

impl Worker {
    /// Starts the thread, which asks nothing yet.
    pub(super) fn start(number: u64, make: MakeActuator, answers: Sender<Answer>) -> io::Result<Self> {
        // One request at a time: a second one would be outdated by the time it is done.
        let (jobs, waiting) = bounded(1);
        let work = move || work(number, &make, &waiting, &answers);
        std::thread::Builder::new().name("balance guest".to_owned()).spawn(work)?;
        Ok(Self { jobs })
    }

    /// Requests a look. Returns `false` if the thread is busy.
    pub(super) fn look(&self) -> bool {
        self.jobs.try_send(Job::Look).is_ok()
    }

    /// Requests a resize. Returns `false` if the thread is busy.
    pub(super) fn resize(&self, from: u64, to: u64) -> bool {
        self.jobs.try_send(Job::Resize { from, to }).is_ok()
    }
}

fn work(number: u64, make: &MakeActuator, jobs: &Receiver<Job>, answers: &Sender<Answer>) {
    let mut actuator: Option<Box<dyn Actuator>> = None;
    for job in jobs {
        let ready = match actuator.take() {
            Some(actuator) => Ok(actuator),
            None => make(),
        };
        let (kind, is_over) = match (ready, job) {
            (Ok(mut it), Job::Look) => {
                let looked = it.look().map(|look| (look, it.abilities()));
                // After a failure the actuator is created anew: the guest may answer at another address.
                let is_sound = looked.is_ok();
                actuator = is_sound.then_some(it);
                (AnswerKind::Looked(looked), false)
            }
            (Ok(mut it), Job::Resize { from, to }) => {
                let outcome = it.resize(to);
                actuator = outcome.is_ok().then_some(it);
                (AnswerKind::Resized { from, to, outcome }, false)
            }
            (Err(error), Job::Look) => {
                let is_over = matches!(error, ActuatorError::Gone);
                (AnswerKind::Looked(Err(error)), is_over)
            }
            (Err(error), Job::Resize { from, to }) => {
                (AnswerKind::Resized { from, to, outcome: Err(error) }, false)
            }
        };
        if answers.send(Answer { number, kind }).is_err() || is_over {
            return;
        }
    }
}
