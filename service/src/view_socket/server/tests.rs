use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, unbounded};
use ksmith_core::guest::{Guest, GuestKind};
use ksmith_core::model::GuestsReport;
use ksmith_core::sample::{ProcessId, Sample};

use super::*;
use crate::control::{self, ControlClient, ControlReply, ControlRequest, PendingRequest};
use crate::testing::say;

/// Answers that a daemon could not give without a mistake: a guest with libvirt's metadata.
fn guests() -> ControlReply {
    let guest = Guest {
        is_verified: true,
        kind: GuestKind::new("qemu"),
        uid: Some(107),
        metadata: Some("<secret/>".to_owned()),
        domain: Some("a".to_owned()),
        offered: Some(true),
        ..Guest::plain("web", ProcessId { pid: 7, start_ticks: 1 })
    };
    ControlReply::Guests(Box::new(GuestsReport::new(&Sample::default(), vec![guest], 0)))
}

/// Serves a socket with a daemon that counts its requests.
fn serving(group: &str) -> (tempfile::TempDir, PathBuf, ServedSocket, Arc<AtomicU64>) {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let config = ViewConfig { socket: directory.path().join("view"), group: group.to_owned() };
    let (sender, inbox) = unbounded::<PendingRequest>();
    let socket = serve(&config, FigureAnswers::new(sender, |asked| asked)).unwrap();
    (directory, config.socket, socket, count_requests(inbox))
}

/// Answers requests as a daemon would, and counts them.
fn count_requests(inbox: Receiver<PendingRequest>) -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let asked = Arc::clone(&count);
    std::thread::spawn(move || {
        for question in inbox {
            let (request, reply, _) = question.into_parts();
            asked.fetch_add(1, Ordering::SeqCst);
            let answer = match request {
                ControlRequest::Guests => guests(),
                ControlRequest::Status | ControlRequest::Balance => {
                    ControlReply::Error { message: "not now".to_owned() }
                }
                other => panic!("{other:?} reached the daemon"),
            };
            let _ = reply.send(answer);
        }
    });
    count
}

#[test]
fn those_that_watch_at_either_socket_cost_the_daemon_one_answer() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let config = ViewConfig { socket: directory.path().join("view"), group: "no such group".to_owned() };
    let path = directory.path().join("control");
    let (sender, inbox) = unbounded::<PendingRequest>();
    let figures = FigureAnswers::new(sender.clone(), |asked| asked);
    let _view = serve(&config, Arc::clone(&figures)).unwrap();
    let _control = control::serve(&path, sender, |asked| asked, figures).unwrap();
    let asked = count_requests(inbox);
    let of_page = ControlClient::connect(&config.socket).unwrap().guests().unwrap();
    for _ in 0..3 {
        let mut top = ControlClient::connect(&path).unwrap().sharing(Duration::from_secs(3600));
        assert_eq!(top.guests().unwrap(), of_page);
    }
    assert_eq!((asked.load(Ordering::SeqCst), of_page.guests[0].metadata.as_ref()), (1, None));
    let of_command = ControlClient::connect(&path).unwrap().guests().unwrap();
    assert!(of_command.guests[0].metadata.is_some(), "a command has its own, whole");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn figures_may_be_asked_for_at_the_read_only_socket_and_nothing_else() {
    let (_directory, path, _socket, asked) = serving("no such group");
    for request in [
        r#"{"request":"scan","passes":1}"#,
        r#"{"request":"hold","guest":"a","release":false}"#,
        r#"{"request":"resize","guest":"a","give":true,"bytes":1}"#,
        r#"{"request":"switched","pid":1,"on":true}"#,
        r#"{"request":"status"} {"request":"scan","passes":1}"#,
        "[[[[[[[[[[",
        "\0",
        "",
    ] {
        let answer = say(&path, format!("{request}\n").as_bytes());
        assert!(answer.contains("only status, guests and balance can be requested here"), "{request}: {answer}");
    }
    assert!(say(&path, &[b'x'; 5000]).contains("only status"), "a request is short");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    assert!(say(&path, b"{\"request\":\"status\"}\n").contains("not now"));
    let report = ControlClient::connect(&path).unwrap().guests().unwrap();
    assert_eq!((report.guests[0].name.as_str(), report.guests[0].domain.as_deref()), ("web", Some("a")));
    assert_eq!(asked.load(Ordering::SeqCst), 2);
}

#[test]
fn libvirts_metadata_does_not_leave_the_daemon_by_the_read_only_socket() {
    let (_directory, path, _socket, _) = serving("no such group");
    let answer = say(&path, b"{\"request\":\"guests\"}\n");
    assert!(answer.contains("\"web\"") && !answer.contains("secret") && !answer.contains("107"), "{answer}");
}

/// So many looks are to be expected, however slow this machine is.
fn most_looks(since: Instant) -> u64 {
    since.elapsed().as_secs() + 2
}

#[test]
fn a_thousand_questions_cost_the_daemon_one_look_a_second() {
    let (_directory, path, _socket, asked) = serving("no such group");
    let begin = Instant::now();
    let is_root = rustix::process::geteuid().is_root();
    let mut client = ControlClient::connect(&path).unwrap();
    for _ in 0..if is_root { 1000 } else { 50 } {
        client.guests().unwrap();
    }
    let looks = asked.load(Ordering::SeqCst);
    assert!((1..=most_looks(begin)).contains(&looks), "{looks}");
}

#[test]
fn peers_that_ask_and_hang_up_cost_no_more_looks() {
    let (_directory, path, _socket, asked) = serving("no such group");
    let begin = Instant::now();
    for _ in 0..50 {
        let mut stream = UnixStream::connect(&path).unwrap();
        let _ = stream.write_all(b"{\"request\":\"guests\"}\n");
    }
    // As many slots as there are may be at work still; this waits for the last.
    while !say(&path, b"{\"request\":\"guests\"}\n").contains("web") {
        std::thread::yield_now();
    }
    let looks = asked.load(Ordering::SeqCst);
    assert!((1..=most_looks(begin)).contains(&looks), "{looks}");
}

#[test]
fn without_its_group_only_root_may_ask_for_figures() {
    let (_directory, path, _socket, _) = serving("no such group");
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn members_of_the_group_may_ask_for_figures_until_they_ask_too_often() {
    /// Asks at a socket as long as it is answered, and prints how often.
    const ASK: &str = r#"
import socket, sys
count = 0
try:
    for _ in range(10000):
        s = socket.socket(socket.AF_UNIX)
        s.connect(sys.argv[1])
        s.sendall(b'{"request":"guests"}\n')
        if '"answer":"guests"' not in s.makefile().readline():
            break
        count += 1
except OSError as error:
    print(error)
print(count)
"#;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_directory, path, _socket, _) = serving("65534");
    let ask = |group: u32| {
        use std::os::unix::process::CommandExt;
        let mut python = std::process::Command::new("python3");
        let output = python.args(["-c", ASK]).arg(&path).uid(65533).gid(group).current_dir("/").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ask(65532).contains("Permission denied"), "another group");
    let answered: u64 = ask(65534).lines().last().unwrap().parse().unwrap();
    assert!((30..5000).contains(&answered), "{answered}");
}

/// Becomes as many subordinate users as there are connections. Each asks, and keeps its connection.
const CROWD: &str = r#"
import ctypes, os, socket, sys
if ctypes.CDLL(None).unshare(0x10000000): sys.exit("no user namespaces")
print("in", flush=True)
sys.stdin.readline()
answered = 0
for user in range(1, 21):
    ours, theirs = socket.socketpair()
    if not os.fork():
        os.setuid(user)
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(sys.argv[1])
            s.sendall(b'{"request":"guests"}\n')
            is_answered = '"answer":"guests"' in s.makefile().readline()
        except OSError:
            is_answered = False
        theirs.send(b"y" if is_answered else b"n")
        sys.stdin.readline()
        os._exit(0)
    theirs.close()
    answered += ours.recv(1) == b"y"
print(answered, flush=True)
sys.stdin.readline()
"#;

/// Asks once, and prints True if it is answered.
const ONCE: &str = "import socket, sys\n\
                    s = socket.socket(socket.AF_UNIX)\n\
                    s.connect(sys.argv[1])\n\
                    s.sendall(b'{\"request\":\"guests\"}\\n')\n\
                    print('\"answer\":\"guests\"' in s.makefile().readline())\n";

#[test]
fn a_members_subordinate_users_take_no_more_connections_than_the_member() {
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (_directory, path, _socket, _) = serving("65534");
    let python = |script: &str, user: u32| {
        let mut command = Command::new("python3");
        command.args(["-c", script]).arg(&path).uid(user).gid(65534).current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    };
    let mut crowd = python(CROWD, 65533).spawn().unwrap();
    let mut lines = BufReader::new(crowd.stdout.take().unwrap()).lines().map(Result::unwrap);
    if lines.next().as_deref() != Some("in") {
        eprintln!("users may make no namespaces here");
        drop(crowd.stdin.take());
        crowd.wait().unwrap();
        return;
    }
    fs::write(format!("/proc/{}/uid_map", crowd.id()), "0 65533 1\n1 200000 99\n").unwrap();
    writeln!(crowd.stdin.as_mut().unwrap()).unwrap();
    assert_eq!(lines.next().as_deref(), Some("8"), "as many as one user has");
    let other = python(ONCE, 65532).output().unwrap();
    assert_eq!(String::from_utf8(other.stdout).unwrap(), "True\n", "another member is answered");
    drop(crowd.stdin.take());
    crowd.wait().unwrap();
}
