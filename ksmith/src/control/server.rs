//! The daemon's end of the control socket: threads that read a request, pass it on and write the answer.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use rustix::event::{PollFd, PollFlags};
use tracing::debug;

use super::{Answer, Request, STOPPED};

/// A request, and where its answer goes.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Takes one answer. That nobody waits for it any more is no error.
    pub reply: Sender<Answer>,
    peer: Weak<()>,
}

impl Asked {
    /// Splits it into what is asked, where the answer goes, and whether anybody waits for it.
    pub fn into_parts(self) -> (Request, Sender<Answer>, Peer) {
        (self.request, self.reply, Peer(self.peer))
    }
}

/// Whoever asked.
#[derive(Debug)]
pub struct Peer(Weak<()>);

impl Peer {
    /// Whether it has hung up.
    pub fn has_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// As long as this is held, its [`Peer`] waits.
#[derive(Debug)]
pub struct Waiting(#[allow(dead_code, reason = "it is only held")] Arc<()>);

/// Somebody who waits, and what tells whether it still does.
pub fn waiting() -> (Waiting, Peer) {
    let waiting = Arc::new(());
    let peer = Peer(Arc::downgrade(&waiting));
    (Waiting(waiting), peer)
}

/// How often a peer that waits is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Open connections at most: root alone can connect, and needs few.
const CONNECTIONS: usize = 16;

/// A request is one short line.
const LONGEST_REQUEST: u64 = 4096;

/// A peer that says or takes nothing for so long is let go.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket. Dropping it removes the file; the thread behind it ends with the process.
#[derive(Debug)]
pub struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        // A file that stays behind is removed by the next daemon.
        let _ = remove_socket(&self.0);
    }
}

/// Listens at `path`, which only root may connect to, and sends each request on, made into a message by `wrap`.
/// Call it only with the lock held: a socket that is there already is taken for a dead daemon's.
///
/// # Errors
/// The socket can't be made. [`io::ErrorKind::AlreadyExists`]: there is something else than a socket at `path`.
pub fn serve<T: Send + 'static>(path: &Path, sender: Sender<T>, wrap: fn(Asked) -> T) -> io::Result<Socket> {
    remove_socket(path)?;
    let listener = UnixListener::bind(path)?;
    let socket = Socket(path.to_owned());
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let open = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { continue };
            if open.load(Ordering::Relaxed) >= CONNECTIONS {
                continue;
            }
            open.fetch_add(1, Ordering::Relaxed);
            let (sender, counted) = (sender.clone(), Arc::clone(&open));
            let spawned = std::thread::Builder::new().name("control peer".to_owned()).spawn(move || {
                if let Err(error) = converse(stream, &sender, wrap) {
                    debug!("control socket: {error}");
                }
                counted.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(socket)
}

/// Removes a socket, and nothing else: the path is an operator's, who may have mistyped it.
pub(crate) fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn converse<T>(stream: UnixStream, sender: &Sender<T>, wrap: fn(Asked) -> T) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // The file's mode keeps others out; a descriptor that root passed on does not.
    if !is_root(&stream)? {
        return answer(&stream, &Answer::Error { message: "only root may ask".to_owned() });
    }
    loop {
        let mut line = Vec::new();
        // A reader per request, so that its limit is, and never a byte of the next: peers wait for the answer.
        BufReader::new((&stream).take(LONGEST_REQUEST)).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        let request = match serde_json::from_slice(&line) {
            Ok(request) => request,
            Err(error) => return answer(&stream, &Answer::Error { message: format!("no request: {error}") }),
        };
        let (reply, answers) = bounded(1);
        let waiting = Arc::new(());
        let ended = || io::Error::other("the daemon is ending");
        let asked = Asked { request, reply, peer: Arc::downgrade(&waiting) };
        sender.send(wrap(asked)).map_err(|_| ended())?;
        let given = loop {
            match answers.recv_timeout(LOOK) {
                Ok(given) => break given,
                Err(RecvTimeoutError::Timeout) if has_hung_up(&stream) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break Answer::Error { message: STOPPED.to_owned() },
            }
        };
        drop(waiting);
        answer(&stream, &given)?;
    }
}

/// Whether nobody is at the other end. One that will say no more but listens still is there.
pub(crate) fn has_hung_up(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    let found = rustix::event::poll(&mut polled, Some(&now));
    found.is_ok_and(|number| number > 0) && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

fn answer(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn is_root(stream: &UnixStream) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(stream)?.uid.is_root())
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;

    use super::super::Client;
    use super::*;

    /// A socket whose requests are all refused with the sentence "no".
    fn refusing() -> (tempfile::TempDir, PathBuf, Socket) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let (sender, asked) = unbounded::<Asked>();
        let socket = serve(&path, sender, |asked| asked).unwrap();
        std::thread::spawn(move || {
            for Asked { reply, .. } in asked {
                let _ = reply.send(Answer::Error { message: "no".to_owned() });
            }
        });
        (directory, path, socket)
    }

    #[test]
    fn an_answer_reaches_whoever_asked() {
        let (_directory, path, socket) = refusing();
        let mut client = Client::connect(&path).unwrap();
        let expected = if rustix::process::geteuid().is_root() { "no" } else { "only root" };
        for _ in 0..2 {
            let error = client.status().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        drop(socket);
        assert!(Client::connect(&path).unwrap_err().is_nobody_there());
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
        assert!(Client::connect(&path).unwrap().status().is_err());
    }

    #[test]
    fn a_peer_that_hangs_up_is_noticed_and_one_that_only_listens_waits() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let (sender, asked) = unbounded::<Asked>();
        let _socket = serve(&path, sender, |asked| asked).unwrap();
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
        std::thread::sleep(LOOK * 3);
        assert!(!peer.has_gone());
        drop(reply);
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.contains(STOPPED), "{line}");
    }

    #[test]
    fn whatever_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "dear").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&file, &link, &directory.path().to_owned()] {
            let (sender, _asked) = unbounded::<Asked>();
            let error = serve(path, sender, |asked| asked).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{}", path.display());
        }
        assert_eq!(fs::read_to_string(&link).unwrap(), "dear");
    }

    #[test]
    fn only_the_owner_may_connect() {
        let (_directory, path, _socket) = refusing();
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
