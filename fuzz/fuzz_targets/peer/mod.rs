//! A listener that replies to each connection with given bytes and closes it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tempfile::TempDir;

/// The listener. Its thread lasts as long as the program.
pub struct FakePeer {
    directory: TempDir,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl FakePeer {
    /// Starts to listen in a temporary directory.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("s")).expect("a socket");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::clone(&bytes);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let answer = answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // A peer that has read enough has hung up.
                let _ = stream.write_all(&answer).and_then(|()| stream.shutdown(Shutdown::Write));
                let _ = stream.read_to_end(&mut Vec::new());
            }
        });
        Self { directory, bytes }
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> PathBuf {
        Path::join(self.directory.path(), "s")
    }

    /// Sets the reply to the following connections.
    pub fn answer(&self, bytes: &[u8]) {
        *self.bytes.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
    }
}
