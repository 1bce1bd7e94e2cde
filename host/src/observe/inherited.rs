//! The socket of process events that the service manager made for ksmith, in the network namespace of the host.
//!
//! The kernel sends process events only to sockets of that namespace. With this one the daemon needs no network itself.

use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{AddressFamily, netlink, sockopt};

/// The socket's name: `FileDescriptorName=` in packaging/systemd/ksmith-events.socket.
const NAME: &str = "process-events";

/// Takes the socket; `None` if the service manager made none, or the socket was taken before.
#[allow(unsafe_code, reason = "the service manager tells descriptors by number")]
pub(super) fn take_socket() -> Option<OwnedFd> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let (number, _) = sd_notify::listen_fds_with_names().ok()?.find(|(_, name)| name == NAME)?;
    if IS_TAKEN.swap(true, Ordering::AcqRel) {
        return None;
    }
    // SAFETY: the service manager opened this descriptor for this process before its start, so that nothing else here
    // owns it, and `IS_TAKEN` lets it be taken once.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    if is_connector(&socket) && rustix::io::ioctl_fionbio(&socket, true).is_ok() {
        return Some(socket);
    }
    tracing::warn!("descriptor {number}, named {NAME}, is not a socket of the kernel's connector");
    // The environment was wrong about it: the descriptor may be another's.
    let _ = socket.into_raw_fd();
    None
}

/// Returns true if it is a netlink socket of the connector.
fn is_connector(socket: impl AsFd) -> bool {
    let is_netlink = sockopt::socket_domain(&socket).is_ok_and(|domain| domain == AddressFamily::NETLINK);
    is_netlink && sockopt::socket_protocol(&socket).is_ok_and(|protocol| protocol == Some(netlink::CONNECTOR))
}

#[cfg(test)]
mod tests {
    use rustix::net::{SocketType, socket};

    use super::*;

    #[test]
    fn only_a_socket_of_the_connector_is_one() {
        let netlink = |protocol| socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(protocol)).unwrap();
        assert!(!is_connector(netlink(netlink::GENERIC)));
        assert!(!is_connector(socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap()));
        assert!(!is_connector(std::fs::File::open("/dev/null").unwrap()));
        if let Ok(socket) = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::CONNECTOR)) {
            assert!(is_connector(socket));
        }
    }
}
