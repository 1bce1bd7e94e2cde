//! The daemon's end of the control socket: threads that read a request, pass it on and write the answer.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use tracing::debug;

use super::{Answer, Request};

/// A request, and where its answer goes.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Takes one answer. That nobody waits for it any more is no error.
    pub reply: Sender<Answer>,
}

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
fn remove_socket(path: &Path) -> io::Result<()> {
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
        let ended = || io::Error::other("the daemon is ending");
        sender.send(wrap(Asked { request, reply })).map_err(|_| ended())?;
        let given = answers.recv().unwrap_or(Answer::Error { message: "the daemon is ending".to_owned() });
        answer(&stream, &given)?;
    }
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
