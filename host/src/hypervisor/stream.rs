//! A unix stream with a deadline for every wait.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use crate::passed_descriptors::refuse_descriptors;
use crate::peer_credentials::SocketCredentials;

/// A connection with a deadline for reads and writes.
#[derive(Debug)]
pub(super) struct TimedStream {
    socket: OwnedFd,
    /// Received bytes that are not consumed yet.
    read: Vec<u8>,
    deadline: Instant,
}

/// Maximum bytes of a message: more than any expected reply.
const LONGEST: usize = 1 << 20;

impl TimedStream {
    /// Connects, or fails at once if nothing listens or the listener's queue is full.
    pub(super) fn connect(path: &Path, patience: Duration) -> io::Result<Self> {
        Self::connect_with(patience, |socket| Ok(connect(socket, &SocketAddrUnix::new(path)?)?))
    }

    /// Does the same, with a socket that `connect` connects.
    pub(super) fn connect_with(
        patience: Duration,
        connect: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // Before there is a peer: a descriptor that it passes could block the thread that closes this.
        refuse_descriptors(&socket);
        connect(&socket).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => {
                io::Error::new(ErrorKind::WouldBlock, "another peer is connected, and others wait")
            }
            _ => error,
        })?;
        Ok(Self { socket, read: Vec::new(), deadline: Instant::now() + patience })
    }

    /// Returns the PID and the user of the process that listens there, as of its call to listen(2).
    ///
    /// # Errors
    /// Its PID namespace can't be seen from here.
    pub(super) fn peer(&self) -> io::Result<(u32, u32)> {
        let peer = SocketCredentials::from_socket(&self.socket)?;
        let unseen = || io::Error::other("the process that listens can't be seen from this PID namespace");
        Ok((peer.pid.ok_or_else(unseen)?, peer.user))
    }

    /// Sets the deadline of all following operations to `patience` from now.
    pub(super) fn allow(&mut self, patience: Duration) {
        self.deadline = Instant::now() + patience;
    }

    /// Sends all bytes.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait(PollFlags::OUT)?;
            match retry_on_intr(|| send(&self.socket, bytes, SendFlags::NOSIGNAL)) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Reads the next line, without its end.
    pub(super) fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut searched = 0;
        loop {
            if let Some(end) = self.read.iter().skip(searched).position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(searched + end + 1);
                let mut line = std::mem::replace(&mut self.read, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.read.len();
            if searched > LONGEST {
                return Err(io::Error::new(ErrorKind::InvalidData, "it sends without end, and no line"));
            }
            self.fill()?;
        }
    }

    /// Reads exactly `count` bytes.
    pub(super) fn exactly(&mut self, count: usize) -> io::Result<Vec<u8>> {
        if count > LONGEST {
            return Err(io::Error::new(ErrorKind::InvalidData, format!("it announces {count} bytes")));
        }
        while self.read.len() < count {
            self.fill()?;
        }
        let rest = self.read.split_off(count);
        Ok(std::mem::replace(&mut self.read, rest))
    }

    fn fill(&mut self) -> io::Result<()> {
        self.wait(PollFlags::IN)?;
        let mut buffer = [0; 16 << 10];
        match retry_on_intr(|| recv(&self.socket, &mut buffer[..], RecvFlags::empty())) {
            Ok((0, _)) => Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection")),
            Ok((count, _)) => {
                self.read.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        let silent = || io::Error::new(ErrorKind::TimedOut, "it does not answer in time");
        let left = self.deadline.checked_duration_since(Instant::now()).ok_or_else(silent)?;
        let left = Timespec::try_from(left).map_err(|_| silent())?;
        let mut files = [PollFd::from_borrowed_fd(self.socket.as_fd(), flags)];
        match retry_on_intr(|| poll(&mut files, Some(&left)))? {
            0 => Err(silent()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::passed_descriptors::tests::{kernel_refuses, pass_descriptor};

    const SHORT: Duration = Duration::from_millis(100);

    /// Connects to a listener that runs `act` with its one peer.
    fn peer(act: impl FnOnce(std::os::unix::net::UnixStream) + Send + 'static) -> (tempfile::TempDir, TimedStream) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || act(listener.accept().unwrap().0));
        let timed = TimedStream::connect(&path, Duration::from_secs(20)).unwrap();
        (directory, timed)
    }

    #[test]
    fn lines_and_counts_are_taken_in_order() {
        let (_directory, mut timed) = peer(|mut peer| peer.write_all(b"one\ntwo\n12345").unwrap());
        assert_eq!(timed.line().unwrap(), b"one");
        assert_eq!(timed.line().unwrap(), b"two");
        assert_eq!(timed.exactly(5).unwrap(), b"12345");
        assert_eq!(timed.line().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_peer_that_is_silent_or_never_ends_a_line_is_left() {
        let (_directory, mut timed) = peer(|_peer| std::thread::sleep(Duration::from_secs(30)));
        timed.allow(SHORT);
        assert_eq!(timed.line().unwrap_err().kind(), ErrorKind::TimedOut);
        let (_directory, mut timed) = peer(|mut peer| while peer.write_all(&[b'x'; 4096]).is_ok() {});
        assert_eq!(timed.line().unwrap_err().kind(), ErrorKind::InvalidData);
        assert!(timed.exactly(LONGEST + 1).is_err());
    }

    #[test]
    fn a_peer_that_sends_byte_by_byte_has_no_more_time_than_another() {
        let drip = |mut peer: std::os::unix::net::UnixStream| {
            // Far longer than the deadline.
            for _ in 0..500 {
                if peer.write_all(b"x").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        for is_line in [true, false] {
            let (_directory, mut timed) = peer(drip);
            timed.allow(SHORT);
            let taken = if is_line { timed.line() } else { timed.exactly(1000) };
            assert_eq!(taken.unwrap_err().kind(), ErrorKind::TimedOut);
        }
    }

    #[test]
    fn a_full_queue_is_an_error_and_no_wait() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        // A queue of one: that of the standard library is longer than some may open files.
        rustix::net::listen(&listener, 0).unwrap();
        let mut waiting = Vec::new();
        let error = loop {
            match TimedStream::connect(&path, SHORT) {
                Ok(timed) => waiting.push(timed),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("another peer is connected"), "{error}");
    }

    #[test]
    fn a_monitor_passes_no_descriptor() {
        let (passed, outcome) = crossbeam_channel::bounded(1);
        let (_directory, mut timed) = peer(move |peer| passed.send(pass_descriptor(&peer, None)).unwrap());
        let sent = outcome.recv().unwrap();
        if kernel_refuses() {
            assert_eq!(sent, Err(Errno::PERM));
            assert_eq!(timed.line().unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn the_process_that_listens_is_known() {
        let (_directory, timed) = peer(drop);
        assert_eq!(timed.peer().unwrap(), (std::process::id(), rustix::process::geteuid().as_raw()));
    }
}
