//! The client of the user socket.

use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::protocol::{MergedMemory, RefusalKind, ScanResult, UserRequest, error, figure};

/// A connection to the daemon's user socket.
#[derive(Debug)]
pub struct UserClient {
    stream: BufReader<UnixStream>,
    line: String,
}

/// An error of a user's request.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// The daemon refuses the request.
    #[error("{1}")]
    Refused(RefusalKind, String),
    /// The connection is broken.
    #[error("the daemon's user socket: {0}")]
    Broken(#[from] io::Error),
    /// The caller has stopped waiting.
    #[error("given up")]
    GivenUp,
}

/// The interval between two checks of whether a waiting client still wants its answer.
const LOOK: Duration = Duration::from_millis(50);

impl UserClient {
    /// Connects to the daemon's user socket.
    ///
    /// # Errors
    /// No daemon listens there, or this user may not ask.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        Ok(Self { stream: BufReader::new(stream), line: String::new() })
    }

    /// Requests a scan of all mergeable memory, and waits until it is done or `is_over`.
    ///
    /// # Errors
    /// It is refused, or given up.
    pub fn scan(&mut self, passes: NonZeroU64, is_over: impl Fn() -> bool) -> Result<ScanResult, UserError> {
        let line = self.send_request(UserRequest::Scan(passes), is_over)?;
        let figure = |key| figure(&line, key);
        let merged = figure("merged_bytes").zip(figure("saved_bytes"));
        Ok(ScanResult {
            passes: figure("passes").unwrap_or(0),
            merged: merged.map(|(merged_bytes, saved_bytes)| MergedMemory { merged_bytes, saved_bytes }),
            ksmd_cpu_ns: figure("ksmd_cpu_ns").unwrap_or(0),
        })
    }

    /// Sends a request, and returns the answer's last line.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn send_request(&mut self, request: UserRequest, is_over: impl Fn() -> bool) -> Result<String, UserError> {
        self.stream.get_mut().write_all(request.to_string().as_bytes())?;
        loop {
            let line = self.next_line(&is_over)?;
            if let Some((refusal, text)) = error(&line) {
                return Err(UserError::Refused(refusal, text));
            }
            if line.starts_with("ok") {
                return Ok(line);
            }
        }
    }

    fn next_line(&mut self, is_over: &impl Fn() -> bool) -> Result<String, UserError> {
        self.line.clear();
        loop {
            match self.stream.read_line(&mut self.line) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(_) if self.line.ends_with('\n') => return Ok(std::mem::take(&mut self.line)),
                Ok(_) => {}
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if is_over() {
                        return Err(UserError::GivenUp);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
