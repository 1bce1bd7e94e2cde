//! The daemon's end of the read-only socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::config::ViewConfig;
use super::rate::ViewRate;
use crate::control::{FigureAnswers, WatchedFigures, refusal};
use crate::socket::{
    self, AdmittedPeer, PeerCredentials, ProtocolReply, ServedSocket, SocketLimits, SocketProtocol,
};

/// The greatest age of an answer.
const FRESH: Duration = Duration::from_secs(1);

/// Refusal of a process that has no account.
const UNSEEN: &str = "your process can't be seen from the daemon's PID namespace, has ended, or is another user's";

/// A request at the read-only socket. The words are those of [`ControlRequest`](crate::control::ControlRequest).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
enum ViewRequest {
    Status,
    Guests,
    Balance,
}

impl From<ViewRequest> for WatchedFigures {
    fn from(view: ViewRequest) -> Self {
        match view {
            ViewRequest::Status => Self::Status,
            ViewRequest::Guests => Self::Guests,
            ViewRequest::Balance => Self::Balance,
        }
    }
}

/// Serves the read-only socket as configured, from the answers that all watchers share. Members of the group may connect.
/// Without such a group only root may, which is logged.
///
/// # Errors
/// See [`socket::serve`].
pub fn serve<T: Send + 'static>(config: &ViewConfig, figures: Arc<FigureAnswers<T>>) -> io::Result<ServedSocket> {
    let socket = socket::serve(&config.socket, ViewProtocol { figures, rate: ViewRate::new() })?;
    socket::allow(&socket, &config.socket, &config.group)?;
    Ok(socket)
}

/// State that all connections share.
struct ViewProtocol<T> {
    figures: Arc<FigureAnswers<T>>,
    rate: ViewRate,
}

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
        match serde_json::from_slice::<ViewRequest>(request) {
            Ok(request) => ProtocolReply::Shared(self.figures.answer(request.into(), FRESH)),
            Err(_) => ProtocolReply::Last(refusal("only status, guests and balance can be requested here")),
        }
    }
}

#[cfg(test)]
mod tests;
