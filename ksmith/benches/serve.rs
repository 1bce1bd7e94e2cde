//! Benchmark of `ksmith serve`: time of a reply, CPU with and without streams, and memory. And of the frames of `ksmith top`.
//!
//! `cargo bench -p ksmith --bench serve` asks a server on loopback, with a daemon that makes its answers up, and draws `top`
//! in memory. It needs neither KSM nor root.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench ends by panicking")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use ksmith::top::{HostSnapshot, TopApp, TopEvent};
use ksmith_core::kernel::PidStat;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use support::serve::{FakeDaemon, RunningServer, connect, figures_of};

const GUESTS: [usize; 3] = [10, 100, 1000];

/// Streams that are open at once.
const STREAMS: usize = 10;

/// Repetitions for each page.
const TIMES: usize = 21;

/// The time over which the CPU is measured.
const WATCH: Duration = Duration::from_secs(10);

/// Frames of `ksmith top` for each kind of event.
const FRAMES: u64 = 101;

fn main() {
    measure_top();
    measure_server();
}

/// Times the frames of `ksmith top` on a large terminal: after new figures, and after a key.
fn measure_top() {
    println!("| guests | top, new figures: median | longest | top, a key: median | longest |");
    println!("|---|---|---|---|---|");
    for guests in GUESTS {
        let (status, report) = figures_of(guests);
        let seen = |second| {
            let (status, guests) = (status.clone(), report.clone());
            let at = Duration::from_secs(second);
            TopEvent::Seen(Box::new(HostSnapshot { at, status, guests, balance: None, note: None }))
        };
        let key = |_| TopEvent::Key(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
        let mut app = TopApp::new((200, 50), true);
        let mut terminal = Terminal::new(TestBackend::new(200, 50)).unwrap();
        let mut draw_after = |event: TopEvent| {
            let started = Instant::now();
            app.update(event);
            terminal.draw(|frame| app.draw(frame)).unwrap();
            started.elapsed()
        };
        let figures = spread((0..FRAMES).map(|second| draw_after(seen(second))).collect());
        let keys = spread((0..FRAMES).map(|at| draw_after(key(at))).collect());
        println!("| {guests} | {:.1?} | {:.1?} | {:.1?} | {:.1?} |", figures.0, figures.1, keys.0, keys.1);
    }
    println!();
}

/// Returns the median of the times, and the longest.
fn spread(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[times.len() - 1])
}

fn measure_server() {
    println!(
        "| guests | status | guests | metrics | metrics, bytes | CPU, {STREAMS} streams | CPU, none | peak, KiB |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for guests in GUESTS {
        let daemon = FakeDaemon::of_guests(guests);
        let server = RunningServer::start(&daemon, &[]);
        let [status, list, metrics] =
            ["/api/v1/status", "/api/v1/guests", "/metrics"].map(|path| median(|| server.get(path).status));
        let bytes = server.get("/metrics").body.len();
        let streams: Vec<_> = (0..STREAMS).map(|_| open(&server)).collect();
        std::thread::sleep(Duration::from_secs(2));
        let with_streams = share(&server);
        drop(streams);
        std::thread::sleep(Duration::from_secs(3));
        let without = share(&server);
        let peak = peak(&server);
        println!(
            "| {guests} | {status:.1?} | {list:.1?} | {metrics:.1?} | {bytes} | {with_streams:.2} % | {without:.2} % | {peak} |"
        );
        server.running.end();
    }
}

/// The median of the times of an answer that is at most a second old.
fn median(work: impl Fn() -> u16) -> Duration {
    let timed = |_| {
        let started = Instant::now();
        assert_eq!(work(), 200);
        started.elapsed()
    };
    spread((0..TIMES).map(timed).collect()).0
}

/// A stream, read until it is dropped.
struct OpenStream(std::net::TcpStream);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}

fn open(server: &RunningServer) -> OpenStream {
    let mut stream = connect(server.address);
    stream.write_all(b"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut reader = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while reader.read(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    OpenStream(stream)
}

/// Per cent of one CPU that the server uses.
fn share(server: &RunningServer) -> f64 {
    let started = Instant::now();
    let before = cpu(server);
    std::thread::sleep(WATCH);
    (cpu(server) - before).as_secs_f64() / started.elapsed().as_secs_f64() * 100.0
}

/// Returns the CPU time of all threads, including those that have ended. A tick has ten milliseconds.
fn cpu(server: &RunningServer) -> Duration {
    let text = fs::read_to_string(format!("/proc/{}/stat", server.running.pid())).unwrap();
    Duration::from_millis(10 * PidStat::parse(&text).unwrap().cpu_ticks)
}

fn peak(server: &RunningServer) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.running.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
