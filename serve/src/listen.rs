//! The listening socket: the service manager's, or a new one.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::{TcpListener, TcpSocket};

/// Length of the accept queue. A client that finds the queue full retries after a second.
const BACKLOG: u32 = 4096;

/// Returns the first socket that the service manager passes, or else binds `address`. Must be called within the
/// runtime.
///
/// # Errors
/// The address is in use, or does not belong to this host.
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
