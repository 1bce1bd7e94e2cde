//! The client of the control socket.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ksmith_core::decide::CpuShare;

use super::figures::{WatchRequest, WatchedFigures};
use super::{ControlReply, ControlRequest, HoldRequest, ResizeReply, ResizeRequest, STOPPED, ScanReply};
use ksmith_core::model::{BalanceReport, GuestsReport, StatusReport};
use serde::Serialize;

/// A connection to the daemon.
#[derive(Debug)]
pub struct ControlClient {
    path: PathBuf,
    stream: BufReader<UnixStream>,
    /// The greatest age of figures that are shared with others; `None` if they are requested for this client alone.
    shared_age: Option<Duration>,
}

/// An error of a request to the daemon.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is no connection.
    #[error("can't reach the daemon at {}: {source}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The error of the connection attempt.
        source: io::Error,
    },
    /// It sent no answer, or none that makes sense.
    #[error("the daemon at {} does not answer as it should: {source}; {}", path.display(), remedy(source))]
    Answer {
        /// The socket.
        path: PathBuf,
        /// The failure to receive or parse the answer.
        source: io::Error,
    },
    /// It ended while a scan was in progress.
    #[error("{STOPPED}")]
    Stopped,
    /// The name that was given means no guest, or several.
    #[error("{0}")]
    NoGuest(String),
    /// It refuses the request.
    #[error("the daemon refuses: {0}")]
    Refused(String),
}

fn has_hung_up(source: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(source.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Returns a hint for an answer that is missing or makes no sense.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it may wait for the end of ksmd's batch: try again",
        _ if has_hung_up(source) => "it may just have been stopped: try again",
        _ => "it may be another version of ksmith: restart it",
    }
}

impl ClientError {
    /// Returns true if the daemon is absent, or refuses this user. Then the command reads the kernel itself.
    pub fn is_absent(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
        let Self::Connect { source, .. } = self else { return false };
        matches!(source.kind(), NotFound | ConnectionRefused | PermissionDenied | NotADirectory)
    }
}

/// A daemon answers between two ticks; one that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// A guest that gives back gigabytes in small steps takes its time.
const LONG_PATIENCE: Duration = Duration::from_secs(600);

impl ControlClient {
    /// Connects to the daemon's socket.
    ///
    /// # Errors
    /// No daemon listens there, or this user may not ask.
    pub fn connect(path: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(stream)
        });
        match stream {
            Ok(stream) => Ok(Self { path: path.to_owned(), stream: BufReader::new(stream), shared_age: None }),
            Err(source) => Err(ClientError::Connect { path: path.to_owned(), source }),
        }
    }

    /// Takes status, guests and balance from the answers that all watchers share, if they are no older than this.
    #[must_use]
    pub fn sharing(self, max_age: Duration) -> Self {
        Self { shared_age: Some(max_age), ..self }
    }

    /// Returns the daemon's status.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&mut self) -> Result<StatusReport, ClientError> {
        match self.request_figures(WatchedFigures::Status)? {
            ControlReply::Status(status) => Ok(*status),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the guests of the host, with their figures.
    ///
    /// # Errors
    /// It does not answer.
    pub fn guests(&mut self) -> Result<GuestsReport, ClientError> {
        match self.request_figures(WatchedFigures::Guests)? {
            ControlReply::Guests(report) => Ok(*report),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Returns the plan of balance.
    ///
    /// # Errors
    /// It does not answer.
    pub fn balance(&mut self) -> Result<BalanceReport, ClientError> {
        match self.request_figures(WatchedFigures::Balance)? {
            ControlReply::Balance(report) => Ok(*report),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Holds a guest, or releases it. Returns the daemon's sentence.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn hold(&mut self, hold: HoldRequest) -> Result<String, ClientError> {
        self.send_order(ControlRequest::Hold(hold))
    }

    /// Pauses merging for this time, or until it is resumed. Returns the daemon's sentence.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn pause(&mut self, time: Option<Duration>) -> Result<String, ClientError> {
        self.send_order(ControlRequest::Pause { seconds: time.map(|time| time.as_secs_f64()) })
    }

    /// Ends a pause. Returns the daemon's sentence.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn resume(&mut self) -> Result<String, ClientError> {
        self.send_order(ControlRequest::Resume)
    }

    /// Sends an order that is answered by a sentence.
    fn send_order(&mut self, request: ControlRequest) -> Result<String, ClientError> {
        match self.send_request(request)? {
            ControlReply::Done { message } => Ok(message),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Gives a guest memory or takes some, and waits until that is done.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn resize(&mut self, resize: ResizeRequest) -> Result<ResizeReply, ClientError> {
        self.stream.get_ref().set_read_timeout(Some(LONG_PATIENCE)).map_err(|source| self.broken(source))?;
        match self.send_request(ControlRequest::Resize(resize))? {
            ControlReply::Resized(answer) => Ok(answer),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Reports that a guest was switched.
    ///
    /// # Errors
    /// It does not answer.
    pub fn switched(&mut self, pid: u32, on: bool) -> Result<(), ClientError> {
        match self.send_request(ControlRequest::Switched { pid, on })? {
            ControlReply::Noted => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Requests clean passes, and waits until they are done, however long that takes.
    ///
    /// # Errors
    /// It refuses, or ends meanwhile.
    pub fn scan(&mut self, passes: u64, max_cpu: CpuShare) -> Result<ScanReply, ClientError> {
        self.stream.get_ref().set_read_timeout(None).map_err(|source| self.broken(source))?;
        match self.send_request(ControlRequest::Scan { passes, max_cpu: Some(max_cpu.part()) }) {
            Ok(ControlReply::Scan(answer)) => Ok(answer),
            Ok(other) => Err(self.unexpected(&other)),
            Err(ClientError::Answer { source, .. }) if has_hung_up(&source) => Err(ClientError::Stopped),
            Err(ClientError::Refused(message)) if message == STOPPED => Err(ClientError::Stopped),
            Err(error) => Err(error),
        }
    }

    fn request_figures(&mut self, watch: WatchedFigures) -> Result<ControlReply, ClientError> {
        match self.shared_age {
            Some(age) => self.send_request(WatchRequest { watch, max_age: age.as_secs_f64() }),
            None => self.send_request(ControlRequest::from(watch)),
        }
    }

    fn send_request(&mut self, request: impl Serialize) -> Result<ControlReply, ClientError> {
        let answer = self.exchange(request).map_err(|source| self.broken(source))?;
        match answer {
            ControlReply::Error { message } => Err(ClientError::Refused(message)),
            ControlReply::NoGuest { message } => Err(ClientError::NoGuest(message)),
            answer => Ok(answer),
        }
    }

    fn exchange(&mut self, request: impl Serialize) -> io::Result<ControlReply> {
        let mut line = serde_json::to_string(&request)?;
        line.push('\n');
        self.stream.get_mut().write_all(line.as_bytes())?;
        line.clear();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    fn broken(&self, source: io::Error) -> ClientError {
        ClientError::Answer { path: self.path.clone(), source }
    }

    fn unexpected(&self, answer: &ControlReply) -> ClientError {
        self.broken(io::Error::other(format!("an answer to another question: {answer:?}")))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_that_ends_amid_a_scan_is_told_from_one_that_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let listener = UnixListener::bind(&path).unwrap();
        let refusal = format!("{{\"answer\":\"error\",\"message\":{STOPPED:?}}}\n");
        let peer = std::thread::spawn(move || {
            for answer in ["", &refusal, "{\"answer\":\"error\",\"message\":\"no\"}\n"] {
                let mut stream = BufReader::new(listener.accept().unwrap().0);
                stream.read_line(&mut String::new()).unwrap();
                stream.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        let error = || ControlClient::connect(&path).unwrap().scan(2, CpuShare::WHOLE).unwrap_err().to_string();
        assert_eq!([error(), error(), error()], [STOPPED, STOPPED, "the daemon refuses: no"]);
        peer.join().unwrap();
    }

    #[test]
    fn each_silence_has_its_remedy() {
        let text = |kind: io::ErrorKind| {
            ClientError::Answer { path: PathBuf::from("/run/c"), source: kind.into() }.to_string()
        };
        assert!(text(io::ErrorKind::WouldBlock).ends_with("it may wait for the end of ksmd's batch: try again"));
        assert!(text(io::ErrorKind::UnexpectedEof).ends_with("it may just have been stopped: try again"));
        assert!(text(io::ErrorKind::InvalidData).ends_with("restart it"));
    }
}
