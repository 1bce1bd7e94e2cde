//! Requests by the line, with bounded length and time.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A reader of a connection's lines.
#[derive(Debug)]
pub(super) struct LineReader<'a> {
    stream: &'a UnixStream,
    longest: usize,
    patience: Duration,
    /// Bytes that were read and belong to the next lines.
    ahead: Vec<u8>,
}

impl<'a> LineReader<'a> {
    /// Creates a reader of lines of at most `longest` bytes. Each must be complete within `patience`.
    pub(super) fn new(stream: &'a UnixStream, longest: usize, patience: Duration) -> Self {
        Self { stream, longest, patience, ahead: Vec::new() }
    }

    /// Reads the next line with its end. A line without one is the last: the peer sends no more, or the line is too
    /// long. Empty: the connection has ended.
    ///
    /// # Errors
    /// The connection fails, or the time is over.
    pub(super) fn next(&mut self) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + self.patience;
        let mut searched = 0;
        loop {
            let end = self.ahead[searched..].iter().position(|&byte| byte == b'\n');
            if let Some(end) = end.map(|at| searched + at + 1).filter(|end| *end <= self.longest) {
                let rest = self.ahead.split_off(end);
                return Ok(std::mem::replace(&mut self.ahead, rest));
            }
            searched = self.ahead.len();
            if searched >= self.longest {
                self.ahead.truncate(self.longest);
                return Ok(std::mem::take(&mut self.ahead));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 1024];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(std::mem::take(&mut self.ahead)),
                Ok(count) => self.ahead.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::Shutdown;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_that_arrive_together_are_told_apart() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"one\ntwo\nthr").unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        let mut lines = LineReader::new(&ours, 100, LONG);
        let all: Vec<_> = (0..4).map(|_| lines.next().unwrap()).collect();
        assert_eq!(all, [&b"one\n"[..], b"two\n", b"thr", b""]);
    }

    #[test]
    fn a_line_that_is_too_long_is_cut_and_has_no_end() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"123456789\n").unwrap();
        assert_eq!(LineReader::new(&ours, 4, LONG).next().unwrap(), b"1234");
    }

    #[test]
    fn bytes_in_time_do_not_make_a_line_in_time() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let slow = std::thread::spawn(move || {
            while theirs.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let error = LineReader::new(&ours, usize::MAX, Duration::from_millis(50)).next().unwrap_err();
        assert!(matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{error}");
        drop(ours);
        slow.join().unwrap();
    }
}
