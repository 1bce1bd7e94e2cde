//! The daemon's end of the user socket. Only scans reach the daemon's thread.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use crossbeam_channel::{Sender, bounded};
use tracing::debug;

use super::budget::UserBudgets;
use super::config::OptinConfig;
use super::peer::{PeerFiguresError, UserPeer};
use super::protocol::{
    BadRequestError, LONGEST_REQUEST, MergedMemory, PeerSavings, RefusalKind, ScanResult, UserAnswer, UserRequest,
    VERSION,
};
use super::ranges::{RangesAdviser, RangesError};
use super::scans::{Done, ScanQueue, UserScan};
use crate::socket::{
    self, AdmittedPeer, AwaitedAnswer, PeerCredentials, ProtocolReply, ServedSocket, SocketLimits, SocketProtocol,
    answer_or_hang_up, watch_peer,
};
use ksmith_host::own_use::thread_cpu;
use ksmith_host::root::Root;

/// State that all connections share.
struct UserProtocol<T> {
    budget: UserBudgets,
    adviser: RangesAdviser,
    worth_permille: u64,
    queue: ScanQueue,
    sender: Sender<T>,
    wrap: fn(ScanQueue) -> T,
}

/// Serves the user socket as configured, and passes scans on: a queue, made into a message by `wrap` as soon as a scan
/// waits in it. Members of the group may connect. Where there is no such group only root may, which is logged.
///
/// # Errors
/// The socket can't be made.
pub fn serve<T: Send + 'static>(
    config: &OptinConfig,
    budget: UserBudgets,
    sender: Sender<T>,
    wrap: fn(ScanQueue) -> T,
) -> io::Result<ServedSocket> {
    let worth_permille = config.worth_permille;
    let queue = ScanQueue::default();
    let users = UserProtocol { budget, adviser: RangesAdviser::default(), worth_permille, queue, sender, wrap };
    let socket = socket::serve(&config.socket, users)?;
    socket::allow(&socket, &config.socket, &config.group)?;
    Ok(socket)
}

impl<T: Send + 'static> SocketProtocol for UserProtocol<T> {
    type Peer = UserPeer;

    const NAME: &'static str = "user";

    const LIMITS: SocketLimits = SocketLimits {
        connections: 256,
        of_one_user: 128,
        request: LONGEST_REQUEST,
        patience: Duration::from_secs(30),
    };

    fn admit(&self, stream: &UnixStream) -> Result<AdmittedPeer<UserPeer>, String> {
        let credentials = PeerCredentials::from_stream(stream).map_err(|_| error(RefusalKind::Denied, UNSEEN))?;
        admit(&self.budget, credentials, UserPeer::open)
    }

    fn too_many(&self, why: &str) -> String {
        error(RefusalKind::Busy, why)
    }

    fn answer(&self, request: &[u8], peer: &UserPeer, stream: &UnixStream) -> ProtocolReply {
        let begin = thread_cpu();
        // Before it is read: nonsense costs as well. A flood is cut off, or each refusal would cost another.
        if let Err(why) = self.budget.line(peer.accountable_uid) {
            return ProtocolReply::Last(error(RefusalKind::Busy, &why.to_string()));
        }
        let parsed = std::str::from_utf8(request).map_err(|_| BadRequestError::NotText);
        let parsed = parsed.and_then(UserRequest::parse);
        // Advice is charged where it is made.
        let is_charged = parsed == Ok(UserRequest::Ranges);
        let answer = match parsed {
            Ok(request) => self.answer_to(request, stream, peer),
            Err(usage) => Some(UserAnswer::Error(RefusalKind::Usage, usage.to_string())),
        };
        if !is_charged {
            self.budget.charge(peer.accountable_uid, thread_cpu().saturating_sub(begin));
        }
        answer.map_or(ProtocolReply::Close, |answer| ProtocolReply::Answer(answer.to_string()))
    }
}

/// Refusal of a process that can't be seen from here.
const UNSEEN: &str = "your process can't be seen from the daemon's PID namespace, has ended, or is another user's";

/// Examines a process that has connected by `open`, if its user has not connected too often: that costs more than a
/// refusal. A process that executes a program keeps `open` waiting, and with it all others that connect.
fn admit(
    budget: &UserBudgets,
    credentials: PeerCredentials,
    open: impl FnOnce(PeerCredentials) -> io::Result<UserPeer>,
) -> Result<AdmittedPeer<UserPeer>, String> {
    let count = |uid| budget.connection(uid).map_err(|why| error(RefusalKind::Busy, &why.to_string()));
    let holder = credentials.holder().map_err(|_| error(RefusalKind::Denied, UNSEEN))?;
    count(holder)?;
    let (begin, cpu) = (Instant::now(), thread_cpu());
    let peer = open(credentials);
    budget.charge_delay(holder, begin.elapsed());
    let uid = peer.as_ref().map_or(holder, |peer| peer.accountable_uid);
    budget.charge(uid, thread_cpu().saturating_sub(cpu));
    let peer = peer.map_err(|_| error(RefusalKind::Denied, UNSEEN))?;
    if uid != holder {
        count(uid)?;
    }
    Ok(AdmittedPeer { uid, peer })
}

fn error(refusal: RefusalKind, text: &str) -> String {
    UserAnswer::Error(refusal, text.to_owned()).to_string()
}

impl<T: Send + 'static> UserProtocol<T> {
    /// Answers a request; `None` if the peer has hung up.
    fn answer_to(&self, request: UserRequest, stream: &UnixStream, peer: &UserPeer) -> Option<UserAnswer> {
        let error = |refusal, text: String| Some(UserAnswer::Error(refusal, text));
        match request {
            UserRequest::Hello(VERSION) => Some(UserAnswer::Hello),
            UserRequest::Hello(other) => {
                error(RefusalKind::Usage, format!("version {other} is not supported here, version {VERSION} is"))
            }
            UserRequest::Saves => match peer.saves(&Root::host()) {
                Ok(saves) => Some(UserAnswer::Saves(saves)),
                Err(why @ PeerFiguresError::OtherRights) => error(RefusalKind::Denied, why.to_string()),
                Err(why @ PeerFiguresError::Unreadable(_)) => error(RefusalKind::Refused, why.to_string()),
            },
            UserRequest::Scan(passes) => {
                let budget = &self.budget;
                let may = budget.check(peer.accountable_uid);
                match may.and_then(|()| budget.check_passes(peer.accountable_uid, passes.get())) {
                    Ok(()) => self.scan(passes.get(), stream, peer),
                    Err(why) => error(RefusalKind::Budget, why.to_string()),
                }
            }
            UserRequest::Ranges => match self.adviser.advise(peer, self.worth_permille, &self.budget) {
                Ok(advice) => {
                    debug!("advised {} ({}) for {:?} of CPU", peer.id, peer.name, advice.cpu);
                    Some(UserAnswer::Ranges(advice.ranges))
                }
                Err(why) => {
                    let refusal = match why {
                        RangesError::Budget(_) => RefusalKind::Budget,
                        RangesError::NotTheUsers => RefusalKind::Denied,
                        RangesError::Busy => RefusalKind::Busy,
                        RangesError::Unreadable(_) | RangesError::HeldUp(_) | RangesError::TooLarge => {
                            RefusalKind::Refused
                        }
                    };
                    error(refusal, why.to_string())
                }
            },
        }
    }

    fn scan(&self, passes: u64, stream: &UnixStream, peer: &UserPeer) -> Option<UserAnswer> {
        let (reply, answers) = bounded::<Done>(1);
        let (waits, alive) = watch_peer();
        let scan = UserScan { passes, user: peer.accountable_uid, reply, peer: alive };
        let stopped = "the daemon was stopped before the scan was done";
        let ending = || Some(UserAnswer::Error(RefusalKind::Refused, stopped.to_owned()));
        if self.queue.add(scan) && self.sender.send((self.wrap)(self.queue.clone())).is_err() {
            return ending();
        }
        let done = match answer_or_hang_up(&answers, stream) {
            AwaitedAnswer::Answer(done) => done,
            AwaitedAnswer::HungUp => return None,
            AwaitedAnswer::Ended => return ending(),
        };
        drop(waits);
        Some(match done {
            Ok((passes, ksmd_cpu_ns)) => {
                let saves = peer.saves(&Root::host()).inspect_err(|why| debug!("figures of {}: {why}", peer.id));
                let merged = saves.ok().map(|PeerSavings { merged_bytes, saved_bytes, .. }| MergedMemory {
                    merged_bytes,
                    saved_bytes,
                });
                UserAnswer::Scanned(ScanResult { passes, merged, ksmd_cpu_ns })
            }
            Err((refusal, text)) => UserAnswer::Error(refusal, text),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::num::NonZeroU64;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use crossbeam_channel::unbounded;

    use super::super::{PassLimit, UserClient, UserError};
    use super::*;
    use crate::testing::say;
    use crate::user_socket::UserScans;

    const OTHER_USER: u32 = 65534;

    /// Serves a socket with a daemon that scans at once.
    fn serving(cpu_seconds: f64) -> (tempfile::TempDir, PathBuf, ServedSocket, UserBudgets) {
        serving_group(cpu_seconds, "no such group")
    }

    /// Serves the same, to which a group may connect.
    fn serving_group(cpu_seconds: f64, group: &str) -> (tempfile::TempDir, PathBuf, ServedSocket, UserBudgets) {
        let budget = UserBudgets::new(cpu_seconds, PassLimit::Unlimited);
        let (directory, path, served) = serving_with(&budget, group);
        (directory, path, served, budget)
    }

    fn serving_with(budget: &UserBudgets, group: &str) -> (tempfile::TempDir, PathBuf, ServedSocket) {
        let (directory, path, served, _) = serving_counted(budget, group);
        (directory, path, served)
    }

    /// Serves the same, with the count of passes that were made.
    fn serving_counted(
        budget: &UserBudgets,
        group: &str,
    ) -> (tempfile::TempDir, PathBuf, ServedSocket, Arc<AtomicU64>) {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let socket = directory.path().join("user");
        let config = OptinConfig { socket: socket.clone(), group: group.to_owned(), ..OptinConfig::default() };
        let (sender, queues) = unbounded::<ScanQueue>();
        let served = serve(&config, budget.clone(), sender, |queue| queue).unwrap();
        let mut scans = UserScans::new(budget.clone());
        let made = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&made);
        std::thread::spawn(move || {
            for queue in queues {
                scans.add_all(&queue);
                if let Some(passes) = scans.begin() {
                    count.fetch_add(passes, Ordering::Relaxed);
                    scans.finish(Duration::from_nanos(5), &Ok(()));
                }
            }
        });
        (directory, socket, served, made)
    }

    #[test]
    fn each_request_has_its_answer() {
        let (_directory, path, _served, _) = serving(60.0);
        assert_eq!(say(&path, b"hello 1\n"), "ok ksmith 1\n");
        assert!(say(&path, b"hello 2\n").starts_with("error usage version 2"));
        assert!(say(&path, b"saves\n").starts_with("ok rss_bytes="));
        let mut client = UserClient::connect(&path).unwrap();
        let scanned = client.scan(NonZeroU64::new(3).unwrap(), || false).unwrap();
        assert_eq!((scanned.passes, scanned.ksmd_cpu_ns, scanned.merged.is_some()), (3, 5, true));
        assert!(
            client.send_request(UserRequest::Saves, || false).unwrap().contains("profit_bytes="),
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
                assert!(refusal == RefusalKind::Budget && text.contains("used up"))
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// Returns the output of a Python program that another user runs; `None` if this can't be tried.
    fn attack(script: &str, arguments: &[&str]) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("only root can become another user");
            return None;
        }
        let mut command = Command::new("python3");
        command.args(["-c", script]).args(arguments).uid(OTHER_USER).gid(OTHER_USER).current_dir("/");
        let Ok(output) = command.output() else {
            eprintln!("there is no Python");
            return None;
        };
        assert!(!output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    }

    /// Connects, asks for a scan if told to, forks, and executes a program; the child holds the connection, asks on,
    /// and prints the answers.
    const EXEC: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
f = s.makefile()
s.sendall(b"saves\n")
print(f.readline(), end="", flush=True)
parent = os.getpid()
if os.fork():
    if len(sys.argv) > 2:
        os.execv(sys.argv[2], [sys.argv[2], "600"])
    os.wait()
    sys.exit()
own = open("/proc/self/comm").read()
while len(sys.argv) > 2 and open(f"/proc/{parent}/comm").read() == own:
    pass
for line in b"saves\n", b"scan 1\n", b"ranges\n":
    s.sendall(line)
    while (answer := f.readline()) and not answer.startswith(("ok", "error")):
        pass
    print(answer, end="", flush=True)
os.kill(parent, 9) if len(sys.argv) > 2 else None
"#;

    #[test]
    fn a_child_learns_nothing_of_the_set_user_id_program_that_its_parent_executes() {
        let (directory, path, _served, _) = serving_group(60.0, &OTHER_USER.to_string());
        let socket = path.to_str().unwrap();
        let Some(own) = attack(EXEC, &[socket]) else { return };
        let lines: Vec<&str> = own.lines().collect();
        assert!(lines[0].starts_with("ok rss_bytes=") && lines[1].starts_with("ok rss_bytes="), "{own}");
        assert!(lines[2].starts_with("ok passes=1 merged_bytes=") && lines[3].starts_with("ok ranges="), "{own}");

        // Set-user-id, set-group-id, one that may be run and not read, one with file capabilities, and a plain one.
        let program = directory.path().join("sleep");
        for (mode, has_capability) in
            [(0o4755, false), (0o2755, false), (0o711, false), (0o755, true), (0o755, false)]
        {
            let _ = fs::remove_file(&program);
            crate::testing::copy_program("/bin/sleep", &program);
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
            if has_capability {
                // VFS_CAP_REVISION_2, effective; CAP_NET_RAW permitted.
                let value: Vec<u8> =
                    [0x0200_0001_u32, 1 << 13, 0, 0, 0].iter().flat_map(|word| word.to_le_bytes()).collect();
                let set =
                    rustix::fs::setxattr(&program, "security.capability", &value, rustix::fs::XattrFlags::empty());
                if set.is_err() {
                    eprintln!("no file capabilities can be given here");
                    continue;
                }
            }
            let said = attack(EXEC, &[socket, program.to_str().unwrap()]).unwrap();
            let lines: Vec<&str> = said.lines().collect();
            assert!(lines[0].starts_with("ok rss_bytes="), "{mode:o}: {said}");
            assert!(lines[1].starts_with("error denied "), "{mode:o}: {said}");
            assert_eq!(lines[2], "ok passes=1 ksmd_cpu_ns=5", "{mode:o}: no figures");
            assert!(lines[3].starts_with("error denied "), "{mode:o}: {said}");
        }
    }

    /// Asks for passes in each way: too many at once, one after the other, from a new process, hanging up at once.
    const ORACLE: &str = r#"
import os, socket, sys
def ask(passes, waits=True):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(b"scan %d\n" % passes)
    return s.makefile().readline().split(" ")[:2] if waits else s.close()
print(*ask(6))
print(*ask(3))
if not os.fork():
    print(*ask(1), flush=True)
    os._exit(0)
os.wait()
for _ in range(9):
    ask(1, waits=False)
for _ in range(9):
    last = ask(1)
print(*last)
print(*ask(5))
"#;

    #[test]
    fn another_user_gets_no_pass_beyond_the_limit_however_it_asks() {
        let budget = UserBudgets::new(60.0, PassLimit::Most(std::num::NonZeroU32::new(5).unwrap()));
        let (_directory, path, _served, made) = serving_counted(&budget, &OTHER_USER.to_string());
        let Some(said) = attack(ORACLE, &[path.to_str().unwrap()]) else { return };
        assert_eq!(said, "error budget\nok passes=3\nok passes=1\nerror budget\nerror budget\n");
        assert_eq!(made.load(Ordering::Relaxed), 5);
        assert!(say(&path, b"scan 16\n").starts_with("ok passes=16 "), "root has no limit");
    }

    /// Floods the socket: nonsense over one connection, then connections until one is refused.
    const FLOOD: &str = r#"
import socket, sys
def say(text):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    said = b""
    try:
        s.sendall(text)
        s.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    try:
        while part := s.recv(1 << 16):
            said += part
    except ConnectionResetError:
        pass
    return said
said = say(b"nonsense\n" * 1000)
print(said.count(b"error usage"), b"64 lines in 4 s" in said)
connections = 1
while connections < 1000 and b"256 connections in 4 s" not in say(b"hello 1\n"):
    connections += 1
print(connections)
"#;

    #[test]
    fn a_user_that_connects_too_often_costs_no_look_at_its_process() {
        let budget = UserBudgets::standing_still(60.0);
        // A look finds no such process, and would say so.
        let no_process = |user| PeerCredentials { pid: u32::MAX, user, group: user };
        let look = |user| admit(&budget, no_process(user), UserPeer::open);
        let refusals: Vec<String> = (0..300).map(|_| look(7).unwrap_err()).collect();
        let looks = refusals.iter().filter(|text| text.contains("can't be seen")).count();
        assert_eq!((looks, refusals[256].contains("256 connections in 4 s")), (256, true));
        assert!(budget.left(7) < 60.0, "looks that find nothing are paid for");
        let left = budget.left(7);
        assert!(look(7).is_err());
        assert!(budget.left(7) >= left, "a refusal is not");
        assert!(look(8).unwrap_err().contains("can't be seen"), "another user");
    }

    #[test]
    fn a_user_whose_processes_keep_the_accept_loop_waiting_is_soon_refused_and_others_are_not() {
        let budget = UserBudgets::standing_still(60.0);
        let connect = |user, delay| {
            let wait = |_| {
                std::thread::sleep(delay);
                Err(io::ErrorKind::TimedOut.into())
            };
            let refusal = admit(&budget, PeerCredentials { pid: u32::MAX, user, group: user }, wait).unwrap_err();
            refusal.contains("can't be seen")
        };
        // Each look may take as long as the reader waits for an answer.
        let looks = (0..30).take_while(|_| connect(7, Duration::from_millis(50))).count();
        assert!((1..=10).contains(&looks), "256 connections count 25 for a delay of 40 ms too much: {looks}");
        assert!(connect(8, Duration::ZERO), "another user");
        assert!((0..30).all(|_| connect(0, Duration::from_millis(11))), "root");
    }

    #[test]
    fn a_flood_of_connections_and_of_nonsense_is_cut_off_and_paid_for() {
        // The clock of this budget stands still, so nothing comes back meanwhile.
        let budget = UserBudgets::standing_still(60.0);
        let (_directory, path, _served) = serving_with(&budget, &OTHER_USER.to_string());
        let Some(said) = attack(FLOOD, &[path.to_str().unwrap()]) else { return };
        // At most so many (`a_user_that_connects_too_often_costs_no_look_at_its_process` counts them exactly): each
        // look that a busy machine delays counts as several.
        let (nonsense, connections) = said.trim().split_once('\n').unwrap();
        assert_eq!(nonsense, "64 True");
        assert!((2..=256).contains(&connections.parse::<u32>().unwrap()), "{connections} connections");
        assert!(budget.left(OTHER_USER) < 60.0);
        assert_eq!(say(&path, b"hello 1\n"), "ok ksmith 1\n", "root is served");
    }
}
