//! The surroundings of the daemon besides its host: the clock, waiting, and the service manager.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};
use std::{env, fmt, io};

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

    /// Returns a message that has come already.
    fn receive_waiting(&mut self, inbox: &Receiver<DaemonMessage>) -> Option<DaemonMessage> {
        inbox.try_recv().ok()
    }

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
        let Some(socket) = env::var_os("NOTIFY_SOCKET") else { return };
        if let Err(error) = notify_manager(&socket, states) {
            debug!("can't notify the service manager: {error}");
        }
    }

    fn watchdog(&self) -> Option<Duration> {
        sd_notify::watchdog_enabled()
    }
}

/// The longest wait for room in the service manager's queue, which any user may fill, with a sign of life that comes again.
const PATIENCE: Duration = Duration::from_millis(100);

/// The longest wait with a message that is sent once.
const PATIENCE_ONCE: Duration = Duration::from_secs(2);

/// Sends states to the service manager's socket: its path, or its abstract name behind `@`.
///
/// # Errors
/// There is no such socket, or no room in its queue for too long.
fn notify_manager(socket: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let comes_again = states.iter().all(|state| matches!(state, NotifyState::Watchdog | NotifyState::Status(_)));
    let datagram = UnixDatagram::unbound()?;
    datagram.set_write_timeout(Some(if comes_again { PATIENCE } else { PATIENCE_ONCE }))?;
    let text: String = states.iter().map(|state| format!("{state}\n")).collect();
    datagram.send_to_addr(text.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_others_have_filled_keeps_no_turn_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let states = [NotifyState::Ready, NotifyState::Status("fine")];
        notify_manager(path.as_os_str(), &states).unwrap();
        let mut heard = [0; 64];
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"READY=1\nSTATUS=fine\n");
        let flood = UnixDatagram::unbound().unwrap();
        flood.set_nonblocking(true).unwrap();
        while flood.send_to(b"flood", &path).is_ok() {}
        for states in [&[NotifyState::Watchdog][..], &states] {
            assert_eq!(notify_manager(path.as_os_str(), states).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        }
    }

    #[test]
    fn an_abstract_name_is_told_apart_from_a_path() {
        let name = format!("ksmith-notify-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        notify_manager(OsStr::new(&format!("@{name}")), &[NotifyState::Stopping]).unwrap();
        let mut heard = [0; 64];
        let length = manager.recv(&mut heard).unwrap();
        assert_eq!(&heard[..length], b"STOPPING=1\n");
    }
}
