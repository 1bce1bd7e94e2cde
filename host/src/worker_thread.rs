//! A worker thread: it owns its state, takes requests from a bounded queue, and its owner polls its replies.
//!
//! The queue is closed when the [`WorkerThread`] is dropped. The thread works off the requests that wait, and ends. A
//! thread that has panicked closes both channels: [`WorkerThread::queue_request`] and [`WorkerThread::poll_reply`]
//! return `Disconnected`, and the owner may start a new one.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{
    Receiver, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError, TrySendError, bounded,
};
use tracing::warn;

/// A thread with a queue of requests. Dropping it closes the queue.
#[derive(Debug)]
pub struct WorkerThread<Request, Reply = ()> {
    name: &'static str,
    /// `None` once the queue is closed.
    requests: Option<Sender<Request>>,
    /// Disconnected once the thread has ended.
    replies: Receiver<Reply>,
    thread: Option<JoinHandle<()>>,
    drop_patience: Duration,
}

/// A thread that did not end in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WorkerEndError {
    /// It goes on by itself, until its work is done.
    #[error("the thread \"{0}\" does not answer and is left behind")]
    LeftBehind(&'static str),
    /// The requests that waited are lost.
    #[error("the thread \"{0}\" has panicked")]
    Panicked(&'static str),
}

impl<Request: Send + 'static, Reply: Send + 'static> WorkerThread<Request, Reply> {
    /// Starts a thread that runs `work` with its queue of `capacity` requests, and a channel of as many replies. `work`
    /// ends when its queue is disconnected. A drop waits for nothing.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(
        name: &'static str,
        capacity: usize,
        work: impl FnOnce(&Receiver<Request>, &Sender<Reply>) + Send + 'static,
    ) -> io::Result<Self> {
        let (requests, inbox) = bounded(capacity);
        let (outbox, replies) = bounded(capacity);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&inbox, &outbox))?;
        Ok(Self { name, requests: Some(requests), replies, thread: Some(thread), drop_patience: Duration::ZERO })
    }

    /// Starts a thread that sends a reply to each request. It ends after the request that is under way at the drop.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start_replying(
        name: &'static str,
        capacity: usize,
        mut answer: impl FnMut(Request) -> Reply + Send + 'static,
    ) -> io::Result<Self> {
        Self::start(name, capacity, move |requests, replies| {
            for request in requests {
                if replies.send(answer(request)).is_err() {
                    return;
                }
            }
        })
    }
}

impl<Request, Reply> WorkerThread<Request, Reply> {
    /// Makes a drop wait for the thread's end, for `patience` at most, and log a thread that did not end in order.
    #[must_use]
    pub fn with_drop_patience(mut self, patience: Duration) -> Self {
        self.drop_patience = patience;
        self
    }

    /// Queues a request, without waiting.
    ///
    /// # Errors
    /// `Full`: the queue has no slot for it. `Disconnected`: the thread has ended.
    pub fn queue_request(&self, request: Request) -> Result<(), TrySendError<Request>> {
        match &self.requests {
            Some(requests) => requests.try_send(request),
            None => Err(TrySendError::Disconnected(request)),
        }
    }

    /// Queues a request, and waits at most `patience` for a free slot.
    ///
    /// # Errors
    /// `Timeout`: the queue is still full. `Disconnected`: the thread has ended.
    pub fn queue_within(&self, request: Request, patience: Duration) -> Result<(), SendTimeoutError<Request>> {
        match &self.requests {
            Some(requests) => requests.send_timeout(request, patience),
            None => Err(SendTimeoutError::Disconnected(request)),
        }
    }

    /// Returns the number of requests that the queue has room for.
    pub fn free_slots(&self) -> usize {
        self.requests.as_ref().map_or(0, |queue| queue.capacity().unwrap_or(usize::MAX).saturating_sub(queue.len()))
    }

    /// Returns the next reply, without waiting.
    ///
    /// # Errors
    /// `Empty`: there is none yet. `Disconnected`: the thread has ended, with the requests that it had.
    pub fn poll_reply(&self) -> Result<Reply, TryRecvError> {
        self.replies.try_recv()
    }

    /// Returns the next reply that comes within `patience`.
    ///
    /// # Errors
    /// As [`Self::poll_reply`].
    pub fn await_reply(&self, patience: Duration) -> Result<Reply, RecvTimeoutError> {
        self.replies.recv_timeout(patience)
    }

    /// Closes the queue, and waits at most `patience` for the thread to work it off and to end. Replies are discarded.
    ///
    /// # Errors
    /// The thread did not end in time, or has panicked.
    pub fn end_within(mut self, patience: Duration) -> Result<(), WorkerEndError> {
        self.close(patience)
    }

    fn close(&mut self, patience: Duration) -> Result<(), WorkerEndError> {
        self.requests = None;
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let began = Instant::now();
        loop {
            match self.replies.recv_timeout(patience.saturating_sub(began.elapsed())) {
                // A thread that waits for room for a reply would not end.
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err(WorkerEndError::LeftBehind(self.name)),
            }
        }
        thread.join().map_err(|_| WorkerEndError::Panicked(self.name))
    }
}

impl<Request, Reply> Drop for WorkerThread<Request, Reply> {
    fn drop(&mut self) {
        if let Err(why) = self.close(self.drop_patience)
            && !self.drop_patience.is_zero()
        {
            warn!("{why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A worker that counts its requests, tells when it has one, and does not go on before it is released.
    struct HeldWorker {
        worker: WorkerThread<u32>,
        done: Arc<AtomicUsize>,
        taken: Receiver<()>,
        release: Sender<()>,
    }

    impl HeldWorker {
        fn start() -> Self {
            let done = Arc::new(AtomicUsize::new(0));
            let (tell, taken) = bounded(8);
            let (release, held) = bounded::<()>(0);
            let count = Arc::clone(&done);
            let worker = WorkerThread::start("held", 2, move |requests: &Receiver<u32>, _: &Sender<()>| {
                for _ in requests {
                    let _ = tell.send(());
                    let _ = held.recv();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
            let worker = worker.unwrap();
            worker.queue_request(0).unwrap();
            taken.recv().unwrap();
            Self { worker, done, taken, release }
        }
    }

    #[test]
    fn a_full_queue_refuses_a_request_and_gives_it_back() {
        let HeldWorker { worker, taken, release, .. } = HeldWorker::start();
        assert_eq!(worker.free_slots(), 2);
        worker.queue_request(1).unwrap();
        worker.queue_request(2).unwrap();
        assert_eq!(worker.free_slots(), 0);
        assert_eq!(worker.queue_request(3), Err(TrySendError::Full(3)));
        assert_eq!(worker.queue_within(3, Duration::ZERO), Err(SendTimeoutError::Timeout(3)));
        release.send(()).unwrap();
        taken.recv().unwrap();
        assert_eq!(worker.queue_request(3), Ok(()));
    }

    #[test]
    fn the_end_waits_for_the_request_under_way_and_for_those_behind_it() {
        let HeldWorker { worker, done, release, .. } = HeldWorker::start();
        worker.queue_request(1).unwrap();
        worker.queue_request(2).unwrap();
        drop(release);
        assert_eq!(worker.end_within(LONG), Ok(()));
        assert_eq!(done.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn the_end_does_not_wait_for_a_request_that_hangs() {
        let HeldWorker { worker, release, .. } = HeldWorker::start();
        assert_eq!(worker.end_within(Duration::from_millis(1)), Err(WorkerEndError::LeftBehind("held")));
        drop(release);
        let HeldWorker { worker, release, .. } = HeldWorker::start();
        drop(worker.with_drop_patience(Duration::from_millis(1)));
        drop(release);
    }

    #[test]
    fn the_owner_of_a_thread_that_panicked_learns_it_and_starts_another() {
        let start = || WorkerThread::start_replying("divide", 2, |by: u32| 6_u32.checked_div(by).unwrap()).unwrap();
        let worker = start();
        worker.queue_request(2).unwrap();
        worker.queue_request(0).unwrap();
        assert_eq!(worker.await_reply(LONG), Ok(3), "a reply before the panic is not lost");
        assert_eq!(worker.await_reply(LONG), Err(RecvTimeoutError::Disconnected));
        assert_eq!(worker.poll_reply(), Err(TryRecvError::Disconnected));
        assert_eq!(worker.queue_request(1), Err(TrySendError::Disconnected(1)));
        assert_eq!(worker.end_within(LONG), Err(WorkerEndError::Panicked("divide")));
        let worker = start();
        worker.queue_request(1).unwrap();
        assert_eq!(worker.await_reply(LONG), Ok(6));
        assert_eq!(worker.poll_reply(), Err(TryRecvError::Empty));
    }

    #[test]
    fn replies_that_nobody_reads_do_not_hold_up_the_end() {
        let worker = WorkerThread::start_replying("echo", 1, |number: u32| number).unwrap();
        for number in 0..3 {
            // The first is a reply, the second waits for room, and the third is in the queue.
            worker.queue_within(number, LONG).unwrap();
        }
        assert_eq!(worker.end_within(LONG), Ok(()));
    }
}
