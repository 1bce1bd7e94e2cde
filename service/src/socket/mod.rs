//! Sockets that take requests by the line: the accept loop, its limits and its time-outs.
//!
//! The control socket and the user socket are each a [`Protocol`]. [`serve`] makes the socket ([`place`]), gives each
//! connection a thread and a slot ([`accept`], [`slots`]), reads requests of bounded length ([`lines`]), and sends back
//! what the protocol answers. A protocol that passes a request to the daemon waits for the answer by
//! [`answer_or_hang_up`].

mod accept;
mod caller;
mod group;
mod lines;
mod place;
mod serve;
mod slots;

pub use caller::{Awaited, Peer, Waiting, answer_or_hang_up, waiting};
pub use group::allow;
pub use serve::{Admitted, Limits, Protocol, Reply, Socket, serve};
