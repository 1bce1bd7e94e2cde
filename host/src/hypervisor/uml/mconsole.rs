//! The management console of a user-mode Linux: a request in one datagram, a reply in one or several.
//!
//! Its socket lies in a directory named after the guest (`~/.uml/NAME`, or below `uml_dir=`), beside a file with the
//! PID. Source: `arch/um/drivers/mconsole.h`, `mconsole_user.c`.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ksmith_core::kernel::{CommandLine, Meminfo};
use ksmith_core::reading::Reading;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, fstat, openat, statat};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};

use crate::chosen_path::{PathReport, THE_FILE_ITSELF, connect_file, report_from_child};
use crate::passed_descriptors::refuse_descriptors;
use crate::root::Root;

const MAGIC: u32 = 0xcafe_babe;
const VERSION: u32 = 2;
const LONGEST_REQUEST: usize = 512;
const REPLY: usize = 12 + 512;

/// Deadline of a reply. The guest answers from an interrupt: at once, or it hangs.
const PATIENCE: Duration = Duration::from_millis(500);

/// Maximum datagrams of a reply; `proc meminfo` takes a handful.
const MOST_REPLIES: usize = 64;

/// The largest accepted `pid` file, in bytes.
const LONGEST_PID: usize = 32;

/// Maximum entries of a directory in which a console without a name is searched.
const MOST_ENTRIES: usize = 1000;

/// An error of a request to a console.
#[derive(Debug, thiserror::Error)]
pub enum MconsoleError {
    /// The socket fails, or nothing answers.
    #[error("the management console {} fails: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The guest refuses.
    #[error("user-mode Linux refuses {command:?}: {why}")]
    Refused {
        /// The command.
        command: String,
        /// Its error message.
        why: String,
    },
}

/// The console of one guest.
#[derive(Debug)]
pub struct Mconsole {
    path: PathBuf,
    /// The opened socket: a file that its user puts at the path later is not used.
    socket: OwnedFd,
    /// The user of the guest.
    owner: u32,
}

impl Mconsole {
    /// Finds the console of the guest with this first process; `None` if no directory names its PID.
    pub fn find_by_pid(root: &Root, pid: u32) -> Option<Self> {
        let read = |file: &str| root.text(format!("proc/{pid}/{file}"));
        let line = CommandLine::parse(read("cmdline").value()?.as_bytes());
        let environment = read("environ");
        let home =
            environment.value().and_then(|text| text.split('\0').find_map(|line| line.strip_prefix("HOME=")));
        let named = line.option("uml_dir").map(PathBuf::from);
        let usual = home.map(|home| Path::new(home).join(".uml"));
        let places = [named, usual, Some(PathBuf::from("/tmp/uml"))];
        // Hidden from us (a private /tmp, a protected home), it is there in the guest's own view.
        let own_view = PathBuf::from(format!("/proc/{pid}/root"));
        let views = |place: PathBuf| Some([own_view.join(place.strip_prefix("/").ok()?), place]);
        let both = places.into_iter().flatten().filter_map(views).flat_map(|[hidden, place]| [place, hidden]);
        in_directories(root, &both.collect::<Vec<PathBuf>>(), line.option("umid"), pid)
    }

    /// Opens the console at a socket.
    ///
    /// # Errors
    /// The socket can't be opened.
    pub fn at(path: PathBuf) -> io::Result<Self> {
        let socket = openat(CWD, &path, THE_FILE_ITSELF, Mode::empty())?;
        let owner = fstat(&socket)?.st_uid;
        Ok(Self { path, socket, owner })
    }

    /// Returns the path of the console's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name of its directory, which is the guest's name.
    pub fn name(&self) -> Option<&str> {
        self.path.parent()?.file_name()?.to_str()
    }

    /// Sends a command and returns the reply.
    ///
    /// # Errors
    /// It does not answer in time, or refuses.
    pub fn send_command(&self, command: &str) -> Result<String, MconsoleError> {
        self.send_command_within(command, PATIENCE)
    }

    /// Does the same as [`tell`](Self::send_command), with a deadline for the whole reply, whatever parts it has.
    ///
    /// # Errors
    /// As there.
    pub fn send_command_within(&self, command: &str, patience: Duration) -> Result<String, MconsoleError> {
        let (refused, text) = self
            .exchange(command, patience)
            .map_err(|source| MconsoleError::Socket { path: self.path.clone(), source })?;
        if refused {
            return Err(MconsoleError::Refused { command: command.to_owned(), why: text.trim().to_owned() });
        }
        Ok(text)
    }

    /// Returns the memory size as the guest sees it, in bytes.
    ///
    /// # Errors
    /// As [`tell`](Self::send_command).
    pub fn memory_bytes(&self) -> Result<Option<u64>, MconsoleError> {
        let text = self.send_command("proc meminfo")?;
        Ok(Reading::from(Meminfo::parse(&text)).value().and_then(|memory| memory.total))
    }

    /// Sends a command and returns a flag for a refusal, and the text.
    fn exchange(&self, command: &str, patience: Duration) -> io::Result<(bool, String)> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        // A descriptor that a guest passes could block the thread that reads its reply.
        refuse_descriptors(&socket);
        // First connected, then named: no other process can send to it. The guest answers to the sender's address, so
        // it needs one. The kernel chooses it: others can't take it beforehand, and nothing of it stays behind.
        connect_file(&socket, &self.socket, self.owner, PATIENCE)?;
        bind(&socket, &SocketAddrUnix::new_unnamed())?;
        let socket = UnixDatagram::from(socket);
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.send(&request(command)?)?;
        let deadline = Instant::now() + patience;
        let late = || io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time");
        let (mut text, mut refused) = (String::new(), false);
        for _ in 0..MOST_REPLIES {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(late());
            }
            socket.set_read_timeout(Some(left))?;
            let mut buffer = [0; REPLY];
            let count = socket.recv(&mut buffer).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => late(),
                _ => error,
            })?;
            let reply = buffer.get(..count).unwrap_or_default();
            let (failed, more, part) =
                parse(reply).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it answers nonsense"))?;
            refused |= failed;
            text.push_str(&part);
            if !more {
                return Ok((refused, text));
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "it answers without end"))
    }
}

/// Finds the console of a process in the first of these directories that has it.
#[allow(unsafe_code, reason = "fork has no safe wrapper")]
fn in_directories(root: &Root, places: &[PathBuf], umid: Option<&str>, pid: u32) -> Option<Mconsole> {
    let owner = statat(CWD, root.path(format!("proc/{pid}")), AtFlags::empty()).ok()?.st_uid;
    if umid.is_some_and(|umid| umid.contains('/')) {
        return None;
    }
    let umid = umid.map(CString::new).transpose().ok()?;
    let path_of = |place: &PathBuf| {
        let path = root.path(place.strip_prefix("/").ok()?);
        CString::new(path.into_os_string().into_encoded_bytes()).ok()
    };
    let paths: Vec<CString> = places.iter().map(path_of).collect::<Option<_>>()?;
    let work = |_: BorrowedFd<'_>| {
        let found = (0..).zip(&paths).find_map(|(number, path)| {
            let report = PathReport::new(number);
            console_below(path, umid.as_deref(), pid, owner, report)
        });
        found.ok_or(Errno::NOENT)
    };
    // SAFETY: `console_below` makes system calls on memory of its stack and on paths that are there. It parses a number from
    // text, which allocates nothing.
    let report = unsafe { report_from_child(owner, PATIENCE, None, work) }.ok()?;
    let place = places.get(report.number as usize)?;
    let path = place.join(OsStr::from_bytes(report.name())).join("mconsole");
    Some(Mconsole { path, socket: report.file?, owner })
}

/// Finds the console of a process in a directory: `umid` below it, or any, since a guest without a name of its own got a
/// random one. It allocates nothing.
fn console_below(path: &CStr, umid: Option<&CStr>, pid: u32, owner: u32, report: PathReport) -> Option<PathReport> {
    let access = if umid.is_some() { OFlags::PATH } else { OFlags::RDONLY };
    let place = openat(CWD, path, access | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if let Some(umid) = umid {
        return socket_of(&place, umid, pid, owner).map(|socket| report.with_file(socket, umid));
    }
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&place, &mut buffer);
    for _ in 0..MOST_ENTRIES {
        let Some(Ok(entry)) = entries.next() else { return None };
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..")
            && let Some(socket) = socket_of(&place, name, pid, owner)
        {
            return Some(report.with_file(socket, name));
        }
    }
    None
}

/// Opens the socket of a directory in which the file `pid` names the process. The process chooses the path, and root's
/// commands must reach no other user: so each file is opened once, is no link, and belongs to the user of the process.
/// It allocates nothing.
fn socket_of(place: impl AsFd, name: &CStr, pid: u32, owner: u32) -> Option<OwnedFd> {
    let directory = openat(place, name, THE_FILE_ITSELF | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let is = |found: &Stat, kind: FileType| FileType::from_raw_mode(found.st_mode) == kind;
    // A FIFO would keep the one that opens it waiting.
    let to_read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&directory, c"pid", to_read, Mode::empty()).ok()?;
    if !fstat(&file).is_ok_and(|found| is(&found, FileType::RegularFile)) {
        return None;
    }
    // One more byte shows that there is more than a PID.
    let mut text = [0; LONGEST_PID + 1];
    let length = retry_on_intr(|| rustix::io::read(&file, &mut text)).ok()?;
    let text = text.get(..length).filter(|text| text.len() <= LONGEST_PID)?;
    if std::str::from_utf8(text).ok()?.trim().parse::<u32>() != Ok(pid) {
        return None;
    }
    let socket = openat(&directory, c"mconsole", THE_FILE_ITSELF, Mode::empty()).ok()?;
    let found = fstat(&socket).ok()?;
    (found.st_uid == owner && is(&found, FileType::Socket)).then_some(socket)
}

fn request(command: &str) -> io::Result<Vec<u8>> {
    if command.len() >= LONGEST_REQUEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is too long"));
    }
    let length = command.len() as u32;
    let mut bytes: Vec<u8> = [MAGIC, VERSION, length].iter().flat_map(|number| number.to_ne_bytes()).collect();
    bytes.extend_from_slice(command.as_bytes());
    bytes.resize(12 + LONGEST_REQUEST, 0);
    Ok(bytes)
}

/// Parses a datagram: a flag for failure, a flag for more datagrams, and the text.
pub(super) fn parse(reply: &[u8]) -> Option<(bool, bool, String)> {
    let (head, text) = reply.split_first_chunk::<12>()?;
    let number = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let text = text.get(..(number(8)? as usize).min(text.len()))?;
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Some((number(0)? != 0, number(4)? != 0, String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(failed: u32, more: u32, text: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = [failed, more, text.len() as u32].iter().flat_map(|n| n.to_ne_bytes()).collect();
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    /// Starts a console that sends these replies to every request.
    fn console(replies: Vec<Vec<u8>>) -> (tempfile::TempDir, Mconsole) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mconsole");
        let socket = UnixDatagram::bind(&path).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while let Ok((_, from)) = socket.recv_from(&mut buffer) {
                for reply in &replies {
                    let _ = socket.send_to_addr(reply, &from);
                }
            }
        });
        let console = Mconsole::at(path).unwrap();
        (directory, console)
    }

    #[test]
    fn an_answer_in_parts_is_put_together() {
        let (_directory, console) =
            console(vec![reply(0, 1, "MemTotal:  4 kB\n"), reply(0, 0, "MemFree: 1 kB\n\0")]);
        assert_eq!(console.memory_bytes().unwrap(), Some(4096));
    }

    #[test]
    fn a_console_that_refuses_is_silent_or_answers_nonsense_is_an_error() {
        let error = |replies| console(replies).1.send_command("x").unwrap_err().to_string();
        let (_directory, refusing) = console(vec![reply(1, 0, "Unknown command\n")]);
        assert_eq!(
            refusing.send_command("dance").unwrap_err().to_string(),
            "user-mode Linux refuses \"dance\": Unknown command"
        );
        let (_directory, silent) = console(vec![]);
        assert!(silent.send_command("x").unwrap_err().to_string().contains("does not answer in time"));
        let (_directory, odd) = console(vec![b"short".to_vec()]);
        assert!(odd.send_command("x").unwrap_err().to_string().contains("nonsense"));
        let (_directory, endless) = console(vec![reply(0, 1, "x"); 100]);
        assert!(endless.send_command("x").is_err());
        assert!(error(vec![]).contains("fails"), "the directory is gone");
        assert!(endless.send_command(&"x".repeat(600)).is_err());
    }

    #[test]
    fn an_answer_in_many_parts_has_no_more_time_than_one_in_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mconsole");
        let guest = UnixDatagram::bind(&path).unwrap();
        // Each part comes in time for itself, and all of them well before the last that is taken.
        let answering = std::thread::spawn(move || {
            let (_, from) = guest.recv_from(&mut [0; 1024]).unwrap();
            while guest.send_to_addr(&reply(0, 1, "x"), &from).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let error = Mconsole::at(path).unwrap().send_command_within("x", Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("does not answer in time"), "{error}");
        answering.join().unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn whatever_a_console_says_there_is_a_reply_or_an_error_within_bounds(
            parts in prop::collection::vec(
                (prop::option::of((0_u32..2, 0_u32..2, any::<u32>())), prop::collection::vec(any::<u8>(), 0..512)),
                1..80,
            ),
        ) {
            let mut datagrams: Vec<Vec<u8>> = parts
                .iter()
                .map(|(head, text)| {
                    let numbers = head.map(|(failed, more, length)| [failed, more, length]);
                    let head = numbers.iter().flatten().flat_map(|number| number.to_ne_bytes());
                    head.chain(text.iter().copied()).collect()
                })
                .collect();
            // Without an end the console would be waited for.
            datagrams.push(reply(0, 0, ""));
            let (_directory, console) = console(datagrams);
            match console.memory_bytes() {
                Ok(_) => {}
                Err(MconsoleError::Refused { why, .. }) => prop_assert!(why.len() <= MOST_REPLIES * REPLY * 3),
                // The last of these on a host that is slow.
                Err(MconsoleError::Socket { source, .. }) => {
                    prop_assert!(matches!(source.kind(), io::ErrorKind::InvalidData | io::ErrorKind::TimedOut));
                }
            }
        }
    }

    /// Adds a file with this text to a tree, or a socket if there is no text.
    fn place(tree: &Path, path: &str, text: Option<&str>) {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        match text {
            Some(text) => std::fs::write(path, text).unwrap(),
            None => drop(UnixDatagram::bind(path).unwrap()),
        }
    }

    #[test]
    fn a_console_is_found_by_its_pid_alone() {
        let tree = tempfile::tempdir().unwrap();
        let place = |path: &str, text| place(tree.path(), path, text);
        place("proc/7/cmdline", Some("linux\0umid=u1\0"));
        place("proc/7/environ", Some("A=1\0HOME=/home/a\0"));
        place("home/a/.uml/u1/pid", Some("8\n"));
        place("home/a/.uml/u1/mconsole", None);
        place("x/aBcD/mconsole", None);
        let root = Root::at(tree.path());
        assert!(Mconsole::find_by_pid(&root, 7).is_none(), "another process's directory");
        place("home/a/.uml/u1/pid", Some("7\n"));
        assert_eq!(Mconsole::find_by_pid(&root, 7).unwrap().path(), Path::new("/home/a/.uml/u1/mconsole"));
        place("proc/9/cmdline", Some("linux\0uml_dir=/x\0mem=1M\0"));
        place("x/aBcD/pid", Some("9\n"));
        assert_eq!(Mconsole::find_by_pid(&root, 9).unwrap().name(), Some("aBcD"));
        std::fs::remove_file(tree.path().join("x/aBcD/mconsole")).unwrap();
        std::os::unix::fs::symlink("/dev/log", tree.path().join("x/aBcD/mconsole")).unwrap();
        assert!(Mconsole::find_by_pid(&root, 9).is_none(), "a link to another socket");
    }

    #[test]
    fn nothing_is_sent_to_a_socket_of_another_user_or_behind_a_link() {
        use rustix::fs::{Gid, Uid, chown};

        let tree = tempfile::tempdir().unwrap();
        place(tree.path(), "proc/9/cmdline", Some("linux\0uml_dir=/x\0umid=u\0"));
        place(tree.path(), "x/u/pid", Some("9\n"));
        let (path, other) = (tree.path().join("x/u/mconsole"), tree.path().join("other"));
        let guest = UnixDatagram::bind(&path).unwrap();
        let not_the_guest = UnixDatagram::bind(&other).unwrap();
        not_the_guest.set_nonblocking(true).unwrap();
        let answering = std::thread::spawn(move || {
            let (_, from) = guest.recv_from(&mut [0; 1024]).unwrap();
            guest.send_to_addr(&reply(0, 0, "heard"), &from).unwrap();
        });
        let root = Root::at(tree.path());
        let console = Mconsole::find_by_pid(&root, 9).unwrap();
        // Its user has put a link there since it was found.
        std::fs::rename(&path, tree.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert_eq!(console.send_command("version").unwrap(), "heard");
        answering.join().unwrap();
        assert!(Mconsole::find_by_pid(&root, 9).is_none(), "a link");
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(Mconsole::find_by_pid(&root, 9).is_some());
        if rustix::process::geteuid().is_root() {
            chown(&path, Some(Uid::from_raw(65534)), None::<Gid>).unwrap();
            assert!(Mconsole::find_by_pid(&root, 9).is_none(), "another user's");
        }
        let heard = not_the_guest.recv(&mut [0; 1024]).unwrap_err();
        assert_eq!(heard.kind(), io::ErrorKind::WouldBlock, "nothing was sent to it");
    }

    /// The files that a user may put there are skipped, and none is waited for.
    #[test]
    fn no_file_that_a_user_puts_there_is_followed_or_waited_for() {
        use rustix::fs::{Gid, Uid, chown, mknodat};

        let tree = tempfile::tempdir().unwrap();
        let at = |path: &str| tree.path().join(path);
        place(tree.path(), "proc/9/cmdline", Some("linux\0uml_dir=/x\0umid=u\0"));
        place(tree.path(), "secret", Some("9\n"));
        place(tree.path(), "x/u/mconsole", None);
        let root = Root::at(tree.path());
        let pid = at("x/u/pid");
        let finds = || Mconsole::find_by_pid(&root, 9).is_some();
        mknodat(CWD, &pid, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert!(!finds(), "a FIFO that is never written to");
        std::fs::remove_file(&pid).unwrap();
        std::os::unix::fs::symlink(at("secret"), &pid).unwrap();
        assert!(!finds(), "a link");
        std::fs::remove_file(&pid).unwrap();
        std::fs::create_dir(&pid).unwrap();
        assert!(!finds(), "a directory");
        std::fs::remove_dir(&pid).unwrap();
        std::fs::write(&pid, "9\n".repeat(100)).unwrap();
        assert!(!finds(), "more than a PID");
        std::fs::write(&pid, "9\n").unwrap();
        assert!(finds());
        if rustix::process::geteuid().is_root() {
            chown(at("x/u/mconsole"), Some(Uid::from_raw(65534)), None::<Gid>).unwrap();
            assert!(!finds(), "another user's socket");
        }
        std::fs::remove_file(at("x/u/mconsole")).unwrap();
        std::fs::write(at("x/u/mconsole"), "").unwrap();
        assert!(!finds(), "no socket");
    }

    /// The reply's address is one that others can't take beforehand.
    #[test]
    fn the_answer_comes_to_a_name_that_the_kernel_chose() {
        use std::os::linux::net::SocketAddrExt;

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mconsole");
        let guest = UnixDatagram::bind(&path).unwrap();
        let console = Mconsole::at(path).unwrap();
        let asked = std::thread::spawn(move || console.send_command("version"));
        let (_, from) = guest.recv_from(&mut [0; 1024]).unwrap();
        let name = from.as_abstract_name().unwrap().to_owned();
        assert!(name.len() == 5 && name.iter().all(u8::is_ascii_hexdigit), "{name:?}");
        // Another process may not answer in the guest's place.
        let other = UnixDatagram::unbound().unwrap();
        assert_eq!(
            other.send_to_addr(&reply(0, 0, "forged"), &from).unwrap_err().kind(),
            io::ErrorKind::PermissionDenied
        );
        guest.send_to_addr(&reply(0, 0, "true"), &from).unwrap();
        assert_eq!(asked.join().unwrap().unwrap(), "true");
    }

    #[test]
    fn a_guest_passes_no_descriptor_with_its_answer() {
        use std::os::linux::net::SocketAddrExt;

        use crate::passed_descriptors::tests::{kernel_refuses, pass_descriptor};

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mconsole");
        let guest = UnixDatagram::bind(&path).unwrap();
        let console = Mconsole::at(path).unwrap();
        let asked = std::thread::spawn(move || console.send_command("version"));
        let (_, from) = guest.recv_from(&mut [0; 1024]).unwrap();
        let to = SocketAddrUnix::new_abstract_name(from.as_abstract_name().unwrap()).unwrap();
        let passed = pass_descriptor(&guest, Some(&to));
        // Where the kernel takes it, that datagram was the answer.
        let _ = guest.send_to_addr(&reply(0, 0, "true"), &from);
        let answer = asked.join().unwrap();
        if kernel_refuses() {
            assert_eq!((passed, answer.unwrap().as_str()), (Err(Errno::PERM), "true"));
        }
    }
}
