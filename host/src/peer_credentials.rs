//! Credentials of the process at the other end of a Unix socket.

#![allow(unsafe_code, reason = "rustix takes the PID for one that is never 0")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

/// Credentials that the kernel recorded at connect(2), socketpair(2), or, of a listener, at listen(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketCredentials {
    /// Its PID. `None` if its PID namespace can't be seen from here.
    pub pid: Option<u32>,
    /// Its effective user at that moment.
    pub user: u32,
    /// Its effective group at that moment.
    pub group: u32,
}

impl SocketCredentials {
    /// Reads the credentials of the process at the other end of a connected socket. They cost no look at the process.
    ///
    /// # Errors
    /// It is no Unix socket.
    pub fn from_socket(socket: impl AsFd) -> io::Result<Self> {
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, all of `found`, which any bytes may fill.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut length,
            )
        };
        match result {
            0 => Ok(Self {
                pid: u32::try_from(found.pid).ok().filter(|pid| *pid > 0),
                user: found.uid,
                group: found.gid,
            }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_peer_has_its_pid_user_and_group() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let own = SocketCredentials {
            pid: Some(std::process::id()),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        };
        assert_eq!(SocketCredentials::from_socket(&ours).unwrap(), own);
        assert!(SocketCredentials::from_socket(std::fs::File::open("/dev/null").unwrap()).is_err());
    }

    const IS_INSIDE: &str = "KSMITH_TEST_PEER_OUTSIDE";

    /// Run by itself in a PID namespace of its own, with a connection to the test outside as its standard input.
    #[test]
    fn a_peer_outside_of_the_pid_namespace_has_no_pid() {
        if std::env::var_os(IS_INSIDE).is_some() {
            let found = SocketCredentials::from_socket(io::stdin()).unwrap();
            assert_eq!((found.pid, found.user), (None, rustix::process::geteuid().as_raw()));
            return;
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can make a PID namespace");
            return;
        }
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let name = "peer_credentials::tests::a_peer_outside_of_the_pid_namespace_has_no_pid";
        let done = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(IS_INSIDE, "1")
            .stdin(OwnedFd::from(ours))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && told.contains("1 passed"), "{told}");
    }
}
