//! One guest's thread: it holds the guest's actuator, and waits for it so that nobody else has to.

use std::io;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::{Abilities, Actuator, ActuatorError, Look};

/// Makes the actuator, in the thread: that asks the hypervisor too.
pub(super) type Make = Box<dyn Fn() -> Result<Box<dyn Actuator>, ActuatorError> + Send>;

/// What it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Job {
    Look,
    Resize { from: u64, to: u64 },
}

/// What came of what a guest's thread was asked: for [`Balancer::absorb`](super::Balancer::absorb).
#[derive(Debug)]
pub struct Told {
    pub(super) number: u64,
    pub(super) what: What,
}

/// See [`Told`].
#[derive(Debug)]
pub(super) enum What {
    Looked(Result<(Look, Abilities), ActuatorError>),
    Resized { from: u64, to: u64, outcome: Result<u64, ActuatorError> },
}

/// The other end of the thread. Dropped, the thread ends when the guest lets go of it.
#[derive(Debug)]
pub(super) struct Keeper {
    jobs: Sender<Job>,
}

impl Keeper {
    /// Starts the thread; it asks nothing yet.
    pub(super) fn start(number: u64, make: Make, told: Sender<Told>) -> io::Result<Self> {
        // One job at a time: more would be stale when they are done.
        let (jobs, waiting) = bounded(1);
        let work = move || work(number, &make, &waiting, &told);
        std::thread::Builder::new().name("balance guest".to_owned()).spawn(work)?;
        Ok(Self { jobs })
    }

    /// Has it looked at. Returns whether it will be: a thread that is busy will not.
    pub(super) fn look(&self) -> bool {
        self.jobs.try_send(Job::Look).is_ok()
    }

    /// Has it resized. Returns whether it will be.
    pub(super) fn resize(&self, from: u64, to: u64) -> bool {
        self.jobs.try_send(Job::Resize { from, to }).is_ok()
    }
}

fn work(number: u64, make: &Make, jobs: &Receiver<Job>, told: &Sender<Told>) {
    let mut actuator: Option<Box<dyn Actuator>> = None;
    for job in jobs {
        let ready = match actuator.take() {
            Some(actuator) => Ok(actuator),
            None => make(),
        };
        let (what, is_over) = match (ready, job) {
            (Ok(mut it), Job::Look) => {
                let looked = it.look().map(|look| (look, it.abilities()));
                // Made anew next time: its guest may have come back under another address.
                let is_sound = looked.is_ok();
                actuator = is_sound.then_some(it);
                (What::Looked(looked), false)
            }
            (Ok(mut it), Job::Resize { from, to }) => {
                let outcome = it.resize(to);
                actuator = outcome.is_ok().then_some(it);
                (What::Resized { from, to, outcome }, false)
            }
            (Err(error), Job::Look) => {
                let is_over = matches!(error, ActuatorError::Gone);
                (What::Looked(Err(error)), is_over)
            }
            (Err(error), Job::Resize { from, to }) => (What::Resized { from, to, outcome: Err(error) }, false),
        };
        if told.send(Told { number, what }).is_err() || is_over {
            return;
        }
    }
}
