//! The daemon's end of the read-only socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use serde::Deserialize;

use super::config::ViewConfig;
use super::rate::ViewRate;
use super::trimmed;
use crate::control::{ControlRequest, PendingRequest, line, refusal};
use crate::socket::{
    self, AdmittedPeer, PeerCredentials, ProtocolReply, ServedSocket, SocketLimits, SocketProtocol, watch_peer,
};

/// The greatest age of an answer.
const FRESH: Duration = Duration::from_secs(1);

/// Refusal of a process that has no account.
const UNSEEN: &str = "your process can't be seen from the daemon's PID namespace, has ended, or is another user's";

/// Error of a request that the daemon's end cuts short.
const ENDING: &str = "the daemon is ending: try again";

/// The longest wait for an answer. A daemon answers between two turns; one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request at the read-only socket. The words are those of [`ControlRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
enum ViewRequest {
    Status,
    Guests,
    Balance,
}

impl From<ViewRequest> for ControlRequest {
    fn from(view: ViewRequest) -> Self {
        match view {
            ViewRequest::Status => Self::Status,
            ViewRequest::Guests => Self::Guests,
            ViewRequest::Balance => Self::Balance,
        }
    }
}

/// Serves the read-only socket as configured. At most three requests wait at the daemon at a time, each made into a
/// message by `wrap`. Members of the group may connect. Without such a group only root may, which is logged.
///
/// # Errors
/// See [`socket::serve`].
pub fn serve<T: Send + 'static>(
    config: &ViewConfig,
    sender: Sender<T>,
    wrap: fn(PendingRequest) -> T,
) -> io::Result<ServedSocket> {
    let view = ViewProtocol { sender, wrap, rate: ViewRate::new(), last: Default::default() };
    let socket = socket::serve(&config.socket, view)?;
    socket::allow(&socket, &config.socket, &config.group)?;
    Ok(socket)
}

/// State that all connections share.
struct ViewProtocol<T> {
    sender: Sender<T>,
    wrap: fn(PendingRequest) -> T,
    rate: ViewRate,
    /// The last answer to each request.
    last: [Last; 3],
}

/// An answer and its time. The lock is held while the daemon is asked: other peers wait for the same answer.
type Last = Mutex<Option<(Instant, Arc<str>)>>;

impl<T: Send + 'static> SocketProtocol for ViewProtocol<T> {
    /// The accountable uid of the peer.
    type Peer = u32;

    const NAME: &'static str = "view";

    /// One `ksmith serve` needs one connection.
    const LIMITS: SocketLimits =
        SocketLimits { connections: 16, of_one_user: 8, request: 256, patience: Duration::from_secs(5) };

    fn admit(&self, stream: &UnixStream) -> Result<AdmittedPeer<u32>, String> {
        let credentials = PeerCredentials::from_stream(stream).map_err(|_| refusal(UNSEEN))?;
        let holder = credentials.holder().map_err(|_| refusal(UNSEEN))?;
        self.rate.count(holder).map_err(refusal)?;
        let begin = Instant::now();
        let uid = credentials.accountable_uid();
        self.rate.charge_delay(holder, begin.elapsed());
        let uid = uid.map_err(|_| refusal(UNSEEN))?;
        if uid != holder {
            self.rate.count(uid).map_err(refusal)?;
        }
        Ok(AdmittedPeer { peer: uid, uid })
    }

    fn too_many(&self, why: &str) -> String {
        refusal(why)
    }

    fn answer(&self, request: &[u8], uid: &u32, _stream: &UnixStream) -> ProtocolReply {
        if let Err(why) = self.rate.count(*uid) {
            return ProtocolReply::Last(refusal(why));
        }
        match serde_json::from_slice(request) {
            Ok(request) => ProtocolReply::Shared(self.fresh(request)),
            Err(_) => ProtocolReply::Last(refusal("only status, guests and balance can be requested here")),
        }
    }
}

impl<T: Send + 'static> ViewProtocol<T> {
    /// Returns the last answer, or a new one if that is too old.
    fn fresh(&self, request: ViewRequest) -> Arc<str> {
        let mut last = self.last[request as usize].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(then, _)| then.elapsed() < FRESH) {
            return Arc::clone(text);
        }
        let text: Arc<str> = self.request_answer(request).into();
        *last = Some((Instant::now(), Arc::clone(&text)));
        text
    }

    /// Sends a request to the daemon. A peer that hangs up meanwhile is waited for all the same, since the next one
    /// gets its answer: a peer that asks and hangs up again and again costs no more than others.
    fn request_answer(&self, request: ViewRequest) -> String {
        let (reply, answers) = bounded(1);
        let (waits, peer) = watch_peer();
        if self.sender.send((self.wrap)(PendingRequest::new(request.into(), reply, peer))).is_err() {
            return refusal(ENDING);
        }
        let answer = answers.recv_timeout(PATIENCE);
        drop(waits);
        match answer {
            Ok(answer) => line(&trimmed(answer)),
            Err(RecvTimeoutError::Timeout) => refusal("the daemon is busy; try again"),
            Err(RecvTimeoutError::Disconnected) => refusal(ENDING),
        }
    }
}

#[cfg(test)]
mod tests;
