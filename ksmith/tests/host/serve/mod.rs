//! `ksmith serve` on loopback, among clients that are slow, malformed or too many, and with a daemon that comes and goes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::own::in_own_process;
use crate::support::program::{PROGRAM, ksmith};
use crate::support::serve::{FakeDaemon, RunningServer, captured, connect, get, say};
use crate::support::{skipped, wait_until};

const SLOW_CLIENTS: usize = 10_000;

/// Raises the limit of descriptors as far as it may be.
fn raise_descriptors(wanted: u64) -> usize {
    let most = fs::read_to_string("/proc/sys/fs/nr_open").unwrap().trim().parse().unwrap();
    let limit = Some(wanted.min(most));
    if setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).is_err() {
        let hard = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).unwrap();
    }
    getrlimit(Resource::Nofile).current.unwrap() as usize
}

#[test]
fn ten_thousand_slow_clients_keep_no_other_client_from_being_served() {
    in_own_process(|| {
        let daemon = FakeDaemon::start();
        let server = RunningServer::start(&daemon, &[]);
        let possible = raise_descriptors(SLOW_CLIENTS as u64 + 200) - 200;
        let slow = SLOW_CLIENTS.min(possible);
        if slow < SLOW_CLIENTS {
            skipped(&format!("only {slow} slow clients of {SLOW_CLIENTS}: no more descriptors may be had"));
        }
        let mut clients = Vec::new();
        for at in 0..slow {
            let mut client = connect(server.address);
            // A request that never ends.
            let _ = client.write_all(b"GET /api/v1/status HTTP/1.1\r\nHost: localh");
            clients.push(client);
            if at % 250 == 249 {
                assert_eq!(server.get("/api/v1/status").status, 200, "after {at} slow clients");
            }
        }
        let process = format!("/proc/{}", server.running.pid());
        let descriptors = fs::read_dir(format!("{process}/fd")).unwrap().count();
        assert!(descriptors < 300, "{descriptors} descriptors");
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
        let peak: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(peak < 64 << 10, "{peak} KiB");
        // However many clients there are, the daemon is asked once a second.
        assert!(daemon.asked() < 200, "{}", daemon.asked());
        drop(clients);
        assert_eq!(server.get("/").status, 200);
        server.running.end();
    });
}

#[test]
fn oversized_and_malformed_requests_are_refused_and_the_next_one_is_served() {
    let daemon = FakeDaemon::start();
    let server = RunningServer::start(&daemon, &[]);
    let long = "x".repeat(100_000);
    let many: String = (0..1000).map(|at| format!("X-{at}: y\r\n")).collect();
    let host = "Host: localhost\r\n";
    let requests: Vec<Vec<u8>> = vec![
        format!("GET /{long} HTTP/1.1\r\n{host}\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host}X: {long}\r\n\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host}{many}\r\n").into(),
        format!("GET / HTTP/1.1\r\nHost: {long}\r\n\r\n").into(),
        format!("GET / HTTP/9.9\r\n{host}\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host}Content-Length: 5\r\n\r\nhello").into(),
        format!("GET / HTTP/1.1\r\n{host}Content-Length: 99999999999999999999\r\n\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host}Content-Length: -1\r\n\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\nzz\r\n").into(),
        format!("POST / HTTP/1.1\r\n{host}Content-Length: 1000000000\r\n\r\n{long}").into(),
        format!("CONNECT evil.example:443 HTTP/1.1\r\n{host}\r\n").into(),
        format!("GET http://evil.example/ HTTP/1.1\r\n{host}\r\n").into(),
        b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"GET / HTTP/1.0\r\n\r\n".to_vec(),
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: localhost\r\n\r\n".to_vec(),
        format!("GET /\0 HTTP/1.1\r\n{host}\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host}X: \0\x01\r\n\r\n").into(),
        format!("GET / HTTP/1.1\r\n{host} folded\r\n\r\n").into(),
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        vec![b'\n'; 100_000],
        vec![0xff; 100_000],
        vec![b'x'; 1 << 20],
    ];
    for request in requests {
        let mut stream = connect(server.address);
        let _ = stream.write_all(&request);
        // No more will come, so that a request without an end is known to be wrong.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        let shown = String::from_utf8_lossy(&request[..request.len().min(120)]).into_owned();
        let is_refused = answer.is_empty() || text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.0 4");
        assert!(is_refused && !text.contains(" 200 "), "{shown:?}: {text}");
        assert_eq!(server.get("/api/v1/status").status, 200, "after {shown:?}");
    }
    assert_eq!(say(server.address, b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").status, 405);
    server.running.end();
}

#[test]
fn a_peer_that_hangs_lies_or_never_ends_delays_nothing() {
    let daemon = FakeDaemon::start();
    let good = RunningServer::start(&daemon, &[]);
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let secret = TcpListener::bind("127.0.0.1:0").unwrap();
    secret.set_nonblocking(true).unwrap();
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n",
        secret.local_addr().unwrap()
    );
    let endless = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n".to_owned();
    let garbage = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n[[[[".to_owned();
    let fakes = [redirect, endless, garbage].map(|answer| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let answer = answer.clone();
                std::thread::spawn(move || {
                    let _ = stream.read(&mut [0; 4096]);
                    let _ = stream.write_all(answer.as_bytes());
                    if answer.contains("json") {
                        while stream.write_all(&[b' '; 65536]).is_ok() {}
                    }
                });
            }
        });
        format!("http://{address}")
    });
    let hangs = format!("http://{}", hanging.local_addr().unwrap());
    let urls = [good.url(), hangs.clone(), fakes[0].clone(), fakes[1].clone(), fakes[2].clone()];
    let arguments: Vec<&str> = urls.iter().flat_map(|url| ["--peer", url]).collect();
    let server = RunningServer::start(&daemon, &arguments);
    // While the peer hangs, everything else is answered.
    let hosts = server.get("/api/v1/hosts").json();
    assert_eq!(hosts.as_array().unwrap().len(), 6);
    assert_eq!((&hosts[0]["ok"], &hosts[0]["url"]), (&true.into(), &"/".into()));
    let error = |at: usize, text: &str| {
        let hosts = server.get("/api/v1/hosts").json();
        let found = hosts[at]["error"].as_str().is_some_and(|error| error.contains(text));
        found
            && hosts[at]["ok"] == false
            && hosts[at]["status"].is_null()
            && hosts[at]["url"] == urls[at - 1].as_str()
    };
    wait_until("the good peer has answered", || server.get("/api/v1/hosts").json()[1]["ok"] == true);
    let hosts = server.get("/api/v1/hosts").json();
    assert_eq!(hosts[1]["status"]["pages_sharing"], good.get("/api/v1/status").json()["pages_sharing"]);
    wait_until("the hanging peer is given up", || error(2, "no answer in"));
    wait_until("the redirect is refused", || error(3, "302"));
    wait_until("the endless answer is cut", || error(4, "its answer does not come"));
    wait_until("garbage is refused", || error(5, "not JSON"));
    assert!(secret.accept().is_err(), "no redirect is followed");
    server.running.end();
}

/// The names of a stream's events, as they come.
fn events(server: &RunningServer) -> impl Iterator<Item = String> + use<> {
    let mut stream = connect(server.address);
    stream.write_all(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let lines = BufReader::new(stream).lines();
    lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("event: ").map(str::to_owned))
}

#[test]
fn a_stream_survives_a_daemon_that_goes_and_comes_back() {
    let mut daemon = FakeDaemon::start();
    let server = RunningServer::start(&daemon, &[]);
    let mut events = events(&server);
    let mut await_event = |name: &str| assert!(events.any(|event| event == name), "{name}");
    await_event("status");
    await_event("guests");
    daemon.go();
    await_event("unavailable");
    assert_eq!(server.get("/api/v1/status").status, 503);
    let error = server.get("/api/v1/status").json()["error"].as_str().unwrap().to_owned();
    assert!(error.contains("view") && error.contains("start the daemon"), "{error}");
    daemon.come_back();
    await_event("status");
    await_event("guests");
    wait_until("it is answered again", || server.get("/api/v1/status").status == 200);
    server.running.end();
}

#[test]
fn without_clients_the_daemon_is_not_asked() {
    let daemon = FakeDaemon::start();
    let server = RunningServer::start(&daemon, &[]);
    for _ in 0..3 {
        assert_eq!(server.get("/").status, 200);
    }
    assert_eq!(daemon.asked(), 0, "a page by itself costs no look");
    let mut events = events(&server);
    assert!(events.any(|event| event == "status"));
    drop(events);
    // The stream's end is seen at the next look, if not before: then no more questions come.
    let mut before = u64::MAX;
    wait_until("the questions end", || {
        std::thread::sleep(std::time::Duration::from_millis(2500));
        std::mem::replace(&mut before, daemon.asked()) == daemon.asked()
    });
    server.running.end();
}

#[test]
fn a_token_is_wanted_by_each_route_and_is_no_secret_of_others() {
    let daemon = FakeDaemon::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("token");
    let path = file.display().to_string();
    let set = |text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (text, mode, why) in [
        ("0123456789abcdef\n", 0o644, "every user may read it"),
        ("short\n", 0o600, "16 ASCII"),
        ("a b c d e f g h i j", 0o600, "one word"),
    ] {
        set(text, mode);
        let (code, _, said) =
            ksmith(&["serve", "--listen", "127.0.0.1:0", "--view-socket", "/none", "--token-file", &path]);
        assert!(code == 2 && said.contains(why), "{code}: {said}");
    }
    set("0123456789abcdef\n", 0o600);
    let server = RunningServer::start(&daemon, &["--token-file", &path]);
    for page in ["/", "/metrics", "/api/v1/status", "/api/v1/stream"] {
        assert_eq!(server.get(page).status, 401, "{page}");
    }
    let right = get(server.address, "/metrics", "Authorization: Bearer 0123456789abcdef\r\n");
    assert!(right.status == 200 && right.body.contains("ksmith_up 1"), "{right:?}");
    assert!(!server.running.end().contains("0123456789abcdef"), "the log has no token");
}

/// Runs a checker of metrics on a text. `None`, said loudly: it is not installed.
fn check(program: &str, arguments: &[&str], text: &str) -> Option<(bool, String)> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        skipped(&format!("there is no {program}"));
        return None;
    };
    // One that can't start reads nothing.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The program of Prometheus, where make unpacks it or where it is installed.
fn promtool() -> String {
    let unpacked = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/prometheus/usr/bin/promtool");
    if fs::exists(unpacked).unwrap() { unpacked.to_owned() } else { "promtool".to_owned() }
}

/// Reads OpenMetrics as strictly as its specification, and prints the number of families.
const PARSE: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
families = list(text_string_to_metric_families(sys.stdin.read()))
print(len(families), sum(len(family.samples) for family in families))
";

#[test]
fn metrics_are_such_as_promtool_and_a_strict_parser_of_openmetrics_take() {
    let daemon = FakeDaemon::start();
    let server = RunningServer::start(&daemon, &[]);
    let plain = get(server.address, "/metrics", "Accept: text/plain\r\n").body;
    let openmetrics = server.get("/metrics").body;
    let tree = captured().path("").display().to_string();
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("ksmith.prom").display().to_string();
    assert_eq!(ksmith(&["--root", &tree, "metrics", "-o", &path]).0, 0);
    let written = fs::read_to_string(&path).unwrap();
    assert_eq!(fs::read_dir(file.path()).unwrap().count(), 1, "nothing is left beside it");
    let (_, printed, _) = ksmith(&["--root", &tree, "metrics", "--format", "openmetrics"]);
    for text in [&plain, &written] {
        assert!(text.contains("ksmith_pages_sharing ") && text.contains("ksmith_guest_saved_bytes{"), "{text}");
        let Some((is_right, said)) = check(&promtool(), &["check", "metrics"], text) else { return };
        assert!(is_right && said.is_empty(), "{said}");
    }
    let broken = plain.replace("# HELP ksmith_up", "# HELPS ksmith_up");
    let (is_right, said) = check(&promtool(), &["check", "metrics"], &broken).unwrap();
    assert!(!is_right && said.contains("ksmith_up"), "a mistake would be told: {said}");
    for text in [&openmetrics, &printed] {
        let (is_right, said) = check("/usr/bin/python3", &["-c", PARSE], text).unwrap();
        if said.contains("No module named") {
            return skipped("there is no python3-prometheus-client");
        }
        assert!(is_right && said.split(' ').next().unwrap().parse::<u32>().unwrap() > 40, "{said}");
    }
    let (is_right, said) = check("/usr/bin/python3", &["-c", PARSE], &openmetrics.replace("# EOF\n", "")).unwrap();
    assert!(!is_right, "a mistake would be told: {said}");
    server.running.end();
}

#[test]
fn a_socket_of_the_service_manager_goes_before_an_address() {
    let daemon = FakeDaemon::start();
    let view = daemon.path().display().to_string();
    // An address that no other process has: loopback is a whole network.
    let pid = std::process::id();
    let address = format!("127.77.{}.{}:9797", pid >> 8 & 255, pid & 255);
    let activate = Command::new("systemd-socket-activate")
        .args(["-l", &address, PROGRAM, "serve", "--listen", "192.0.2.1:1", "--view-socket", &view])
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = activate else { return skipped("there is no systemd-socket-activate") };
    let address = address.parse().unwrap();
    wait_until("it listens", || std::net::TcpStream::connect(address).is_ok());
    let status = get(address, "/api/v1/status", "").status;
    // It has become the server itself.
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = child.wait().unwrap();
    assert_eq!((status, ended.code()), (200, Some(0)));
}

#[test]
fn an_address_that_is_taken_is_named_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, _, said) = ksmith(&["serve", "--listen", &address, "--view-socket", "/none"]);
    assert!(code == 1 && said.contains(&address) && said.contains("--listen"), "{code}: {said}");
    let (code, _, said) = ksmith(&["serve", "--peer", "https://b.example"]);
    assert!(code == 2 && said.contains("no TLS"), "{code}: {said}");
}

mod unprivileged;
