//! Closing refused connections in a thread of its own, where the kernel can't keep descriptors out of their queues.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crossbeam_channel::{Sender, TrySendError, bounded};

/// Connections that may wait to be closed: each keeps a descriptor of the daemon, which has a thousand.
const WAITING: usize = 128;

/// A thread that closes connections. A close blocks for as long as a passed descriptor's `SO_LINGER` says, see
/// [`ksmith_host::passed_descriptors`]. It may not block the accept loop.
#[derive(Debug)]
pub(super) struct StreamCloser(Sender<Arc<UnixStream>>);

impl StreamCloser {
    /// Starts the thread.
    ///
    /// # Errors
    /// It can't be started.
    pub(super) fn start(name: &str) -> io::Result<Self> {
        let (sender, streams) = bounded::<Arc<UnixStream>>(WAITING);
        std::thread::Builder::new().name(format!("{name} close")).spawn(move || streams.iter().for_each(drop))?;
        Ok(Self(sender))
    }

    /// Closes a connection. Does not wait unless others fill the queue: to keep more open would take the daemon's last
    /// descriptors.
    pub(super) fn close(&self, stream: Arc<UnixStream>) {
        if let Err(TrySendError::Full(stream) | TrySendError::Disconnected(stream)) = self.0.try_send(stream) {
            drop(stream);
        }
    }
}
