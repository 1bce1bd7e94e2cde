//! The surroundings of the daemon besides its host: the clock, waiting, and the service manager.

use std::fmt;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rustix::time::{ClockId, clock_gettime};
use sd_notify::NotifyState;
use tracing::debug;

use super::DaemonMessage;

/// The daemon's clock and service manager. Tests control both.
pub trait DaemonEnvironment: fmt::Debug {
    /// Returns the present time.
    fn now(&self) -> Instant;

    /// Returns the wall clock in milliseconds since 1970. An administrator may set it, so it only dates records.
    fn day_clock(&self) -> i64;

    /// Waits for the next message until the deadline.
    ///
    /// # Errors
    /// There was none, or no sender is left.
    fn receive(
        &mut self,
        inbox: &Receiver<DaemonMessage>,
        deadline: Instant,
    ) -> Result<DaemonMessage, RecvTimeoutError>;

    /// Notifies the service manager.
    fn notify(&mut self, states: &[NotifyState<'_>]);

    /// Returns the period within which the service manager expects a sign of life.
    fn watchdog(&self) -> Option<Duration>;
}

/// The real clock, and the service manager that the environment variables name.
#[derive(Debug, Default)]
pub struct LiveEnvironment;

impl DaemonEnvironment for LiveEnvironment {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn day_clock(&self) -> i64 {
        let now = clock_gettime(ClockId::Realtime);
        now.tv_sec.saturating_mul(1000).saturating_add(now.tv_nsec / 1_000_000)
    }

    fn receive(
        &mut self,
        inbox: &Receiver<DaemonMessage>,
        deadline: Instant,
    ) -> Result<DaemonMessage, RecvTimeoutError> {
        inbox.recv_deadline(deadline)
    }

    fn notify(&mut self, states: &[NotifyState<'_>]) {
        // Without a service manager there is nothing to tell.
        if let Err(error) = sd_notify::notify(states) {
            debug!("the service manager can't be told: {error}");
        }
    }

    fn watchdog(&self) -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }
}
