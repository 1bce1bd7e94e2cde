//! The requests to one guest: threads of a pool wait for its actuator, so that no other thread has to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::Sender;
use ksmith_host::fair_pool::{FairPool, PoolLimits, RequestAccount};

use super::{ActuatorAbilities, ActuatorError, ActuatorFigures, MemoryActuator};

/// Requests to guests. One that hangs holds its thread for a resize at most, some ten seconds.
pub(super) const LIMITS: PoolLimits =
    PoolLimits { threads: 16, of_users: 8, of_one_user: 2, waiting_of_one_user: 64, waiting_of_host: 1 << 16 };

/// Creates the actuator. Runs in a thread of the pool, since it asks the hypervisor.
pub(super) type MakeActuator = Box<dyn Fn() -> Result<Box<dyn MemoryActuator>, ActuatorError> + Send>;

/// A request to the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActuatorJob {
    /// With `acts`, the guest is prepared first: a resize may follow.
    Look {
        acts: bool,
    },
    Resize {
        from: u64,
        to: u64,
    },
}

/// The answer of a guest, for [`Balancer::accept`](super::Balancer::accept).
#[derive(Debug)]
pub struct ActuatorAnswer {
    pub(super) number: u64,
    pub(super) kind: ActuatorAnswerKind,
}

/// The content of an [`ActuatorAnswer`].
#[derive(Debug)]
pub(super) enum ActuatorAnswerKind {
    Looked(Result<(ActuatorFigures, ActuatorAbilities), ActuatorError>),
    Resized { from: u64, to: u64, outcome: Result<u64, ActuatorError> },
}

/// A handle of the guest. After its drop no request is begun.
#[derive(Debug)]
pub(super) struct ActuatorWorker {
    guest: Arc<ActuatorSlot>,
    pool: Arc<FairPool>,
    account: RequestAccount,
}

/// One guest with its actuator, which is created at the first request.
struct ActuatorSlot {
    number: u64,
    make: Mutex<MakeActuator>,
    actuator: Mutex<Option<Box<dyn MemoryActuator>>>,
    /// True while a request waits or is under way. A second one would be outdated by the time it is done.
    is_busy: AtomicBool,
    has_ended: AtomicBool,
    answers: Sender<ActuatorAnswer>,
}

impl std::fmt::Debug for ActuatorSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("number", &self.number).finish_non_exhaustive()
    }
}

impl ActuatorWorker {
    /// Creates a worker without requests.
    pub(super) fn new(
        number: u64,
        make: MakeActuator,
        answers: Sender<ActuatorAnswer>,
        pool: &Arc<FairPool>,
        account: RequestAccount,
    ) -> Self {
        let guest = ActuatorSlot {
            number,
            make: Mutex::new(make),
            actuator: Mutex::default(),
            is_busy: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            answers,
        };
        Self { guest: Arc::new(guest), pool: Arc::clone(pool), account }
    }

    /// Requests a look. With `acts`, the guest is prepared first: a resize may follow. Returns `false` if the guest is
    /// busy or has ended, or if too many requests of its user wait.
    pub(super) fn request_figures(&self, acts: bool) -> bool {
        self.request(ActuatorJob::Look { acts })
    }

    /// Requests a resize. Returns `false` as a look does.
    pub(super) fn request_resize(&self, from: u64, to: u64) -> bool {
        self.request(ActuatorJob::Resize { from, to })
    }

    fn request(&self, job: ActuatorJob) -> bool {
        if self.guest.has_ended.load(Ordering::Acquire) || self.guest.is_busy.swap(true, Ordering::AcqRel) {
            return false;
        }
        let guest = Arc::downgrade(&self.guest);
        let is_accepted = self.pool.push(self.account, move || {
            if let Some(guest) = guest.upgrade() {
                guest.carry_out(job);
            }
        });
        if !is_accepted {
            self.guest.is_busy.store(false, Ordering::Release);
        }
        is_accepted
    }
}

impl ActuatorSlot {
    fn carry_out(&self, job: ActuatorJob) {
        let ready = match self.take_actuator() {
            Some(actuator) => Ok(actuator),
            None => self.make.lock().unwrap_or_else(PoisonError::into_inner)(),
        };
        let kind = match (ready, job) {
            (Ok(mut it), ActuatorJob::Look { acts }) => {
                if acts {
                    it.prepare();
                }
                let looked = it.read_figures().map(|look| (look, it.abilities()));
                // After a failure the actuator is created anew: the guest may answer at another address.
                if looked.is_ok() {
                    self.keep(it);
                }
                ActuatorAnswerKind::Looked(looked)
            }
            (Ok(mut it), ActuatorJob::Resize { from, to }) => {
                it.prepare();
                let outcome = it.resize(to);
                if outcome.is_ok() {
                    self.keep(it);
                }
                ActuatorAnswerKind::Resized { from, to, outcome }
            }
            (Err(error), ActuatorJob::Look { .. }) => {
                self.has_ended.store(matches!(error, ActuatorError::Gone), Ordering::Release);
                ActuatorAnswerKind::Looked(Err(error))
            }
            (Err(error), ActuatorJob::Resize { from, to }) => {
                ActuatorAnswerKind::Resized { from, to, outcome: Err(error) }
            }
        };
        self.is_busy.store(false, Ordering::Release);
        // At the end there is no receiver any more.
        let _ = self.answers.send(ActuatorAnswer { number: self.number, kind });
    }

    fn take_actuator(&self) -> Option<Box<dyn MemoryActuator>> {
        self.actuator.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn keep(&self, actuator: Box<dyn MemoryActuator>) {
        *self.actuator.lock().unwrap_or_else(PoisonError::into_inner) = Some(actuator);
    }
}
