//! The client of the daemon's user socket. docs/reference/sockets.md describes its text protocol.
//!
//! Each request has its own connection. So no descriptor outlives the call, which a fork would share or the program
//! might close.

mod answer;

use core::ffi::c_int;

pub use answer::FinalLine;

use crate::file::lines_of;
use crate::lock::TryLock;
use crate::state;
use crate::sys::{self, Errno, OwnedDescriptor};
use crate::text::LineBuffer;

/// Path of the daemon's socket, unless `KSMITH_SOCKET` names another.
const SOCKET: &[u8] = b"/run/ksmith/user";

/// Size of the path in a socket's address, including the terminating zero.
const PATH: usize = 108;

static PLACE: TryLock<Option<LineBuffer<PATH>>> = TryLock::new(None);

/// The reason of the daemon's latest refusal.
static REASON: TryLock<LineBuffer<256>> = TryLock::new(LineBuffer::new());

/// Sets the path of the socket.
pub fn set_socket(path: &[u8]) {
    if path.len() < PATH
        && let Some(mut place) = PLACE.try_lock()
    {
        *place = Some(LineBuffer::new().add(path));
    }
}

/// Returns the reason of the daemon's latest refusal, or an empty text.
pub fn reason() -> LineBuffer<256> {
    REASON.try_lock().map_or(LineBuffer::new(), |reason| *reason)
}

/// A deadline on the monotonic clock, or none.
#[derive(Debug, Clone, Copy)]
pub struct RequestDeadline {
    at: Option<u64>,
    /// True if the library's own thread waits, which must notice a request to end.
    is_helpers: bool,
}

/// Longest uninterrupted wait of the library's thread, in milliseconds. After it the thread checks for a request to
/// end.
const SLICE: c_int = 50;

impl RequestDeadline {
    /// Creates a deadline `milliseconds` from now; none if that is negative.
    pub fn in_milliseconds(milliseconds: c_int) -> Self {
        let wait = u64::try_from(milliseconds).ok();
        let at = wait.map(|wait| sys::now().saturating_add(wait.saturating_mul(1_000_000)));
        Self { at, is_helpers: false }
    }

    /// Returns the deadline for the library's thread, which stops waiting when it is requested to end.
    pub fn for_helper(self) -> Self {
        Self { is_helpers: true, ..self }
    }

    /// Returns the next timeout of poll(2), in milliseconds: until the deadline, or until the next check. `ETIMEDOUT`
    /// after the deadline.
    fn left(self) -> Result<c_int, Errno> {
        if self.is_helpers && state::ends_helper() {
            return Err(libc::ECANCELED);
        }
        let Some(at) = self.at else { return Ok(-1) };
        match at.saturating_sub(sys::now()) {
            0 => Err(libc::ETIMEDOUT),
            left => {
                let left = c_int::try_from(left / 1_000_000).unwrap_or(c_int::MAX).saturating_add(1);
                Ok(if self.is_helpers { left.min(SLICE) } else { left })
            }
        }
    }
}

/// Sends a request of one line, without its end. Passes each line of the reply before the last to `each`, and the last
/// line to `last` if it grants the request.
pub fn send_request<T>(
    request: &[u8],
    deadline: RequestDeadline,
    each: impl FnMut(&[u8]),
    last: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, Errno> {
    if let Some(mut reason) = REASON.try_lock() {
        *reason = LineBuffer::new();
    }
    let connection = connect(deadline)?;
    let is_known = |line: &[u8]| (line == b"ok ksmith 1").then_some(());
    exchange(&connection, b"hello 1", deadline, |_| (), is_known)?;
    exchange(&connection, request, deadline, each, last)
}

fn connect(deadline: RequestDeadline) -> Result<OwnedDescriptor, Errno> {
    let place = PLACE.try_lock().and_then(|place| *place).unwrap_or(LineBuffer::new().add(SOCKET));
    // SAFETY: an address of zeros is valid.
    let mut address: libc::sockaddr_un = unsafe { core::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(place.bytes()) {
        *to = *from as libc::c_char;
    }
    let length =
        core::mem::offset_of!(libc::sockaddr_un, sun_path).saturating_add(place.bytes().len()).saturating_add(1);
    let socket = OwnedDescriptor::socket()?;
    loop {
        match socket.connect(&address, length) {
            Ok(()) => return Ok(socket),
            // The socket's queue is full.
            Err(libc::EAGAIN | libc::EINTR) => {
                deadline.left()?;
                sys::nap(10_000_000);
            }
            Err(libc::ECONNREFUSED | libc::ENOENT | libc::ENOTDIR) => return Err(libc::ENOENT),
            Err(libc::EACCES | libc::EPERM) => return Err(libc::EACCES),
            Err(errno) => return Err(errno),
        }
    }
}

fn exchange<T>(
    connection: &OwnedDescriptor,
    request: &[u8],
    deadline: RequestDeadline,
    mut each: impl FnMut(&[u8]),
    last: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T, Errno> {
    // A request is short and fits into the empty buffer of a new socket.
    let line = LineBuffer::<64>::new().add(request).add(b"\n");
    match connection.send(line.bytes()) {
        Ok(sent) if sent == line.bytes().len() => {}
        Ok(_) => return Err(libc::EPROTO),
        Err(libc::EPIPE) => return Err(libc::ECONNRESET),
        Err(errno) => return Err(errno),
    }
    let mut last = Some(last);
    let mut result = Err(libc::ECONNRESET);
    let read = |space: &mut [u8]| receive(connection, space, deadline);
    lines_of(read, &mut [0; 512], |line| match FinalLine::parse(line) {
        None => {
            each(line);
            true
        }
        Some(FinalLine::Granted) => {
            let value = last.take().and_then(|last| last(line));
            result = value.ok_or(libc::EPROTO);
            false
        }
        Some(FinalLine::Refused { errno, reason }) => {
            if let Some(mut place) = REASON.try_lock() {
                *place = LineBuffer::new().add(reason);
            }
            result = Err(errno);
            false
        }
    })?;
    result
}

/// Waits for bytes and reads them.
fn receive(connection: &OwnedDescriptor, space: &mut [u8], deadline: RequestDeadline) -> Result<usize, Errno> {
    loop {
        match connection.wait(libc::POLLIN, deadline.left()?) {
            Ok(true) => match connection.read(space) {
                Err(libc::EAGAIN) => {}
                outcome => return outcome,
            },
            Ok(false) | Err(libc::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
