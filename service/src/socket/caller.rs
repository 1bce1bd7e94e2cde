//! The process at the other end of a connection, and its wait for an answer.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError};
use rustix::event::{PollFd, PollFlags};

/// The interval between two checks of a connection that waits for an answer.
const CHECK: Duration = Duration::from_millis(100);

/// The process that sent a request.
#[derive(Debug)]
pub struct PeerWatch(Weak<()>);

impl PeerWatch {
    /// Returns true if the process has hung up.
    pub fn has_gone(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// A guard: as long as it is held, its [`PeerWatch`] waits.
#[derive(Debug)]
pub struct PeerGuard(#[allow(dead_code, reason = "it is only held")] Arc<()>);

/// Creates a peer that waits, and the guard that keeps it waiting.
pub fn watch_peer() -> (PeerGuard, PeerWatch) {
    let waiting = Arc::new(());
    let peer = PeerWatch(Arc::downgrade(&waiting));
    (PeerGuard(waiting), peer)
}

/// The outcome of a request that another thread was to answer.
#[derive(Debug, PartialEq, Eq)]
pub enum AwaitedAnswer<T> {
    /// The thread's answer.
    Answer(T),
    /// The peer has hung up.
    HungUp,
    /// The other thread has ended.
    Ended,
}

/// Waits for an answer as long as the peer is connected. A peer that only listens is connected.
pub fn answer_or_hang_up<T>(answers: &Receiver<T>, stream: &UnixStream) -> AwaitedAnswer<T> {
    loop {
        match answers.recv_timeout(CHECK) {
            Ok(answer) => return AwaitedAnswer::Answer(answer),
            Err(RecvTimeoutError::Timeout) if has_hung_up(stream) => return AwaitedAnswer::HungUp,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return AwaitedAnswer::Ended,
        }
    }
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::empty())];
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    let found = rustix::event::poll(&mut polled, Some(&now));
    found.is_ok_and(|number| number > 0) && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use crossbeam_channel::bounded;

    use super::*;

    #[test]
    fn an_answer_is_awaited_until_the_peer_hangs_up_or_the_thread_ends() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (reply, answers) = bounded(1);
        reply.send(7).unwrap();
        assert_eq!(answer_or_hang_up(&answers, &ours), AwaitedAnswer::Answer(7));
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(!has_hung_up(&ours), "it only listens");
        drop(theirs);
        assert_eq!(answer_or_hang_up(&answers, &ours), AwaitedAnswer::HungUp);
        drop(reply);
        assert_eq!(answer_or_hang_up(&answers, &ours), AwaitedAnswer::Ended);
    }

    #[test]
    fn a_peer_waits_as_long_as_its_handle_is_held() {
        let (handle, peer) = watch_peer();
        assert!(!peer.has_gone());
        drop(handle);
        assert!(peer.has_gone());
    }
}
