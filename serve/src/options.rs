//! Options of the server, and limits on its clients.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::peers::PeerUrl;

/// Options of the server.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Address to listen on, unless the service manager passes a socket.
    pub listen: SocketAddr,
    /// The tokens of which each request must carry one; none: requests need no token.
    pub tokens: Vec<String>,
    /// Accepted host names besides those of loopback.
    pub allowed_hosts: Vec<String>,
    /// Servers of other hosts.
    pub peers: Vec<PeerUrl>,
    /// The token for those servers.
    pub peer_token: Option<String>,
    /// Limit of guests with metrics of their own.
    pub most_guests: usize,
    /// The sketch file of this host, for holders of the token. None: the server has no sketch.
    pub sketch: Option<PathBuf>,
    /// Limits on clients.
    pub limits: ClientLimits,
}

/// Limits on clients.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Limit of open connections.
    pub connections: usize,
    /// Limit of open connections from one address.
    pub of_one_address: usize,
    /// Limit of event streams.
    pub streams: usize,
    /// Limit of bytes in a request's line and headers.
    pub head_bytes: usize,
    /// Timeout for receiving a request's head; the connection is closed when it expires.
    pub head: Duration,
    /// Timeout for a write to make progress; the connection is closed when it expires.
    pub write: Duration,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            of_one_address: 192,
            streams: 64,
            head_bytes: 16 << 10,
            head: Duration::from_secs(10),
            write: Duration::from_secs(10),
        }
    }
}
