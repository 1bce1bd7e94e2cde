//! The management console of a user-mode Linux: one datagram out, some back.
//!
//! Its socket lies in a directory named after the guest (`~/.uml/NAME`, or below `uml_dir=`), beside a file with the
//! PID. Source: `arch/um/drivers/mconsole.h`, `mconsole_user.c`.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ksmith_core::kernel::{CommandLine, Meminfo};
use ksmith_core::reading::Reading;
use rustix::fs::{FileType, Mode, OFlags, fstat, open};

use crate::root::Root;

const MAGIC: u32 = 0xcafe_babe;
const VERSION: u32 = 2;
const LONGEST_REQUEST: usize = 512;
const REPLY: usize = 12 + 512;

/// The guest answers from an interrupt: at once, or it hangs.
const PATIENCE: Duration = Duration::from_millis(500);

/// `proc meminfo` takes a handful.
const MOST_REPLIES: usize = 64;

/// The reason why a console gave no answer.
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
        /// Its sentence.
        why: String,
    },
}

/// One guest's console.
#[derive(Debug)]
pub struct Mconsole {
    path: PathBuf,
    /// The user that the socket must belong to.
    owner: Option<u32>,
}

impl Mconsole {
    /// The console of the guest that has this first process. `None` where no directory names its PID.
    pub fn of(root: &Root, pid: u32) -> Option<Self> {
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
        places.into_iter().flatten().find_map(|place| {
            let hidden = own_view.join(place.strip_prefix("/").ok()?);
            [place, hidden].iter().find_map(|place| in_directory(root, place, line.option("umid"), pid))
        })
    }

    /// The console behind a socket.
    pub fn at(path: PathBuf) -> Self {
        Self { path, owner: None }
    }

    /// The path of the console's socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of its directory: what the guest is called.
    pub fn name(&self) -> Option<&str> {
        self.path.parent()?.file_name()?.to_str()
    }

    /// Tells it something and returns its answer.
    ///
    /// # Errors
    /// It does not answer in time, or refuses.
    pub fn tell(&self, command: &str) -> Result<String, MconsoleError> {
        self.tell_within(command, PATIENCE)
    }

    /// As [`tell`](Self::tell), waiting so long for each part of the answer.
    ///
    /// # Errors
    /// As there.
    pub fn tell_within(&self, command: &str, patience: Duration) -> Result<String, MconsoleError> {
        let (refused, text) = self
            .exchange(command, patience)
            .map_err(|source| MconsoleError::Socket { path: self.path.clone(), source })?;
        if refused {
            return Err(MconsoleError::Refused { command: command.to_owned(), why: text.trim().to_owned() });
        }
        Ok(text)
    }

    /// The memory that the guest believes to have, in bytes.
    ///
    /// # Errors
    /// As [`tell`](Self::tell).
    pub fn memory_bytes(&self) -> Result<Option<u64>, MconsoleError> {
        let text = self.tell("proc meminfo")?;
        Ok(Reading::from(Meminfo::parse(&text)).value().and_then(|memory| memory.total))
    }

    /// The socket itself, and not what another file of this name leads to by now: the directory is its user's, and what
    /// root sends there must reach no other user.
    fn open(&self) -> io::Result<OwnedFd> {
        let socket = open(&self.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = fstat(&socket)?;
        let is_socket = FileType::from_raw_mode(found.st_mode) == FileType::Socket;
        if is_socket && self.owner.is_none_or(|owner| owner == found.st_uid) {
            return Ok(socket);
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is no socket of the guest's own user"))
    }

    /// Whether it refused, and its text.
    fn exchange(&self, command: &str, patience: Duration) -> io::Result<(bool, String)> {
        // The guest answers to the sender's address: one is needed, of which nothing stays behind.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let own = SocketAddr::from_abstract_name(format!("ksmith-mconsole-{}-{number}", std::process::id()))?;
        let socket = UnixDatagram::bind_addr(&own)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let its = self.open()?;
        socket.connect(format!("/proc/self/fd/{}", its.as_raw_fd()))?;
        socket.send(&request(command)?)?;
        let (mut text, mut refused) = (String::new(), false);
        for _ in 0..MOST_REPLIES {
            let mut buffer = [0; REPLY];
            let count = socket.recv(&mut buffer).map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time"),
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

fn in_directory(root: &Root, place: &Path, umid: Option<&str>, pid: u32) -> Option<Mconsole> {
    let is_its = |directory: &Path| {
        let text = root.text(directory.join("pid").strip_prefix("/").ok()?);
        let socket = directory.join("mconsole");
        let owner = fs::metadata(root.path(format!("proc/{pid}"))).ok()?.uid();
        let is_its = text.value()?.trim().parse::<u32>() == Ok(pid) && belongs_to(root, &socket, owner)?;
        is_its.then_some(Mconsole { path: socket, owner: Some(owner) })
    };
    match umid {
        Some(umid) if !umid.contains('/') => is_its(&place.join(umid)),
        Some(_) => None,
        // Without a name of its own it got a random one.
        None => {
            let entries = fs::read_dir(root.path(place.strip_prefix("/").ok()?)).ok()?;
            entries.flatten().take(1000).find_map(|entry| is_its(&place.join(entry.file_name())))
        }
    }
}

/// Whether the file itself, and not what a link leads to, belongs to this user.
fn belongs_to(root: &Root, file: &Path, owner: u32) -> Option<bool> {
    let found = fs::symlink_metadata(root.path(file.strip_prefix("/").ok()?)).ok()?;
    Some(found.uid() == owner && !found.file_type().is_symlink())
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

/// Whether it failed, whether more follows, and the text.
fn parse(reply: &[u8]) -> Option<(bool, bool, String)> {
    let (head, text) = reply.split_first_chunk::<12>()?;
    let number = |at: usize| Some(u32::from_ne_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let text = text.get(..(number(8)? as usize).min(text.len()))?;
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Some((number(0)? != 0, number(4)? != 0, String::from_utf8_lossy(text).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(failed: u32, more: u32, text: &str) -> Vec<u8> {
        let mut bytes: Vec<u8> = [failed, more, text.len() as u32].iter().flat_map(|n| n.to_ne_bytes()).collect();
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    /// A console that sends these replies to every request.
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
        (directory, Mconsole::at(path))
    }

    #[test]
    fn nothing_is_sent_to_a_socket_of_another_user_or_behind_a_link() {
        let (directory, console) = console(vec![reply(0, 0, "heard")]);
        let of = |path: PathBuf, owner| {
            Mconsole { path, owner: Some(owner) }.tell("version").map_err(|error| error.to_string())
        };
        let own = fs::metadata(directory.path()).unwrap().uid();
        assert_eq!(of(console.path.clone(), own).unwrap(), "heard");
        assert!(of(console.path.clone(), own + 1).unwrap_err().contains("no socket of the guest's own user"));
        // Its user has put a link there since it was found.
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&console.path, &link).unwrap();
        assert!(of(link, own).unwrap_err().contains("no socket of the guest's own user"));
    }

    #[test]
    fn an_answer_in_parts_is_put_together() {
        let (_directory, console) =
            console(vec![reply(0, 1, "MemTotal:  4 kB\n"), reply(0, 0, "MemFree: 1 kB\n\0")]);
        assert_eq!(console.memory_bytes().unwrap(), Some(4096));
    }

    #[test]
    fn a_console_that_refuses_is_silent_or_answers_nonsense_is_an_error() {
        let error = |replies| console(replies).1.tell("x").unwrap_err().to_string();
        let (_directory, refusing) = console(vec![reply(1, 0, "Unknown command\n")]);
        assert_eq!(
            refusing.tell("dance").unwrap_err().to_string(),
            "user-mode Linux refuses \"dance\": Unknown command"
        );
        let (_directory, silent) = console(vec![]);
        assert!(silent.tell("x").unwrap_err().to_string().contains("does not answer in time"));
        let (_directory, odd) = console(vec![b"short".to_vec()]);
        assert!(odd.tell("x").unwrap_err().to_string().contains("nonsense"));
        let (_directory, endless) = console(vec![reply(0, 1, "x"); 100]);
        assert!(endless.tell("x").is_err());
        assert!(error(vec![]).contains("fails"), "the directory is gone");
        assert!(endless.tell(&"x".repeat(600)).is_err());
    }

    #[test]
    fn a_console_is_found_by_its_pid_alone() {
        let tree = tempfile::tempdir().unwrap();
        let place = |path: &str, text: &str| {
            let path = tree.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        place("proc/7/cmdline", "linux\0umid=u1\0");
        place("proc/7/environ", "A=1\0HOME=/home/a\0");
        place("home/a/.uml/u1/pid", "8\n");
        place("home/a/.uml/u1/mconsole", "");
        place("x/aBcD/mconsole", "");
        let root = Root::at(tree.path());
        assert!(Mconsole::of(&root, 7).is_none(), "another process's directory");
        place("home/a/.uml/u1/pid", "7\n");
        assert_eq!(Mconsole::of(&root, 7).unwrap().path(), Path::new("/home/a/.uml/u1/mconsole"));
        place("proc/9/cmdline", "linux\0uml_dir=/x\0mem=1M\0");
        place("x/aBcD/pid", "9\n");
        assert_eq!(Mconsole::of(&root, 9).unwrap().name(), Some("aBcD"));
        fs::remove_file(tree.path().join("x/aBcD/mconsole")).unwrap();
        std::os::unix::fs::symlink("/dev/log", tree.path().join("x/aBcD/mconsole")).unwrap();
        assert!(Mconsole::of(&root, 9).is_none(), "a link to another socket");
    }
}
