//! Opening paths that a process chose, within a deadline.
//!
//! The kernel may wait in the middle of such a path: at `/proc/PID/root` and `/proc/PID/cwd` while the process executes a
//! program, and in a file system of a user (FUSE) that never answers. Only SIGKILL ends the first wait, and nothing some
//! of the second. So a forked child opens the path. The file itself may wait as well: the child also connects sockets.

use std::ffi::{CStr, CString};
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, StatxFlags, fstat, openat, openat2, statx};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socketpair,
};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, pidfd_send_signal, waitid};

use crate::forked;

/// Flags to open a file as a reference, without following a link.
pub(crate) const THE_FILE_ITSELF: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The most children that did not report in time and have not ended, for the paths of one user and of all. At the limit
/// no path of the user is tried.
const LEFT_OF_ONE: usize = 2;
const LEFT: usize = 32;

/// The longest name of a file.
const NAME: usize = 255;

/// Bytes of a report: the error, the number, the length of the name, and the name.
const REPORT: usize = 4 + 4 + 1 + NAME;

/// The report of a child.
#[derive(Debug)]
pub(crate) struct PathReport {
    /// A number that the caller knows the meaning of.
    pub(crate) number: u32,
    /// A file that the child has opened.
    pub(crate) file: Option<OwnedFd>,
    name: [u8; NAME],
    length: u8,
}

impl PathReport {
    /// Creates a report without a file and a name. It allocates nothing.
    pub(crate) fn new(number: u32) -> Self {
        Self { number, file: None, name: [0; NAME], length: 0 }
    }

    /// Adds an open file, and a name of up to 255 bytes. It allocates nothing.
    pub(crate) fn with_file(mut self, file: OwnedFd, name: &CStr) -> Self {
        for (place, byte) in self.name.iter_mut().zip(name.to_bytes()) {
            *place = *byte;
            self.length = self.length.saturating_add(1);
        }
        Self { file: Some(file), ..self }
    }

    /// Returns the name; empty if there is none.
    pub(crate) fn name(&self) -> &[u8] {
        self.name.get(..usize::from(self.length)).unwrap_or_default()
    }

    fn to_bytes(&self) -> [u8; REPORT] {
        let mut bytes = [0; REPORT];
        bytes[4..8].copy_from_slice(&self.number.to_ne_bytes());
        bytes[8] = self.length;
        bytes[9..].copy_from_slice(&self.name);
        bytes
    }

    fn from_bytes(bytes: &[u8; REPORT], file: Option<OwnedFd>) -> io::Result<Self> {
        let [error, number] = [0, 4].map(|at| bytes.get(at..).and_then(<[u8]>::first_chunk).copied());
        match i32::from_ne_bytes(error.unwrap_or_default()) {
            0 => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
        let mut report = Self::new(u32::from_ne_bytes(number.unwrap_or_default()));
        report.length = bytes[8];
        report.name.copy_from_slice(&bytes[9..]);
        Ok(Self { file, ..report })
    }
}

/// A killed child that may not end.
struct LeftChild {
    process: OwnedFd,
    /// The user that chose the path.
    user: u32,
    /// True if it did not report in time.
    is_late: bool,
}

static LEFT_CHILDREN: Mutex<Vec<LeftChild>> = Mutex::new(Vec::new());

/// Reaps the children that have ended, and returns the others. It does not wait.
fn left_children() -> MutexGuard<'static, Vec<LeftChild>> {
    let mut left = LEFT_CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|child| {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        matches!(waitid(WaitId::PidFd(child.process.as_fd()), options), Ok(None) | Err(Errno::INTR))
    });
    left
}

/// Reaps the children that have ended. It does not wait.
pub(crate) fn reap_children() {
    drop(left_children());
}

/// Counts a user's children that have not been reaped.
#[cfg(test)]
pub(crate) fn count_left(user: u32) -> usize {
    let left = LEFT_CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    left.iter().filter(|child| child.user == user).count()
}

/// Returns true if so many paths of this user, or of all, still wait that no other is tried.
fn is_full_for(left: &[LeftChild], user: u32) -> bool {
    let late = || left.iter().filter(|child| child.is_late);
    late().count() >= LEFT || late().filter(|child| child.user == user).count() >= LEFT_OF_ONE
}

/// Does `work` in a forked child with the descriptor `given`, or with one that nothing uses, and returns its report.
/// `user` chose the path that the child opens.
///
/// # Errors
/// The error of `work`; `TimedOut` if it has not ended within `patience`, or earlier paths of the user still wait.
///
/// # Safety
/// As of [`forked::fork`]: `work` calls only async-signal-safe functions and plain system calls, allocates nothing,
/// takes no lock and does not panic.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
pub(crate) unsafe fn report_from_child(
    user: u32,
    patience: Duration,
    given: Option<OwnedFd>,
    work: impl FnOnce(BorrowedFd<'_>) -> Result<PathReport, Errno>,
) -> io::Result<PathReport> {
    if is_full_for(&left_children(), user) {
        return Err(io::Error::new(io::ErrorKind::TimedOut, "earlier paths of its user do not answer"));
    }
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let given = given.map_or_else(|| theirs.try_clone(), Ok)?;
    let parent = getpid().as_raw_nonzero().get();
    // SAFETY: prctl and getppid are plain system calls, `send_report` makes one on memory of its stack, and the caller
    // promises the same of `work`.
    let pid = unsafe {
        forked::fork([theirs, given], |[report, given]| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() == parent {
                send_report(report, work(given));
            }
        })
    }?;
    // No other thread reaps it before this.
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(error) => {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            return Err(error.into());
        }
    };
    let report = receive_report(&ours, Instant::now() + patience);
    let is_late = report.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::TimedOut);
    // It may have ended.
    let _ = pidfd_send_signal(&process, Signal::KILL);
    left_children().push(LeftChild { process, user, is_late });
    report
}

/// Sends a child's report. It allocates nothing.
fn send_report(socket: BorrowedFd<'_>, outcome: Result<PathReport, Errno>) {
    let (bytes, file) = match outcome {
        Ok(report) => (report.to_bytes(), report.file),
        Err(error) => {
            let mut bytes = [0; REPORT];
            bytes[..4].copy_from_slice(&error.raw_os_error().to_ne_bytes());
            (bytes, None)
        }
    };
    let files = file.as_ref().map(|file| [file.as_fd()]);
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut passed = SendAncillaryBuffer::new(&mut space);
    if let Some(files) = &files {
        passed.push(SendAncillaryMessage::ScmRights(files));
    }
    // The parent may have given up.
    let _ = retry_on_intr(|| sendmsg(socket, &[IoSlice::new(&bytes)], &mut passed, SendFlags::NOSIGNAL));
}

fn receive_report(socket: &OwnedFd, deadline: Instant) -> io::Result<PathReport> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "its path does not answer in time");
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec::try_from(left).map_err(|_| late())?;
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    if retry_on_intr(|| poll(&mut ready, Some(&left)))? == 0 {
        return Err(late());
    }
    let mut bytes = [0; REPORT];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut passed = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut passed, flags)?;
    let file = passed.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    if received.bytes < REPORT {
        return Err(io::Error::other("the child that opens its path has ended"));
    }
    PathReport::from_bytes(&bytes, file)
}

/// Connects a socket to the socket file at a path that `user` chose. Returns false, without a connection, if the file is
/// another user's. A link in the place of the file is not followed.
///
/// # Errors
/// There is no such file, nothing listens, or the path does not answer within `patience`.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
pub(crate) fn connect_path(socket: &OwnedFd, path: &Path, user: u32, patience: Duration) -> io::Result<bool> {
    if let Some(file) = open_at_once(path) {
        return Ok(connect_owned(socket.as_fd(), &file, user)?);
    }
    let path = CString::new(path.as_os_str().as_bytes())?;
    let work = |socket: BorrowedFd<'_>| {
        let file = openat(CWD, path.as_c_str(), THE_FILE_ITSELF, Mode::empty())?;
        connect_owned(socket, &file, user).map(|is_owned| PathReport::new(is_owned.into()))
    };
    // SAFETY: `work` opens a path that is there, and `connect_owned` makes system calls on memory of its stack.
    let report = unsafe { report_from_child(user, patience, Some(socket.try_clone()?), work) }?;
    Ok(report.number != 0)
}

/// Connects a socket to a socket file that is open here, at a path that `user` chose.
///
/// # Errors
/// Nothing listens, or the file does not answer within `patience`.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
pub(crate) fn connect_file(socket: &OwnedFd, file: &OwnedFd, user: u32, patience: Duration) -> io::Result<()> {
    if is_of_host(file) {
        return Ok(connect(socket, &address_of(file.as_fd())?)?);
    }
    let address = SocketAddrUnix::new(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))?;
    let work = |socket: BorrowedFd<'_>| connect(socket, &address).map(|()| PathReport::new(0));
    // SAFETY: `work` is one system call on memory that is there.
    unsafe { report_from_child(user, patience, Some(socket.try_clone()?), work) }.map(drop)
}

/// Connects a socket to a socket file, if that is a file of `user`. It allocates nothing.
fn connect_owned(socket: BorrowedFd<'_>, file: &OwnedFd, user: u32) -> Result<bool, Errno> {
    if fstat(file)?.st_uid != user {
        return Ok(false);
    }
    connect(socket, &address_of(file.as_fd())?).map(|()| true)
}

/// Returns the address of a socket file that is open in this process, or in the child that calls this. It allocates nothing.
fn address_of(file: BorrowedFd<'_>) -> Result<SocketAddrUnix, Errno> {
    let mut text = [0_u8; 32];
    write!(&mut text[..], "/proc/self/fd/{}", file.as_raw_fd()).map_err(|_| Errno::INVAL)?;
    SocketAddrUnix::new(CStr::from_bytes_until_nul(&text).map_err(|_| Errno::INVAL)?)
}

/// Opens a file of the host's own file systems, if the kernel needs no wait for that (`RESOLVE_CACHED`, Linux 5.12).
fn open_at_once(path: &Path) -> Option<OwnedFd> {
    let file = openat2(CWD, path, THE_FILE_ITSELF, Mode::empty(), ResolveFlags::CACHED).ok()?;
    is_of_host(&file).then_some(file)
}

/// Returns true if a file is on one of the host's own file systems: no user answers for it. It is not asked.
fn is_of_host(file: &OwnedFd) -> bool {
    static DEVICES: OnceLock<Vec<[u32; 2]>> = OnceLock::new();
    let of_host = || ["/", "/run", "/tmp", "/var"].into_iter().filter_map(|path| device(CWD, path)).collect();
    device(file.as_fd(), "").is_some_and(|device| DEVICES.get_or_init(of_host).contains(&device))
}

/// Returns the device of a file, without asking its file system.
fn device(directory: BorrowedFd<'_>, path: &str) -> Option<[u32; 2]> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let found = statx(directory, path, flags, StatxFlags::BASIC_STATS).ok()?;
    Some([found.stx_dev_major, found.stx_dev_minor])
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use rustix::fs::{FileType, mknodat};
    use rustix::net::socket_with;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(50);

    /// Opens a path in a child.
    #[allow(unsafe_code, reason = "the tested function is unsafe")]
    fn open(path: &Path, user: u32, patience: Duration) -> io::Result<PathReport> {
        let path = CString::new(path.as_os_str().as_bytes()).unwrap();
        let work = |_: BorrowedFd<'_>| {
            let file = openat(CWD, path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            Ok(PathReport::new(7).with_file(file, c"name"))
        };
        // SAFETY: the child opens a path that is there.
        unsafe { report_from_child(user, patience, None, work) }
    }

    fn is_late(outcome: io::Result<PathReport>) -> bool {
        outcome.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    #[test]
    fn a_path_that_never_answers_is_given_up_and_others_are_opened() {
        let directory = tempfile::tempdir().unwrap();
        let (fifo, file) = (directory.path().join("fifo"), directory.path().join("file"));
        // To open it waits for a writer, as a path of a process that executes waits for the program.
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        std::fs::write(&file, "text").unwrap();
        assert!(is_late(open(&fifo, 71_001, SHORT)));
        let report = open(&file, 71_001, LONG).unwrap();
        assert_eq!((report.number, report.name()), (7, &b"name"[..]));
        assert_eq!(io::read_to_string(std::fs::File::from(report.file.unwrap())).unwrap(), "text");
        let error = open(&directory.path().join("none"), 71_001, LONG).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn children_that_do_not_end_count_to_the_user_that_chose_the_path() {
        let mut left: Vec<LeftChild> = Vec::new();
        let process = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let mut leave = |user, is_late| {
            left.push(LeftChild { process: process(), user, is_late });
            [7, 8].map(|user| is_full_for(&left, user))
        };
        assert_eq!((leave(7, true), leave(7, false)), ([false; 2], [false; 2]), "one has reported, and ends");
        assert_eq!(leave(7, true), [true, false]);
        let of_all: Vec<[bool; 2]> = (100..130).map(|user| leave(user, true)).collect();
        assert_eq!(of_all.last(), Some(&[true, true]));
    }

    #[test]
    fn a_socket_is_connected_by_the_child_as_by_this_process() {
        let user = rustix::process::geteuid().as_raw();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let new = || socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        let own_view = Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap());
        for path in [&path, &own_view] {
            assert!(!connect_path(&new(), path, user + 1, LONG).unwrap(), "another user's file");
            assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
            let socket = new();
            assert!(connect_path(&socket, path, user, LONG).unwrap());
            let (accepted, _) = listener.accept().unwrap();
            rustix::io::write(&socket, b"x").unwrap();
            let mut byte = [0];
            assert_eq!((rustix::io::read(&accepted, &mut byte).unwrap(), byte), (1, *b"x"));
        }
        assert!(open_at_once(&own_view).is_none(), "its middle may wait");
        assert!(connect_path(&new(), &directory.path().join("none"), user, LONG).is_err());
    }
}
