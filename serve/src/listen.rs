//! The socket to listen on: the service manager's, or one of our own.

use std::io;
use std::net::SocketAddr;

use listenfd::ListenFd;
use tokio::net::TcpListener;

/// The first socket that the service manager hands over, or else one at `address`. To be called within the runtime.
///
/// # Errors
/// The address is taken, or not this host's.
pub async fn listener(address: SocketAddr) -> io::Result<TcpListener> {
    match ListenFd::from_env().take_tcp_listener(0)? {
        Some(listener) => {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        }
        None => TcpListener::bind(address).await,
    }
}
