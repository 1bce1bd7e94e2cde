//! The daemon's end of the user socket. Threads of its own answer; only scans reach the daemon.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use tracing::{debug, info, warn};

use super::budget::Budget;
use super::peer::Peer;
use super::protocol::{LONGEST_REQUEST, Refusal, Saves, Scanned, UserAnswer, UserRequest, VERSION};
use super::ranges::{Adviser, RangesError};
use super::scans::{Done, UserScan};
use super::seats::{self, Seats, Taken};
use crate::config::OptinConfig;
use crate::control::{has_hung_up, remove_socket, waiting};
use crate::root::Root;

/// Threads at most: one for each connection, and some for those that are refused or on their way out.
const THREADS: usize = seats::MOST + 32;

/// A peer that says or takes nothing for so long is let go.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a peer that waits is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The socket. Dropping it removes the file; the threads behind it end with the process.
#[derive(Debug)]
pub struct UserSocket(PathBuf);

impl Drop for UserSocket {
    fn drop(&mut self) {
        // A file that stays behind is removed by the next daemon.
        let _ = remove_socket(&self.0);
    }
}

/// What all threads share.
struct Desk<T> {
    budget: Budget,
    adviser: Adviser,
    worth_permille: u64,
    sender: Sender<T>,
    wrap: fn(UserScan) -> T,
    seats: Seats,
    threads: AtomicUsize,
}

/// Listens as configured, and sends scans on, made into messages by `wrap`. Members of the group may connect; where
/// there is no such group only root may, which is said.
///
/// # Errors
/// The socket can't be made.
pub fn serve<T: Send + 'static>(
    config: &OptinConfig,
    budget: Budget,
    sender: Sender<T>,
    wrap: fn(UserScan) -> T,
) -> io::Result<UserSocket> {
    let path = &config.socket;
    remove_socket(path)?;
    let listener = UnixListener::bind(path)?;
    let socket = UserSocket(path.clone());
    allow(path, &config.group)?;
    let desk = Arc::new(Desk {
        budget,
        adviser: Adviser::default(),
        worth_permille: config.worth_permille,
        sender,
        wrap,
        seats: Seats::default(),
        threads: AtomicUsize::new(0),
    });
    std::thread::Builder::new().name("users".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Descriptors have run out: to try again at once would only take the CPU.
                std::thread::sleep(LOOK);
                continue;
            };
            if desk.threads.load(Ordering::Relaxed) >= THREADS {
                refuse(&stream, Refusal::Busy, "too many are connected; try again");
                continue;
            }
            desk.threads.fetch_add(1, Ordering::Relaxed);
            let shared = Arc::clone(&desk);
            let spawned = std::thread::Builder::new().name("user".to_owned()).spawn(move || {
                if let Err(error) = shared.receive(&Arc::new(stream)) {
                    debug!("user socket: {error}");
                }
                shared.threads.fetch_sub(1, Ordering::Relaxed);
            });
            if spawned.is_err() {
                desk.threads.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    Ok(socket)
}

/// Lets the group in. Between bind and this, only root can connect: a socket is made without rights for others under
/// the daemon's mask, and its directory is root's.
fn allow(path: &Path, group: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    match group_id(group) {
        Some(id) => {
            chown(path, None, Some(id))?;
            fs::set_permissions(path, Permissions::from_mode(0o660))?;
            // Members must get as far as the socket: others may pass and not look.
            if let Ok(found) = fs::metadata(directory)
                && found.permissions().mode() & 0o001 == 0
                && directory.ends_with("ksmith")
            {
                fs::set_permissions(
                    directory,
                    Permissions::from_mode(found.permissions().mode() & 0o7777 | 0o011),
                )?;
            }
            info!("members of the group {group} may ask at {}", path.display());
        }
        None => {
            fs::set_permissions(path, Permissions::from_mode(0o600))?;
            info!(
                "there is no group {group}: only root may ask at {}; `groupadd --system {group}` and restart",
                path.display()
            );
        }
    }
    Ok(())
}

/// The number of a group in /etc/group, or the number itself.
fn group_id(name: &str) -> Option<u32> {
    let text = fs::read_to_string("/etc/group").unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    found.or_else(|| name.parse().ok())
}

fn refuse(mut stream: &UnixStream, refusal: Refusal, text: &str) {
    let _ = stream.set_write_timeout(Some(LOOK));
    let _ = stream.write_all(UserAnswer::Error(refusal, text.to_owned()).to_string().as_bytes());
}

impl<T> Desk<T> {
    /// Serves one connection.
    fn receive(&self, stream: &Arc<UnixStream>) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let Ok(peer) = Peer::of(stream) else {
            refuse(
                stream,
                Refusal::Denied,
                "your process can't be seen from the daemon's PID namespace, or has ended",
            );
            return Ok(());
        };
        let seat = match self.seats.take(peer.payer, stream) {
            Ok(seat) => seat,
            Err(why) => {
                refuse(stream, Refusal::Busy, why);
                return Ok(());
            }
        };
        self.converse(stream, &peer, &seat)
    }

    fn converse(&self, mut stream: &UnixStream, peer: &Peer, seat: &Taken<'_>) -> io::Result<()> {
        loop {
            let mut line = Vec::new();
            seat.set_idle(true);
            // A reader for each request, so that its limit is: peers wait for the answer.
            BufReader::with_capacity(LONGEST_REQUEST as usize, stream.take(LONGEST_REQUEST))
                .read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(());
            }
            seat.set_idle(false);
            let parsed = std::str::from_utf8(&line).map_err(|_| "a request is ASCII".to_owned());
            let answer = match parsed.and_then(UserRequest::parse) {
                Ok(request) => match self.budget.request(peer.payer) {
                    Ok(()) => self.answer(request, stream, peer),
                    Err(why) => Some(UserAnswer::Error(Refusal::Busy, why)),
                },
                Err(usage) => Some(UserAnswer::Error(Refusal::Usage, usage)),
            };
            let Some(answer) = answer else { return Ok(()) };
            stream.write_all(answer.to_string().as_bytes())?;
            if !line.ends_with(b"\n") {
                return Ok(());
            }
        }
    }

    /// `None`: the peer has hung up.
    fn answer(&self, request: UserRequest, stream: &UnixStream, peer: &Peer) -> Option<UserAnswer> {
        let error = |refusal, text: String| Some(UserAnswer::Error(refusal, text));
        match request {
            UserRequest::Hello(VERSION) => Some(UserAnswer::Hello),
            UserRequest::Hello(other) => {
                error(Refusal::Usage, format!("version {other} is not spoken here, version {VERSION} is"))
            }
            UserRequest::Saves if !peer.has_its_users_rights() => {
                error(Refusal::Denied, "your process has another user than when it connected".to_owned())
            }
            UserRequest::Saves => match peer.saves(&Root::host()) {
                Ok(saves) => Some(UserAnswer::Saves(saves)),
                Err(why) => error(Refusal::Refused, format!("your figures can't be read: {why}")),
            },
            UserRequest::Scan(passes) => match self.budget.check(peer.payer) {
                Ok(()) => self.scan(passes.get(), stream, peer),
                Err(why) => error(Refusal::Budget, why),
            },
            UserRequest::Ranges => match self.adviser.advise(peer, self.worth_permille, &self.budget) {
                Ok(advice) => {
                    debug!("advised {} ({}) for {:?} of CPU", peer.id, peer.name, advice.cpu);
                    Some(UserAnswer::Ranges(advice.ranges))
                }
                Err(why) => {
                    let refusal = match why {
                        RangesError::Budget(_) => Refusal::Budget,
                        RangesError::NotTheUsers => Refusal::Denied,
                        RangesError::Busy => Refusal::Busy,
                        RangesError::Unreadable(_) | RangesError::TooLarge => Refusal::Refused,
                    };
                    error(refusal, why.to_string())
                }
            },
        }
    }

    fn scan(&self, passes: u64, stream: &UnixStream, peer: &Peer) -> Option<UserAnswer> {
        let (reply, answers) = bounded::<Done>(1);
        let (waits, alive) = waiting();
        let scan = UserScan { passes, user: peer.payer, reply, peer: alive };
        let ending = || {
            Some(UserAnswer::Error(Refusal::Refused, "the daemon was stopped before the scan was done".to_owned()))
        };
        if self.sender.send((self.wrap)(scan)).is_err() {
            return ending();
        }
        let done = loop {
            match answers.recv_timeout(LOOK) {
                Ok(done) => break done,
                Err(RecvTimeoutError::Timeout) if has_hung_up(stream) => return None,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return ending(),
            }
        };
        drop(waits);
        Some(match done {
            Ok((passes, ksmd_cpu_ns)) => {
                let Saves { merged_bytes, saved_bytes, .. } = peer
                    .saves(&Root::host())
                    .inspect_err(|why| warn!("figures of {}: {why}", peer.id))
                    .unwrap_or_default();
                UserAnswer::Scanned(Scanned { passes, merged_bytes, saved_bytes, ksmd_cpu_ns })
            }
            Err((refusal, text)) => UserAnswer::Error(refusal, text),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use crossbeam_channel::unbounded;

    use super::super::{UserClient, UserError};
    use super::*;

    /// A socket whose scans are made at once.
    fn serving(cpu_seconds: f64) -> (tempfile::TempDir, PathBuf, UserSocket, Budget) {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("user");
        let config =
            OptinConfig { socket: socket.clone(), group: "no such group".to_owned(), ..OptinConfig::default() };
        let (sender, scans) = unbounded::<UserScan>();
        let budget = Budget::new(cpu_seconds);
        let served = serve(&config, budget.clone(), sender, |scan| scan).unwrap();
        std::thread::spawn(move || {
            for UserScan { passes, reply, .. } in scans {
                let _ = reply.send(Ok((passes, 5)));
            }
        });
        (directory, socket, served, budget)
    }

    fn say(path: &Path, text: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(text).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line
    }

    #[test]
    fn each_request_has_its_answer() {
        let (_directory, path, _served, _) = serving(60.0);
        assert_eq!(say(&path, b"hello 1\n"), "ok ksmith 1\n");
        assert!(say(&path, b"hello 2\n").starts_with("error usage version 2"));
        assert!(say(&path, b"saves\n").starts_with("ok rss_bytes="));
        let mut client = UserClient::connect(&path).unwrap();
        let scanned = client.scan(NonZeroU64::new(3).unwrap(), || false).unwrap();
        assert_eq!((scanned.passes, scanned.ksmd_cpu_ns), (3, 5));
        assert!(
            client.ask(UserRequest::Saves, || false).unwrap().contains("profit_bytes="),
            "one connection serves many"
        );
    }

    #[test]
    fn garbage_is_answered_with_the_usage_and_the_next_peer_served() {
        let (_directory, path, _served, _) = serving(60.0);
        for garbage in
            [&b"\n"[..], b"scan\n", b"scan 99999999999999999999\n", b"\xff\xfe\n", b"{}\n", &[b'x'; 5000]]
        {
            assert!(say(&path, garbage).starts_with("error usage "), "{garbage:?}");
        }
        assert_eq!(say(&path, b"hello 1\n"), "ok ksmith 1\n");
    }

    #[test]
    fn without_the_group_only_root_may_connect() {
        let (_directory, path, _served, _) = serving(60.0);
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_user_without_budget_is_refused() {
        let user = rustix::process::getuid().as_raw();
        let (_directory, path, _served, budget) = serving(1.0);
        budget.charge(user, Duration::from_secs(5));
        let result = UserClient::connect(&path).unwrap().scan(NonZeroU64::MIN, || false);
        match result {
            Ok(_) => assert_eq!(user, 0, "only root has no limit"),
            Err(UserError::Refused(refusal, text)) => {
                assert!(refusal == Refusal::Budget && text.contains("used up"))
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_group_is_found_by_name_or_number() {
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(group_id("65534"), Some(65534));
        assert_eq!(group_id("no such group"), None);
    }
}
