//! Requests on their way to the daemon, and answers as lines.

use crossbeam_channel::Sender;

use super::{ControlReply, ControlRequest};
use crate::socket::PeerWatch;

/// A request with the channel for its answer.
#[derive(Debug)]
pub struct PendingRequest {
    /// The request as parsed.
    pub request: ControlRequest,
    /// Channel for one answer. A peer that has hung up is no error.
    pub reply: Sender<ControlReply>,
    peer: PeerWatch,
}

impl PendingRequest {
    /// Creates a request with its answer to go to `reply`.
    pub fn new(request: ControlRequest, reply: Sender<ControlReply>, peer: PeerWatch) -> Self {
        Self { request, reply, peer }
    }

    /// Splits it into the request, the channel for its answer, and the peer.
    pub fn into_parts(self) -> (ControlRequest, Sender<ControlReply>, PeerWatch) {
        (self.request, self.reply, self.peer)
    }
}

/// Formats a refusal as a line of JSON.
pub(crate) fn refusal(why: impl Into<String>) -> String {
    line(&ControlReply::Error { message: why.into() })
}

/// Formats an answer as a line of JSON.
pub(crate) fn line(answer: &ControlReply) -> String {
    match serde_json::to_string(answer) {
        Ok(text) => text + "\n",
        // Figures that are not numbers have no JSON.
        Err(why) => format!("{{\"answer\":\"error\",\"message\":\"the answer has no JSON: {why}\"}}\n"),
    }
}
