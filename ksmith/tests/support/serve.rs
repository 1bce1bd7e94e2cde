//! A `ksmith serve` at work, the daemon that it asks, and clients that say what they like.

#![allow(dead_code, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::unbounded;
use ksmith_core::guest::Guest;
use ksmith_core::model::{DaemonStatus, GuestsReport, StatusReport};
use ksmith_core::sample::{ProcessId, ProcessSample};
use ksmith_host::guests::{GuestTracker, LibvirtUri};
use ksmith_host::observe::HostObserver;
use ksmith_host::root::Root;
use ksmith_service::control::{ControlReply, ControlRequest, FigureAnswers, PendingRequest};
use ksmith_service::socket::ServedSocket;
use ksmith_service::view_socket::{ViewConfig, serve};
use serde_json::Value;

use super::program::RunningProgram;

/// A read-only socket that answers with the figures of a captured tree.
pub struct FakeDaemon {
    directory: tempfile::TempDir,
    socket: Option<ServedSocket>,
    asked: Arc<AtomicU64>,
    guests: Option<usize>,
}

impl FakeDaemon {
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts a daemon with this many guests.
    pub fn of_guests(guests: usize) -> Self {
        Self::start_with(Some(guests))
    }

    fn start_with(guests: Option<usize>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut daemon = Self { directory, socket: None, asked: Arc::default(), guests };
        daemon.come_back();
        daemon
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("view")
    }

    /// Removes the socket.
    pub fn go(&mut self) {
        self.socket = None;
    }

    /// Makes the socket anew.
    pub fn come_back(&mut self) {
        let config = ViewConfig { socket: self.path(), group: "no such group".to_owned() };
        let (sender, inbox) = unbounded::<PendingRequest>();
        self.socket = Some(serve(&config, FigureAnswers::new(sender, |asked| asked)).unwrap());
        let (asked, guests) = (Arc::clone(&self.asked), self.guests);
        std::thread::spawn(move || {
            for question in inbox {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                let (request, reply, _) = question.into_parts();
                let mut answer = answer(&request);
                if let (ControlReply::Guests(report), Some(guests)) = (&mut answer, guests) {
                    multiply(&mut report.guests, guests);
                    // No two answers are the same.
                    report.cow_ksm = Some(number);
                }
                let _ = reply.send(answer);
            }
        });
    }

    /// The number of questions so far.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Makes so many guests of one.
fn multiply(guests: &mut Vec<Guest>, number: usize) {
    let pattern = guests.first().unwrap().clone();
    let guest = |at: usize| Guest {
        name: format!("guest-{at}"),
        uuid: Some(format!("8c4f0000-0000-4000-8000-{at:012}")),
        processes: vec![ProcessId { pid: at as u32 + 1, start_ticks: 1 }],
        ..pattern.clone()
    };
    *guests = (0..number).map(guest).collect();
}

/// Status and guests of a captured host with so many guests, each a process.
pub fn figures_of(guests: usize) -> (StatusReport, GuestsReport) {
    let answers = (answer(&ControlRequest::Status), answer(&ControlRequest::Guests));
    let (ControlReply::Status(mut status), ControlReply::Guests(mut report)) = answers else {
        panic!("the captured host has no figures");
    };
    multiply(&mut report.guests, guests);
    let pattern = status.sample.processes.first().unwrap().clone();
    let process = |guest: &Guest| ProcessSample { id: guest.processes[0], ..pattern.clone() };
    status.sample.processes = report.guests.iter().map(process).collect();
    (*status, *report)
}

/// A captured host.
pub fn captured() -> Root {
    Root::at(Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/linux-6.18"))
}

fn answer(request: &ControlRequest) -> ControlReply {
    let sample = HostObserver::new(captured()).sample();
    match request {
        ControlRequest::Status => {
            let daemon = DaemonStatus {
                pid: 7,
                policy: "profit".to_owned(),
                state: "quiet".to_owned(),
                reason: "no guest is new".to_owned(),
                reason_detail: None,
                cpu_seconds: 0.5,
                rss_bytes: 9 << 20,
                uptime_seconds: 60.0,
                max_cpu: Some(0.2),
                paused_until: None,
            };
            let status = StatusReport {
                sketch: None,
                sample,
                ksmd_cpu_percent: Some(2.5),
                daemon: Some(daemon),
                domains: None,
                balance: None,
                history: None,
                committed_bytes: None,
            };
            ControlReply::Status(Box::new(status))
        }
        ControlRequest::Guests => {
            let list = GuestTracker::new(captured(), LibvirtUri::default()).list(&sample);
            ControlReply::Guests(Box::new(GuestsReport::new(&sample, list.guests, list.unattributed_bytes)))
        }
        _ => ControlReply::Error { message: "guests are not balanced".to_owned() },
    }
}

/// A running `ksmith serve`.
pub struct RunningServer {
    pub running: RunningProgram,
    pub address: SocketAddr,
}

impl RunningServer {
    /// Serves what the daemon says, on a free port.
    pub fn start(daemon: &FakeDaemon, arguments: &[&str]) -> Self {
        let view = daemon.path().display().to_string();
        let own = ["serve", "--listen", "127.0.0.1:0", "--view-socket", &view];
        Self::from_running(RunningProgram::start(&[&own[..], arguments].concat()))
    }

    /// A server that was started, once it listens.
    pub fn from_running(running: RunningProgram) -> Self {
        running.wait_for("serving at http://");
        let log = running.log();
        let address = log.split("serving at http://").nth(1).unwrap().split_whitespace().next().unwrap();
        let address = address.parse().unwrap();
        Self { running, address }
    }

    pub fn get(&self, path: &str) -> HttpResponse {
        get(self.address, path, "")
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// A reply of the server. Status 0: the connection was closed without one.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl HttpResponse {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {self:?}"))
    }
}

/// A client that would otherwise hang a broken test.
const PATIENCE: Duration = Duration::from_secs(60);

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes as they are, and reads until the connection ends.
pub fn say(address: SocketAddr, bytes: &[u8]) -> HttpResponse {
    let mut stream = connect(address);
    // The server may have enough before it is all sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    HttpResponse { status, head: head.to_owned(), body: body.to_owned() }
}

/// Gets a page. `headers` are whole lines.
pub fn get(address: SocketAddr, path: &str, headers: &str) -> HttpResponse {
    say(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n").as_bytes())
}
