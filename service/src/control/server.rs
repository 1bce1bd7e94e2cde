//! The daemon's end of the control socket: passes requests on, and writes answers as JSON lines.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use ksmith_host::peer_credentials::SocketCredentials;

use super::ControlRequest;
use super::figures::{FigureAnswers, WatchRequest};
use super::pending::{PendingRequest, line, refusal};
use crate::socket::{
    self, AdmittedPeer, AwaitedAnswer, ProtocolReply, ServedSocket, SocketLimits, SocketProtocol,
    answer_or_hang_up, watch_peer,
};

const ROOT: u32 = 0;

/// Serves the control socket at `path`, to which only root may connect, and passes each request on, made into a message
/// by `wrap`. Who watches shares the answers of `figures`. To be called with the lock held.
///
/// # Errors
/// See [`socket::serve`].
pub fn serve<T: Send + 'static>(
    path: &Path,
    sender: Sender<T>,
    wrap: fn(PendingRequest) -> T,
    figures: Arc<FigureAnswers<T>>,
) -> io::Result<ServedSocket> {
    socket::serve(path, ControlProtocol { sender, wrap, figures })
}

struct ControlProtocol<T> {
    sender: Sender<T>,
    wrap: fn(PendingRequest) -> T,
    figures: Arc<FigureAnswers<T>>,
}

impl<T: Send + 'static> SocketProtocol for ControlProtocol<T> {
    type Peer = ();

    const NAME: &'static str = "control";

    /// Root alone can connect, and needs few connections.
    const LIMITS: SocketLimits =
        SocketLimits { connections: 16, of_one_user: 16, request: 4096, patience: Duration::from_secs(5) };

    /// The file's mode keeps others out; a descriptor that root passed on does not.
    fn admit(&self, stream: &UnixStream) -> Result<AdmittedPeer<()>, String> {
        let peer = SocketCredentials::from_socket(stream).map_err(|error| refusal(error.to_string()))?;
        if peer.user == ROOT { Ok(AdmittedPeer { peer: (), uid: 0 }) } else { Err(refusal("only root may ask")) }
    }

    fn too_many(&self, why: &str) -> String {
        refusal(why)
    }

    fn answer(&self, request: &[u8], (): &(), stream: &UnixStream) -> ProtocolReply {
        if let Ok(watched) = serde_json::from_slice::<WatchRequest>(request) {
            return ProtocolReply::Shared(self.figures.answer(watched.watch, watched.greatest_age()));
        }
        let request: ControlRequest = match serde_json::from_slice(request) {
            Ok(request) => request,
            Err(error) => return ProtocolReply::Last(refusal(format!("no request: {error}"))),
        };
        let cut_short = request.cut_short();
        let (reply, answers) = bounded(1);
        let (waits, peer) = watch_peer();
        if self.sender.send((self.wrap)(PendingRequest::new(request, reply, peer))).is_err() {
            return ProtocolReply::Last(refusal(cut_short));
        }
        let answer = answer_or_hang_up(&answers, stream);
        drop(waits);
        match answer {
            AwaitedAnswer::Answer(answer) => ProtocolReply::Answer(line(&answer)),
            AwaitedAnswer::HungUp => ProtocolReply::Close,
            AwaitedAnswer::Ended => ProtocolReply::Answer(refusal(cut_short)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::path::PathBuf;

    use crossbeam_channel::unbounded;

    use super::super::{ControlClient, ControlReply, STOPPED, UNANSWERED};
    use super::*;

    /// Serves a socket that refuses all requests with the sentence "no".
    fn refusing() -> (tempfile::TempDir, PathBuf, ServedSocket) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let (sender, asked) = unbounded::<PendingRequest>();
        let figures = FigureAnswers::new(sender.clone(), |asked| asked);
        let socket = serve(&path, sender, |asked| asked, figures).unwrap();
        std::thread::spawn(move || {
            for PendingRequest { reply, .. } in asked {
                let _ = reply.send(ControlReply::Error { message: "no".to_owned() });
            }
        });
        (directory, path, socket)
    }

    #[test]
    fn an_answer_reaches_the_process_that_asked() {
        let (_directory, path, socket) = refusing();
        let mut client = ControlClient::connect(&path).unwrap();
        let expected = if rustix::process::geteuid().is_root() { "no" } else { "only root" };
        for _ in 0..2 {
            let error = client.status().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        drop(socket);
        assert!(ControlClient::connect(&path).unwrap_err().is_absent());
    }

    #[test]
    fn garbage_is_answered_and_the_next_peer_served() {
        let (_directory, path, _socket) = refusing();
        for garbage in [&b"\n"[..], b"{}\n", b"nonsense\n", b"\0\n", b"\xff\xfe\n"] {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(garbage).unwrap();
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            assert!(line.contains("\"answer\":\"error\""), "{garbage:?} gave {line}");
        }
        let mut endless = UnixStream::connect(&path).unwrap();
        let _ = endless.write_all(&[b'x'; 100_000]);
        assert!(ControlClient::connect(&path).unwrap().status().is_err());
    }

    #[test]
    fn a_request_that_the_daemons_end_leaves_unanswered_has_a_fitting_error() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let requests = [
            (r#"{"request":"status"}"#, UNANSWERED),
            (r#"{"request":"hold","guest":"web","release":false}"#, UNANSWERED),
            (r#"{"request":"scan","passes":2}"#, STOPPED),
        ];
        for (request, why) in requests {
            let (sender, asked) = unbounded::<PendingRequest>();
            let figures = FigureAnswers::new(sender.clone(), |asked: PendingRequest| asked);
            let control = ControlProtocol { sender, wrap: |asked| asked, figures };
            let daemon = std::thread::spawn(move || drop(asked.recv().unwrap()));
            let answer = || control.answer(request.as_bytes(), &(), &ours);
            assert_eq!(answer(), ProtocolReply::Answer(refusal(why)), "{request}");
            daemon.join().unwrap();
            assert_eq!(answer(), ProtocolReply::Last(refusal(why)), "{request}");
        }
    }

    #[test]
    fn a_peer_that_hangs_up_is_noticed_and_one_that_only_listens_waits() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let (sender, asked) = unbounded::<PendingRequest>();
        let figures = FigureAnswers::new(sender.clone(), |asked| asked);
        let _socket = serve(&path, sender, |asked| asked, figures).unwrap();
        let ask = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(b"{\"request\":\"scan\",\"passes\":2}\n").unwrap();
            (stream, asked.recv().unwrap().into_parts())
        };
        let (stream, (_, _reply, peer)) = ask();
        assert!(!peer.has_gone());
        drop(stream);
        while !peer.has_gone() {
            std::thread::yield_now();
        }
        let (stream, (_, reply, peer)) = ask();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!peer.has_gone());
        drop(reply);
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains(STOPPED), "{line}");
    }
}
