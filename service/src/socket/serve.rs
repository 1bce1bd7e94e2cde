//! The accept loop: a thread for each connection, within limits.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::SendFlags;
use tracing::debug;

use super::accept::{AcceptLoop, DescriptorReserve, spare};
use super::closer::StreamCloser;
use super::lines::LineReader;
use super::place::SocketFile;
use super::slots::{ConnectionSlots, TakenSlot};

/// The limits of a socket.
#[derive(Debug, Clone, Copy)]
pub struct SocketLimits {
    /// Open connections at most.
    pub connections: usize,
    /// Open connections of one user at most.
    pub of_one_user: usize,
    /// Bytes in a request at most.
    pub request: usize,
    /// The time for a peer to send a whole request, or to receive an answer. Then it is disconnected.
    pub patience: Duration,
}

/// A protocol that is spoken on a socket.
pub trait SocketProtocol: Send + Sync + 'static {
    /// Properties of a connected process.
    type Peer: Send;

    /// Name of the socket's threads.
    const NAME: &'static str;

    /// Limits of the socket.
    const LIMITS: SocketLimits;

    /// Identifies a process that has connected. Runs in the accept loop, so that its user pays for each delay.
    ///
    /// # Errors
    /// The process may send no request, or not as often. The text is sent to it.
    fn admit(&self, stream: &UnixStream) -> Result<AdmittedPeer<Self::Peer>, String>;

    /// The text that refuses a connection because there are too many.
    fn too_many(&self, why: &str) -> String;

    /// Answers one request.
    fn answer(&self, request: &[u8], peer: &Self::Peer, stream: &UnixStream) -> ProtocolReply;
}

/// A process that may send requests.
#[derive(Debug)]
pub struct AdmittedPeer<P> {
    /// Properties of the process.
    pub peer: P,
    /// The accountable uid, to which the connection counts.
    pub uid: u32,
}

/// The reply to a request.
#[derive(Debug, PartialEq, Eq)]
pub enum ProtocolReply {
    /// Send this and take the next request.
    Answer(String),
    /// Send this, which other connections send too, and take the next request.
    Shared(Arc<str>),
    /// Send this and close the connection.
    Last(String),
    /// Close the connection: the peer is gone.
    Close,
}

/// Threads in addition to those of connections with a slot: for connections that end.
const SPARE_THREADS: usize = 32;

/// Threads in addition to those, for root alone.
const ROOTS_THREADS: usize = 8;

const ROOT: u32 = 0;

/// Pause after a connection could not be accepted. Without a pause the loop would take a whole CPU.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that is served. Dropping it removes the file; the threads behind it end with the process.
#[derive(Debug)]
pub struct ServedSocket(SocketFile);

impl ServedSocket {
    /// Lets the members of a group connect. With `also_directory`, others may pass through the socket's directory.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn allow(&self, group: u32, also_directory: bool) -> io::Result<()> {
        self.0.allow(group, also_directory)
    }
}

/// Serves a protocol at `path`, to which only the owner may connect at first. To be called with the lock held: a socket
/// that is there already is taken for a dead daemon's.
///
/// # Errors
/// The socket can't be made. [`io::ErrorKind::AlreadyExists`]: there is something else than a socket at `path`.
/// [`io::ErrorKind::PermissionDenied`]: others may rename files in its directory.
pub fn serve<P: SocketProtocol>(path: &Path, protocol: P) -> io::Result<ServedSocket> {
    let mut place = SocketFile::open(path)?;
    let (listener, refuses_descriptors) = place.bind(path)?;
    let served = Arc::new(SocketServer {
        protocol,
        slots: ConnectionSlots::new(P::LIMITS.connections, P::LIMITS.of_one_user),
        threads: AtomicUsize::new(0),
        closer: if refuses_descriptors { None } else { Some(StreamCloser::start(P::NAME)?) },
    });
    let work = move || {
        let accept = || Some(listener.accept().map(|(stream, _)| stream));
        let refuse = |stream: UnixStream| {
            served.refuse(stream, &served.protocol.too_many("the daemon has too many files open; try again"));
        };
        let pause = || std::thread::sleep(PAUSE);
        AcceptLoop { accept, take: |stream| served.admit_connection(stream), refuse, pause }
            .run(DescriptorReserve::new(spare));
    };
    std::thread::Builder::new().name(P::NAME.to_owned()).spawn(work)?;
    Ok(ServedSocket(place))
}

/// State that all threads of a socket share.
struct SocketServer<P> {
    protocol: P,
    slots: Arc<ConnectionSlots>,
    threads: AtomicUsize,
    /// `None` if a close can't block.
    closer: Option<StreamCloser>,
}

impl<P: SocketProtocol> SocketServer<P> {
    /// Gives a connection a slot and a thread, or refuses it. Runs in the accept loop, so that a flood of connections
    /// takes no threads: nothing here waits.
    fn admit_connection(self: &Arc<Self>, stream: UnixStream) {
        self.take_with(stream, |work| {
            let thread = std::thread::Builder::new().name(format!("{} peer", P::NAME)).spawn(work);
            thread.map(|_| ())
        });
    }

    /// Does the same, with a thread that `spawn` starts.
    fn take_with(
        self: &Arc<Self>,
        stream: UnixStream,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    ) {
        let admitted = match self.protocol.admit(&stream) {
            Ok(admitted) => admitted,
            Err(text) => return self.refuse(stream, &text),
        };
        let spare = if admitted.uid == ROOT { SPARE_THREADS + ROOTS_THREADS } else { SPARE_THREADS };
        if self.threads.load(Ordering::Relaxed) >= P::LIMITS.connections + spare {
            return self.refuse(stream, &self.protocol.too_many("there are too many connections; try again"));
        }
        let stream = Arc::new(stream);
        let slot = match self.slots.take_slot(admitted.uid, &stream) {
            Ok(slot) => slot,
            Err(why) => return self.refuse(stream, &self.protocol.too_many(why)),
        };
        self.threads.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(self);
        // The thread gets the connection alone, so that it is not closed here.
        let (hand_over, connections) = bounded::<Arc<UnixStream>>(1);
        let work = move || {
            if let Ok(stream) = connections.recv() {
                if let Err(error) = shared.receive(&stream, &admitted.peer, &slot) {
                    debug!("{} socket: {error}", P::NAME);
                }
                slot.close(stream);
            }
            // Only now: a thread counts for as long as the close blocks it.
            shared.threads.fetch_sub(1, Ordering::Relaxed);
        };
        match spawn(Box::new(work)) {
            Ok(()) => drop(hand_over.send(stream)),
            Err(_) => {
                self.threads.fetch_sub(1, Ordering::Relaxed);
                self.refuse(stream, &self.protocol.too_many("the daemon can't start a thread; try again"));
            }
        }
    }

    /// Sends a refusal as far as there is room for it, and closes the connection. Nothing here waits.
    fn refuse(&self, stream: impl Into<Arc<UnixStream>>, text: &str) {
        let stream = stream.into();
        let _ = rustix::net::send(&*stream, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        if let Some(closer) = &self.closer {
            closer.close(stream);
        }
    }

    /// Serves one connection. It is idle while the daemon waits for the peer: for its request, and until it has read
    /// its answer.
    fn receive(&self, stream: &UnixStream, peer: &P::Peer, slot: &TakenSlot) -> io::Result<()> {
        let mut lines = LineReader::new(stream, P::LIMITS.request, P::LIMITS.patience);
        loop {
            let request = lines.next()?;
            if request.is_empty() {
                return Ok(());
            }
            slot.set_idle(false);
            let has_end = request.ends_with(b"\n");
            let (text, is_last) = match self.protocol.answer(&request, peer, stream) {
                ProtocolReply::Answer(text) => (text.into(), !has_end),
                ProtocolReply::Shared(text) => (text, !has_end),
                ProtocolReply::Last(text) => (text.into(), true),
                ProtocolReply::Close => return Ok(()),
            };
            slot.set_idle(true);
            send(stream, text.as_bytes(), P::LIMITS.patience)?;
            if is_last {
                return Ok(());
            }
        }
    }
}

/// Sends all bytes within `patience`, however little the peer reads at once.
fn send(stream: &UnixStream, mut bytes: &[u8], patience: Duration) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    while !bytes.is_empty() {
        // Not a time-out of the socket's: that begins anew whenever the peer has read a little.
        match rustix::net::send(stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => await_room(stream, deadline)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until the socket has room for more.
fn await_room(stream: &UnixStream, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let left = Timespec::try_from(left).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&left)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use ksmith_host::passed_descriptors::refuse_descriptors;
    use rustix::net::sockopt;

    use super::*;
    use crate::testing::pass_descriptor;

    /// A protocol that sends each line back.
    struct EchoProtocol;

    impl SocketProtocol for EchoProtocol {
        type Peer = ();
        const NAME: &'static str = "echo";
        const LIMITS: SocketLimits =
            SocketLimits { connections: 4, of_one_user: 2, request: 64, patience: Duration::from_secs(60) };

        fn admit(&self, _stream: &UnixStream) -> Result<AdmittedPeer<()>, String> {
            Ok(AdmittedPeer { peer: (), uid: 7 })
        }

        fn too_many(&self, why: &str) -> String {
            format!("busy: {why}\n")
        }

        fn answer(&self, request: &[u8], (): &(), _stream: &UnixStream) -> ProtocolReply {
            match request {
                b"bye\n" => ProtocolReply::Last("bye\n".to_owned()),
                b"leave\n" => ProtocolReply::Close,
                other => ProtocolReply::Answer(String::from_utf8_lossy(other).into_owned()),
            }
        }
    }

    fn echo() -> (tempfile::TempDir, PathBuf, ServedSocket) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = serve(&path, EchoProtocol).unwrap();
        (directory, path, socket)
    }

    fn say(path: &Path, text: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(text).unwrap();
        let mut answers = String::new();
        // The connection may be reset when not all that was sent was read.
        let _ = stream.read_to_string(&mut answers);
        answers
    }

    #[test]
    fn requests_are_answered_until_the_last() {
        let (_directory, path, _socket) = echo();
        assert_eq!(say(&path, b"one\ntwo\nbye\nthree\n"), "one\ntwo\nbye\n");
        assert_eq!(say(&path, b"one\nleave\n"), "one\n");
        assert_eq!(say(&path, &[b'x'; 64]), "x".repeat(64), "a request without an end is the last");
    }

    #[test]
    fn connections_above_the_limit_of_a_user_are_refused_with_a_sentence() {
        let (_directory, path, _socket) = echo();
        let open = || {
            let mut stream = UnixStream::connect(&path).unwrap();
            // One that is refused may be closed by now.
            let _ = stream.write_all(b"there\n");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).unwrap();
            (stream, line)
        };
        let held = [open(), open()];
        assert!(held.iter().all(|(_, line)| line == "there\n"));
        assert_eq!(open().1, "busy: this user has too many connections; try again\n");
        drop(held);
        // Their threads see that a moment later.
        while open().1 != "there\n" {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_connection_without_a_thread_is_refused_with_a_sentence() {
        let slots = ConnectionSlots::new(EchoProtocol::LIMITS.connections, EchoProtocol::LIMITS.of_one_user);
        let served =
            Arc::new(SocketServer { protocol: EchoProtocol, slots, threads: AtomicUsize::new(0), closer: None });
        // More often than the user has connections: none keeps its slot.
        for _ in 0..3 {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            served.take_with(ours, |_work| Err(io::ErrorKind::WouldBlock.into()));
            let mut text = String::new();
            theirs.read_to_string(&mut text).unwrap();
            assert_eq!(text, "busy: the daemon can't start a thread; try again\n");
        }
        assert_eq!(served.threads.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_peer_passes_no_descriptor() {
        let (_directory, path, _socket) = echo();
        let stream = UnixStream::connect(path).unwrap();
        let passed = pass_descriptor(&stream, File::open("/dev/null").unwrap());
        if refuse_descriptors(&stream) {
            assert_eq!(passed, Err(Errno::PERM));
        }
    }

    /// A TCP socket with data that its peer does not take; closing it blocks for ten minutes, or until the peer ends.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingering = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        lingering.set_nonblocking(true).unwrap();
        while lingering.write(&[0; 1 << 16]).is_ok() {}
        sockopt::set_socket_linger(&lingering, Some(Duration::from_secs(600))).unwrap();
        (lingering, listener.accept().unwrap().0)
    }

    #[test]
    fn a_descriptor_that_blocks_its_close_does_not_block_the_accept_loop() {
        let slots = ConnectionSlots::new(EchoProtocol::LIMITS.connections, EchoProtocol::LIMITS.of_one_user);
        let closer = Some(StreamCloser::start("test").unwrap());
        let served = Arc::new(SocketServer { protocol: EchoProtocol, slots, threads: AtomicUsize::new(0), closer });
        let mut held = Vec::new();
        let mut refuse_one = |spawns: fn(Box<dyn FnOnce() + Send>) -> io::Result<()>| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (lingering, peer) = lingering();
            pass_descriptor(&theirs, &lingering).unwrap();
            drop(lingering);
            held.push((theirs, peer));
            let (done, outcome) = bounded(1);
            let served = Arc::clone(&served);
            std::thread::spawn(move || {
                served.take_with(ours, spawns);
                done.send(()).unwrap();
            });
            outcome.recv_timeout(Duration::from_secs(60)).is_ok()
        };
        assert!(refuse_one(|_work| Err(io::ErrorKind::WouldBlock.into())), "refused for want of a thread");
        // Their threads read a request, so that the descriptor is closed by them: the slots stay taken.
        let spawns = |work: Box<dyn FnOnce() + Send>| std::thread::Builder::new().spawn(work).map(|_| ());
        assert!(refuse_one(spawns) && refuse_one(spawns));
        assert!(refuse_one(|_work| panic!("the user has no more slots")), "refused for want of a slot");
        assert_eq!(served.threads.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn only_a_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "dear").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, &directory.path().to_owned()] {
            let error = serve(path, EchoProtocol).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{}", path.display());
        }
        assert_eq!(fs::read_to_string(&link).unwrap(), "dear");
    }

    #[test]
    fn only_the_owner_may_connect_and_the_file_goes_with_the_socket() {
        let (_directory, path, socket) = echo();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn a_peer_that_does_not_read_its_answer_is_closed_for_another_user() {
        /// A protocol that answers without end, to users by turns.
        struct FloodProtocol(AtomicUsize);

        impl SocketProtocol for FloodProtocol {
            type Peer = ();
            const NAME: &'static str = "flood";
            const LIMITS: SocketLimits =
                SocketLimits { connections: 4, of_one_user: 4, request: 64, patience: Duration::from_secs(3600) };

            fn admit(&self, _stream: &UnixStream) -> Result<AdmittedPeer<()>, String> {
                let user = if self.0.fetch_add(1, Ordering::Relaxed) < 4 { 7 } else { 8 };
                Ok(AdmittedPeer { peer: (), uid: user })
            }

            fn too_many(&self, why: &str) -> String {
                format!("busy: {why}\n")
            }

            fn answer(&self, request: &[u8], (): &(), _stream: &UnixStream) -> ProtocolReply {
                match request {
                    b"much\n" => ProtocolReply::Answer("x".repeat(16 << 20)),
                    _ => ProtocolReply::Last("here\n".to_owned()),
                }
            }
        }

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _socket = serve(&path, FloodProtocol(AtomicUsize::new(0))).unwrap();
        let deaf: Vec<UnixStream> = (0..4)
            .map(|_| {
                let mut stream = UnixStream::connect(&path).unwrap();
                stream.write_all(b"much\n").unwrap();
                // The first bytes are there: the rest does not fit into the kernel's buffer.
                stream.read_exact(&mut [0]).unwrap();
                stream
            })
            .collect();
        assert_eq!(say(&path, b"there\n"), "here\n");
        drop(deaf);
    }

    #[test]
    fn a_peer_that_reads_byte_by_byte_has_no_more_time_than_another() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let slow = std::thread::spawn(move || {
            while theirs.read_exact(&mut [0; 4096]).is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let error = send(&ours, &vec![0; 256 << 20], Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(ours);
        slow.join().unwrap();
    }
}
