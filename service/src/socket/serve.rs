//! The accept loop: a thread for each connection, within limits.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tracing::{debug, warn};

use super::lines::Lines;
use super::slots::Slots;

/// The limits of a socket.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Open connections at most.
    pub connections: usize,
    /// Open connections of one user at most.
    pub of_one_user: usize,
    /// Bytes in a request at most.
    pub request: usize,
    /// A peer that sends no whole request or takes no answer for so long is let go.
    pub patience: Duration,
}

/// What is spoken on a socket.
pub trait Protocol: Send + Sync + 'static {
    /// What is known of the process that has connected.
    type Peer;

    /// The name of its threads.
    const NAME: &'static str;

    /// Its limits.
    const LIMITS: Limits;

    /// Finds out which process has connected.
    ///
    /// # Errors
    /// The process may not ask. The text is sent to it.
    fn admit(&self, stream: &UnixStream) -> Result<Admitted<Self::Peer>, String>;

    /// The text that refuses a connection because there are too many.
    fn too_many(&self, why: &str) -> String;

    /// Answers one request.
    fn answer(&self, request: &[u8], peer: &Self::Peer, stream: &UnixStream) -> Reply;
}

/// A process that may ask.
#[derive(Debug)]
pub struct Admitted<P> {
    /// What the protocol knows of it.
    pub peer: P,
    /// The accountable uid, to which the connection counts.
    pub uid: u32,
}

/// What to do after a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send this and take the next request.
    Answer(String),
    /// Send this and close the connection.
    Last(String),
    /// Close the connection: the peer is gone.
    Close,
}

/// Threads besides those of connections with a slot: for connections that are refused or end.
const SPARE_THREADS: usize = 32;

/// Pause after a connection could not be accepted, such as when no descriptor is left. Without a pause the loop would
/// take a whole CPU.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that is served. Dropping it removes the file; the threads behind it end with the process.
#[derive(Debug)]
pub struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // A file that stays behind is removed by the next daemon.
        let _ = remove_socket(&self.0);
    }
}

/// Serves a protocol at `path`, to which only the owner may connect at first. To be called with the lock held: a socket
/// that is there already is taken for a dead daemon's.
///
/// # Errors
/// The socket can't be made. [`io::ErrorKind::AlreadyExists`]: there is something else than a socket at `path`.
pub fn serve<P: Protocol>(path: &Path, protocol: P) -> io::Result<Socket> {
    remove_socket(path)?;
    let listener = UnixListener::bind(path)?;
    let socket = Socket(path.to_owned());
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let served = Arc::new(Served {
        protocol,
        slots: Slots::new(P::LIMITS.connections, P::LIMITS.of_one_user),
        threads: AtomicUsize::new(0),
    });
    let work = move || accept(listener.incoming(), || std::thread::sleep(PAUSE), |stream| served.start(stream));
    std::thread::Builder::new().name(P::NAME.to_owned()).spawn(work)?;
    Ok(socket)
}

/// Takes each connection, and pauses after each error.
fn accept<S>(incoming: impl Iterator<Item = io::Result<S>>, pause: impl Fn(), take: impl Fn(S)) {
    let mut is_failing = false;
    for connection in incoming {
        match connection {
            Ok(connection) => {
                is_failing = false;
                take(connection);
            }
            Err(error) => {
                if !std::mem::replace(&mut is_failing, true) {
                    warn!("connections can't be accepted: {error}; trying on");
                }
                pause();
            }
        }
    }
}

/// What all threads of a socket share.
struct Served<P> {
    protocol: P,
    slots: Slots,
    threads: AtomicUsize,
}

impl<P: Protocol> Served<P> {
    /// Starts a thread for a connection.
    fn start(self: &Arc<Self>, stream: UnixStream) {
        if self.threads.load(Ordering::Relaxed) >= P::LIMITS.connections + SPARE_THREADS {
            return refuse(&stream, &self.protocol.too_many("too many are connected; try again"));
        }
        self.threads.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(self);
        let spawned = std::thread::Builder::new().name(format!("{} peer", P::NAME)).spawn(move || {
            if let Err(error) = shared.receive(&Arc::new(stream)) {
                debug!("{} socket: {error}", P::NAME);
            }
            shared.threads.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Serves one connection.
    fn receive(&self, stream: &Arc<UnixStream>) -> io::Result<()> {
        stream.set_write_timeout(Some(P::LIMITS.patience))?;
        let admitted = match self.protocol.admit(stream) {
            Ok(admitted) => admitted,
            Err(text) => {
                refuse(stream, &text);
                return Ok(());
            }
        };
        let slot = match self.slots.take(admitted.uid, stream) {
            Ok(slot) => slot,
            Err(why) => {
                refuse(stream, &self.protocol.too_many(why));
                return Ok(());
            }
        };
        let mut lines = Lines::new(stream, P::LIMITS.request, P::LIMITS.patience);
        loop {
            slot.set_idle(true);
            let request = lines.next()?;
            if request.is_empty() {
                return Ok(());
            }
            slot.set_idle(false);
            let (text, is_last) = match self.protocol.answer(&request, &admitted.peer, stream) {
                Reply::Answer(text) => (text, !request.ends_with(b"\n")),
                Reply::Last(text) => (text, true),
                Reply::Close => return Ok(()),
            };
            (&**stream).write_all(text.as_bytes())?;
            if is_last {
                return Ok(());
            }
        }
    }
}

fn refuse(mut stream: &UnixStream, text: &str) {
    let _ = stream.set_write_timeout(Some(PAUSE));
    let _ = stream.write_all(text.as_bytes());
}

/// Removes a socket, and nothing else: an operator gave the path, and may have mistyped it.
fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io::{BufRead, BufReader, Read};

    use super::*;

    /// Sends each line back.
    struct Echo;

    impl Protocol for Echo {
        type Peer = ();
        const NAME: &'static str = "echo";
        const LIMITS: Limits =
            Limits { connections: 4, of_one_user: 2, request: 64, patience: Duration::from_secs(60) };

        fn admit(&self, _stream: &UnixStream) -> Result<Admitted<()>, String> {
            Ok(Admitted { peer: (), uid: 7 })
        }

        fn too_many(&self, why: &str) -> String {
            format!("busy: {why}\n")
        }

        fn answer(&self, request: &[u8], (): &(), _stream: &UnixStream) -> Reply {
            match request {
                b"bye\n" => Reply::Last("bye\n".to_owned()),
                b"leave\n" => Reply::Close,
                other => Reply::Answer(String::from_utf8_lossy(other).into_owned()),
            }
        }
    }

    fn echo() -> (tempfile::TempDir, PathBuf, Socket) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = serve(&path, Echo).unwrap();
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
    fn a_failing_accept_pauses_each_time_and_goes_on() {
        let fails = || Err(io::Error::from_raw_os_error(libc::EMFILE));
        let (pauses, taken) = (Cell::new(0), RefCell::new(Vec::new()));
        let incoming = [fails(), fails(), Ok(1), fails(), Ok(2)];
        accept(incoming.into_iter(), || pauses.set(pauses.get() + 1), |it| taken.borrow_mut().push(it));
        assert_eq!((pauses.get(), taken.into_inner()), (3, vec![1, 2]));
    }

    #[test]
    fn only_a_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "dear").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, &directory.path().to_owned()] {
            let error = serve(path, Echo).unwrap_err();
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
}
