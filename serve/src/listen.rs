//! The socket to listen on: the service manager's, or one of our own.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait for the accept loop: a client that finds no place there tries again after a second.
const BACKLOG: u32 = 4096;

/// The first socket that the service manager hands over, or else one at `address`. To be called within the runtime.
///
/// # Errors
/// The address is taken, or not this host's.
pub fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    match ListenFd::from_env().take_tcp_listener(0)? {
        Some(listener) => {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        }
        None => {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        }
    }
}
