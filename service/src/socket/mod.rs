//! Sockets that take requests by the line: the accept loop, its limits and its time-outs.
//!
//! The control socket and the user socket are each a [`SocketProtocol`]. [`serve`] makes the socket ([`place`]), gives each
//! connection a thread and a slot ([`accept`], [`slots`]), reads requests of bounded length ([`lines`]), and sends back
//! what the protocol answers. A protocol that passes a request to the daemon waits for the answer by
//! [`answer_or_hang_up`].

mod accept;
mod caller;
mod closer;
mod credentials;
mod group;
mod lines;
mod place;
mod serve;
mod slots;

pub use accept::connections_for_delay;
pub use caller::{AwaitedAnswer, PeerGuard, PeerWatch, answer_or_hang_up, watch_peer};
pub use credentials::PeerCredentials;
pub use group::allow;
pub use serve::{AdmittedPeer, ProtocolReply, ServedSocket, SocketLimits, SocketProtocol, serve};
