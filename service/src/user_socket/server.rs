//! The daemon's end of the user socket. Only scans reach the daemon's thread.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use tracing::{debug, info, warn};

use super::budget::Budget;
use super::config::OptinConfig;
use super::peer::Peer;
use super::protocol::{LONGEST_REQUEST, Refusal, Saves, Scanned, UserAnswer, UserRequest, VERSION};
use super::ranges::{Adviser, RangesError};
use super::scans::{Done, UserScan};
use crate::socket::{self, Admitted, Awaited, Limits, Protocol, Reply, Socket, answer_or_hang_up, waiting};
use ksmith_host::root::Root;
use ksmith_host::users::group_id;

/// What all connections share.
struct Users<T> {
    budget: Budget,
    adviser: Adviser,
    worth_permille: u64,
    sender: Sender<T>,
    wrap: fn(UserScan) -> T,
}

/// Serves the user socket as configured, and passes scans on, made into messages by `wrap`. Members of the group may
/// connect. Where there is no such group only root may, which is logged.
///
/// # Errors
/// The socket can't be made.
pub fn serve<T: Send + 'static>(
    config: &OptinConfig,
    budget: Budget,
    sender: Sender<T>,
    wrap: fn(UserScan) -> T,
) -> io::Result<Socket> {
    let worth_permille = config.worth_permille;
    let users = Users { budget, adviser: Adviser::default(), worth_permille, sender, wrap };
    let socket = socket::serve(&config.socket, users)?;
    allow(&config.socket, &config.group)?;
    Ok(socket)
}

/// Lets the group in. Between bind and this, only root can connect: a socket is made without rights for others under
/// the daemon's mask, and its directory is root's.
fn allow(path: &Path, group: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    match group_id(group) {
        Some(id) => {
            // Under the systemd unit it has this group from the start, and may not be given another.
            if fs::metadata(path)?.gid() != id {
                chown(path, None, Some(id))?;
            }
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

impl<T: Send + 'static> Protocol for Users<T> {
    type Peer = Peer;

    const NAME: &'static str = "user";

    const LIMITS: Limits =
        Limits { connections: 256, of_one_user: 128, request: LONGEST_REQUEST, patience: Duration::from_secs(30) };

    fn admit(&self, stream: &UnixStream) -> Result<Admitted<Peer>, String> {
        let unseen = "your process can't be seen from the daemon's PID namespace, or has ended";
        let peer = Peer::of(stream).map_err(|_| error(Refusal::Denied, unseen))?;
        Ok(Admitted { uid: peer.accountable_uid, peer })
    }

    fn too_many(&self, why: &str) -> String {
        error(Refusal::Busy, why)
    }

    fn answer(&self, request: &[u8], peer: &Peer, stream: &UnixStream) -> Reply {
        let parsed = std::str::from_utf8(request).map_err(|_| "a request is ASCII".to_owned());
        let answer = match parsed.and_then(UserRequest::parse) {
            Ok(request) => match self.budget.request(peer.accountable_uid) {
                Ok(()) => self.answer_to(request, stream, peer),
                Err(why) => Some(UserAnswer::Error(Refusal::Busy, why)),
            },
            Err(usage) => Some(UserAnswer::Error(Refusal::Usage, usage)),
        };
        answer.map_or(Reply::Close, |answer| Reply::Answer(answer.to_string()))
    }
}

fn error(refusal: Refusal, text: &str) -> String {
    UserAnswer::Error(refusal, text.to_owned()).to_string()
}

impl<T: Send + 'static> Users<T> {
    /// Answers a request. `None`: the peer has hung up.
    fn answer_to(&self, request: UserRequest, stream: &UnixStream, peer: &Peer) -> Option<UserAnswer> {
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
            UserRequest::Scan(passes) => match self.budget.check(peer.accountable_uid) {
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
        let scan = UserScan { passes, user: peer.accountable_uid, reply, peer: alive };
        let stopped = "the daemon was stopped before the scan was done";
        let ending = || Some(UserAnswer::Error(Refusal::Refused, stopped.to_owned()));
        if self.sender.send((self.wrap)(scan)).is_err() {
            return ending();
        }
        let done = match answer_or_hang_up(&answers, stream) {
            Awaited::Answer(done) => done,
            Awaited::HungUp => return None,
            Awaited::Ended => return ending(),
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
    use std::io::{BufRead, BufReader, Write};
    use std::num::NonZeroU64;
    use std::path::PathBuf;

    use crossbeam_channel::unbounded;

    use super::super::{UserClient, UserError};
    use super::*;

    /// A socket with a daemon that scans at once.
    fn serving(cpu_seconds: f64) -> (tempfile::TempDir, PathBuf, Socket, Budget) {
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
}
