//! What an operator may choose, and the bounds of what peers may cost.

use std::net::SocketAddr;
use std::time::Duration;

use crate::peers::PeerUrl;

/// What an operator may choose.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen, unless the service manager hands over a socket.
    pub listen: SocketAddr,
    /// The secret that each request must carry.
    pub token: Option<String>,
    /// Names besides loopback's by which this server may be asked.
    pub allowed_hosts: Vec<String>,
    /// Other hosts' servers.
    pub peers: Vec<PeerUrl>,
    /// The secret that those servers want.
    pub peer_token: Option<String>,
    /// Guests with metrics of their own at most.
    pub most_guests: usize,
    /// The bounds of what peers may cost.
    pub limits: Limits,
}

/// The bounds of what peers may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections at most.
    pub connections: usize,
    /// Open connections of one address at most.
    pub of_one_address: usize,
    /// Streams of events at most.
    pub streams: usize,
    /// Bytes of a request's line and headers at most.
    pub head_bytes: usize,
    /// A client that sends no whole request for so long is let go.
    pub head: Duration,
    /// A client that takes no byte of its answer for so long is let go.
    pub write: Duration,
}

impl Default for Limits {
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
