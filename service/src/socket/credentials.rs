//! Credentials of a connected process, and the uid that its connection counts to.

use std::io;
use std::os::unix::net::UnixStream;

use ksmith_host::accountable::{accountable_uid, holder_of};
use ksmith_host::memory::rights::ProcessRights;
use ksmith_host::peer_credentials::SocketCredentials;
use rustix::fs::{Mode, OFlags, open};

/// Credentials that the kernel recorded when a process connected. They cost no look at the process.
#[derive(Debug, Clone, Copy)]
pub struct PeerCredentials {
    /// PID of the process; 0, which no process has, if its PID namespace can't be seen from here.
    pub pid: u32,
    /// Its user at that moment.
    pub user: u32,
    /// Its group at that moment.
    pub group: u32,
}

impl PeerCredentials {
    /// Reads the credentials of the connected process.
    ///
    /// # Errors
    /// The kernel's.
    pub fn from_stream(stream: &UnixStream) -> io::Result<Self> {
        let SocketCredentials { pid, user, group } = SocketCredentials::from_socket(stream)?;
        Ok(Self { pid: pid.unwrap_or(0), user, group })
    }

    /// Returns the user that has the peer's as a subordinate one, or the peer's. Its rate is checked before the process
    /// is looked at, which costs more than a refusal.
    ///
    /// # Errors
    /// See [`holder_of`].
    pub fn holder(self) -> io::Result<u32> {
        holder_of(self.user)
    }

    /// Returns the accountable uid of the process.
    ///
    /// # Errors
    /// It has ended, may not be examined, is in a PID namespace that can't be seen from here, or has another user than
    /// when it connected: then it may be another process that was given the PID.
    pub fn accountable_uid(self) -> io::Result<u32> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(format!("/proc/{}", self.pid), flags, Mode::empty())?;
        let uid = accountable_uid(&directory, self.pid, self.user)?;
        match ProcessRights::read(&directory)?.effective_user() == self.user {
            true => Ok(uid),
            false => Err(io::ErrorKind::PermissionDenied.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process connects as a subordinate user and ends, and its maker's next process is given the PID.
    #[test]
    fn a_peer_that_is_gone_or_has_another_user_than_connected_counts_for_nobody() {
        let user = rustix::process::getuid().as_raw();
        let own = PeerCredentials { pid: std::process::id(), user, group: 0 };
        assert_eq!((own.accountable_uid().unwrap(), own.holder().unwrap()), (user, user));
        for wrong in [
            PeerCredentials { user: 300_005, ..own },
            PeerCredentials { pid: u32::MAX, ..own },
            PeerCredentials { pid: 0, ..own },
        ] {
            assert!(wrong.accountable_uid().is_err(), "{wrong:?}");
        }
    }
}
