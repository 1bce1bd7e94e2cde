//! Process starts and exits as reported by the kernel's proc connector (`CONFIG_PROC_EVENTS`).
//!
//! A thread waits on the socket and sends batches into a channel without ever waiting for it. If the receiver is slow
//! or the kernel's buffer overflows, one [`ProcessEvent::Lost`] stands for the missed events.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, TrySendError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with, sockopt,
};

use super::batch::EventBatch;
use super::connector::{ConnectorMessage, ConnectorRequest, ProcessEvent, messages};
use super::inherited;

/// The multicast group of process events (`CN_IDX_PROC`).
const GROUP: u32 = 1;

/// Size of the receive buffer: some thousand events while the thread does not run.
const RECEIVE_BUFFER: usize = 2 << 20;

/// Time for which events gather before they are sent. It bounds the wake-ups to 16 a second, lets the events of
/// short-lived processes cancel out, and reports a start or an exit within a tenth of a second.
const GATHER: Duration = Duration::from_millis(60);

/// Time limit for the kernel's reply, which comes at once or never.
const ANSWER: Duration = Duration::from_secs(1);

/// Time until a batch that did not fit into the channel is reported as lost.
const RETRY: Duration = Duration::from_millis(250);

/// The reason why no process events arrive. A scan of `/proc` every few seconds replaces them.
#[derive(Debug, thiserror::Error)]
pub enum NoEvents {
    /// This process lacks the privilege.
    #[error("process events need CAP_NET_ADMIN (run as root); /proc is scanned instead")]
    Denied,
    /// The kernel lacks the connector, or shows it only to the host's own namespaces.
    #[error(
        "this kernel or container has no process events (CONFIG_PROC_EVENTS, initial namespaces); /proc is scanned instead"
    )]
    Unavailable,
    /// The socket or the thread failed.
    #[error("process events can't be received; /proc is scanned instead")]
    Failed(#[from] io::Error),
}

impl From<Errno> for NoEvents {
    fn from(error: Errno) -> Self {
        match error {
            Errno::PERM | Errno::ACCESS => Self::Denied,
            Errno::PROTONOSUPPORT | Errno::AFNOSUPPORT | Errno::CONNREFUSED | Errno::NOENT => Self::Unavailable,
            error => Self::Failed(error.into()),
        }
    }
}

/// The thread that receives process events. It ends when this value is dropped.
#[derive(Debug)]
pub struct ProcessEvents {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl ProcessEvents {
    /// Starts the thread, which sends batches of events into `sender`. Use a bounded channel: a batch that does
    /// not fit becomes [`ProcessEvent::Lost`]. The first batch begins with `Lost`, because a scan must find the
    /// processes that run already.
    ///
    /// # Errors
    /// Process events are not available.
    pub fn listen<M>(sender: Sender<M>) -> Result<Self, NoEvents>
    where
        M: From<Vec<ProcessEvent>> + Send + 'static,
    {
        let socket = EventSocket::open()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("process-events".to_owned())
            .stack_size(256 << 10)
            .spawn(move || receive(&socket, &stopped, &sender))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for ProcessEvents {
    fn drop(&mut self) {
        // The write can't fail: no other thread writes to this eventfd.
        let _ = rustix::io::write(&*self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A socket that receives the kernel's process events.
struct EventSocket {
    socket: OwnedFd,
    /// Number of our requests, which tells our replies from those to other listeners.
    number: u32,
}

impl EventSocket {
    /// Subscribes to events at the socket that the service manager made, or else at a new one.
    fn open() -> Result<Self, NoEvents> {
        let socket = inherited::take_socket().map_or_else(Self::make, Ok)?;
        let socket = Self { socket, number: std::process::id() };
        socket.send_request(ConnectorRequest::Listen)?;
        socket.wait_for_answer()?;
        socket.send_request(ConnectorRequest::ListenToOurs)?;
        Ok(socket)
    }

    fn make() -> Result<OwnedFd, NoEvents> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::CONNECTOR))?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUP))?;
        // With a smaller buffer events are lost sooner, which the receiver handles.
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
        }
        Ok(socket)
    }

    fn send_request(&self, request: ConnectorRequest) -> Result<(), Errno> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.socket, &request.bytes(self.number), SendFlags::empty(), &kernel).map(|_| ())
    }

    /// Waits for the kernel's reply. Outside the initial PID and user namespaces the kernel accepts requests and never
    /// replies, while events that others subscribed to keep arriving.
    fn wait_for_answer(&self) -> Result<(), NoEvents> {
        let started = Instant::now();
        let mut answer = None;
        loop {
            // Before the drain: an answer that is there by the end of the wait is seen, however late this thread runs.
            let left = ANSWER.saturating_sub(started.elapsed());
            self.drain(|message| match message {
                ConnectorMessage::Answer { number, error } if number == self.number => answer = Some(error),
                _ => {}
            })?;
            match answer {
                Some(0) => return Ok(()),
                Some(error) => return Err(Errno::from_raw_os_error(error as i32).into()),
                None if left.is_zero() => return Err(NoEvents::Unavailable),
                None => {
                    wait(&[&self.socket], Some(left))?;
                }
            }
        }
    }

    /// Receives all messages that have arrived. Returns true if the kernel dropped events.
    fn drain(&self, mut take: impl FnMut(ConnectorMessage)) -> Result<bool, Errno> {
        let mut buffer = [0; 4096];
        let mut lost = false;
        loop {
            match retry_on_intr(|| recv(&self.socket, &mut buffer[..], RecvFlags::empty())) {
                // Only the kernel sends here: other senders need CAP_NET_ADMIN.
                Ok((count, _)) => messages(&buffer[..count]).for_each(&mut take),
                Err(Errno::AGAIN) => return Ok(lost),
                Err(Errno::NOBUFS) => lost = true,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for EventSocket {
    fn drop(&mut self) {
        // Kernels before 6.6 would go on making events without a listener.
        let _ = self.send_request(ConnectorRequest::Ignore);
    }
}

/// Waits until one of the files is readable. Returns true if one is.
fn wait(files: &[&OwnedFd], limit: Option<Duration>) -> Result<bool, Errno> {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let mut waiting: Vec<_> = files.iter().map(|file| PollFd::new(file, PollFlags::IN)).collect();
    Ok(retry_on_intr(|| poll(&mut waiting, limit.as_ref()))? > 0)
}

fn receive<M: From<Vec<ProcessEvent>>>(socket: &EventSocket, stop: &OwnedFd, sender: &Sender<M>) {
    if let Err(error) = forward(socket, stop, sender) {
        tracing::warn!(%error, "process events ended; /proc is scanned instead");
        // This message must arrive. It is the thread's last, so waiting for space delays nothing else.
        let _ = sender.send_timeout(vec![ProcessEvent::Ended].into(), Duration::from_secs(10));
    }
}

/// Sends batches until stopped or until the channel is closed.
fn forward<M: From<Vec<ProcessEvent>>>(
    socket: &EventSocket,
    stop: &OwnedFd,
    sender: &Sender<M>,
) -> Result<(), Errno> {
    let mut batch = EventBatch::default();
    batch.push(ProcessEvent::Lost);
    loop {
        if !deliver(&mut batch, sender) {
            return Ok(());
        }
        let limit = (!batch.is_empty()).then_some(RETRY);
        wait(&[&socket.socket, stop], limit)?;
        if wait(&[stop], Some(GATHER))? {
            return Ok(());
        }
        if socket.drain(|message| {
            if let ConnectorMessage::Process(event) = message {
                batch.push(event);
            }
        })? {
            batch.push(ProcessEvent::Lost);
        }
    }
}

/// Sends the batch. A batch that does not fit is reported as lost next time. Returns true if the channel is open.
fn deliver<M: From<Vec<ProcessEvent>>>(batch: &mut EventBatch, sender: &Sender<M>) -> bool {
    if batch.is_empty() {
        return true;
    }
    match sender.try_send(batch.drain_events().into()) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => batch.push(ProcessEvent::Lost),
        Err(TrySendError::Disconnected(_)) => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use crossbeam_channel::bounded;
    use rustix::net::{send, socketpair};

    use super::*;

    #[test]
    fn what_does_not_fit_is_told_as_lost_and_then_events_go_on() {
        let (sender, receiver) = bounded::<Vec<ProcessEvent>>(1);
        let mut batch = EventBatch::default();
        for pid in [1, 2, 3] {
            batch.push(ProcessEvent::Started(pid));
            assert!(deliver(&mut batch, &sender));
        }
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [[ProcessEvent::Started(1)]]);
        assert!(deliver(&mut batch, &sender) && batch.is_empty());
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [[ProcessEvent::Lost]]);
        assert!(deliver(&mut batch, &sender), "nothing to tell");
        assert!(receiver.is_empty());
        drop(receiver);
        batch.push(ProcessEvent::Exited(1));
        assert!(!deliver(&mut batch, &sender));
    }

    /// In a container, events of the whole host arrive if another program has subscribed to them, but no reply does.
    #[test]
    fn a_kernel_that_never_answers_is_given_up_although_events_arrive() {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, kernels) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None).unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let kernel = std::thread::spawn(move || {
            // A minute at most.
            (0..6_000).any(|_| {
                let _ = send(&kernels, &[0; 76], SendFlags::empty());
                std::thread::sleep(Duration::from_millis(10));
                ended.load(Ordering::Relaxed)
            })
        });
        let answer = EventSocket { socket: ours, number: 7 }.wait_for_answer();
        has_ended.store(true, Ordering::Relaxed);
        assert!(matches!(answer, Err(NoEvents::Unavailable)), "{answer:?}");
        assert!(kernel.join().unwrap(), "it waited for as long as events arrived");
    }

    #[test]
    fn refusals_are_told_apart() {
        assert!(matches!(NoEvents::from(Errno::PERM), NoEvents::Denied));
        assert!(matches!(NoEvents::from(Errno::CONNREFUSED), NoEvents::Unavailable));
        assert!(matches!(NoEvents::from(Errno::MFILE), NoEvents::Failed(_)));
    }
}
