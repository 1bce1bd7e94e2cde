//! The QEMU Machine Protocol over a unix socket: the subset that ksmith needs.
//!
//! A QMP socket serves one peer at a time, and the guest's manager needs it. So a connection is short, and a busy
//! socket is an error rather than a wait. Before anything is sent the socket must belong to the guest's own process and
//! send QEMU's banner: the path comes from a command line that a user may have made up.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ksmith_core::reading::Malformed;
use serde_json::{Value, json};

use super::{MonitorError, PATIENCE, QmpMonitor, cut_text};
use crate::chosen_path::connect_path;
use crate::hypervisor::stream::TimedStream;

/// A QMP connection to one guest.
#[derive(Debug)]
pub(super) struct QmpConnection {
    path: PathBuf,
    stream: TimedStream,
    next: u64,
}

/// Maximum events before a reply; QEMU sends a handful a second at most.
const MOST_EVENTS: usize = 1000;

impl QmpConnection {
    /// Connects to the guest `pid` of the user `uid` on its socket.
    ///
    /// The user counts too: a socket that was made by a process that has ended, and handed on, still shows the PID of
    /// that process, which may be another user's by now. The file must belong to that user before anything connects: a
    /// connection alone starts services of others, and keeps their managers from a monitor.
    pub(super) fn connect(path: &Path, pid: u32, uid: u32) -> Result<Self, MonitorError> {
        let broken = |source| MonitorError::Socket { path: path.to_owned(), source };
        let mut is_of_user = false;
        let stream = TimedStream::connect_with(PATIENCE, |socket| {
            is_of_user = connect_path(socket, path, uid, PATIENCE)?;
            Ok(())
        })
        .map_err(broken)?;
        if !is_of_user {
            return Err(MonitorError::OfOther { path: path.to_owned(), pid });
        }
        match stream.peer().map_err(broken)? {
            peer if peer == (pid, uid) => {}
            (peer, _) => return Err(MonitorError::Foreign { path: path.to_owned(), pid: peer }),
        }
        let mut qmp = Self { path: path.to_owned(), stream, next: 0 };
        let banner = qmp.receive()?;
        if banner.get("QMP").is_none() {
            return Err(qmp.garbage(&banner.to_string()));
        }
        qmp.execute("qmp_capabilities", json!({}), PATIENCE)?;
        Ok(qmp)
    }

    fn receive(&mut self) -> Result<Value, MonitorError> {
        let line = self.stream.line().map_err(|source| self.broken(source))?;
        serde_json::from_slice(&line).map_err(|_| self.garbage(&String::from_utf8_lossy(&line)))
    }

    fn broken(&self, source: io::Error) -> MonitorError {
        MonitorError::Socket { path: self.path.clone(), source }
    }

    fn garbage(&self, text: &str) -> MonitorError {
        let what = Malformed::new(1, "QMP", &text.escape_debug().to_string()).found;
        MonitorError::Garbage { path: self.path.clone(), what }
    }
}

impl QmpMonitor for QmpConnection {
    fn execute(&mut self, command: &str, arguments: Value, patience: Duration) -> Result<Value, MonitorError> {
        self.next += 1;
        let id = self.next;
        let mut line = json!({ "execute": command, "arguments": arguments, "id": id }).to_string();
        line.push('\n');
        self.stream.allow(patience);
        self.stream.send(line.as_bytes()).map_err(|source| self.broken(source))?;
        for _ in 0..MOST_EVENTS {
            let mut answer = self.receive()?;
            if answer.get("id").and_then(Value::as_u64) != Some(id) {
                continue;
            }
            if let Some(returned) = answer.get_mut("return") {
                return Ok(returned.take());
            }
            let why = answer.pointer("/error/desc").and_then(Value::as_str);
            let mut why = why.map(str::to_owned).ok_or_else(|| self.garbage(&answer.to_string()))?;
            cut_text(&mut why);
            return Err(MonitorError::Refused { command: command.to_owned(), why });
        }
        Err(self.garbage("events without end"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Instant;

    use super::super::query_monitor;
    use super::*;

    type Act = fn(UnixStream);

    /// Listens on a socket for one peer, which `act` serves.
    fn socket(act: impl FnOnce(UnixStream) + Send + 'static) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::spawn(move || act(listener.accept().unwrap().0));
        (directory, path)
    }

    fn connect(path: &Path) -> Result<QmpConnection, MonitorError> {
        QmpConnection::connect(path, std::process::id(), rustix::process::geteuid().as_raw())
    }

    /// Answers as QEMU does, with events and an answer to another peer in between.
    fn qemu(stream: UnixStream) {
        let mut out = stream.try_clone().unwrap();
        writeln!(out, r#"{{"QMP": {{"version": {{}}, "capabilities": []}}}}"#).unwrap();
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            let asked: Value = serde_json::from_str(&line).unwrap();
            let id = &asked["id"];
            writeln!(out, r#"{{"event": "STOP", "data": {{}}}}"#).unwrap();
            writeln!(out, r#"{{"return": {{"name": "not yours"}}, "id": 999}}"#).unwrap();
            let answer = match asked["execute"].as_str().unwrap() {
                "query-name" => json!({"return": {"name": "web"}, "id": id}),
                "query-uuid" => json!({"return": {"UUID": "00000000-0000-0000-0000-000000000000"}, "id": id}),
                "query-status" => json!({"return": {"status": "running"}, "id": id}),
                "query-memdev" => {
                    json!({"return": [{"id": "pc.ram", "size": 5, "merge": true, "new": 1}], "id": id})
                }
                "qmp_capabilities" => json!({"return": {}, "id": id}),
                _ => json!({"error": {"class": "CommandNotFound", "desc": "never heard of it"}, "id": id}),
            };
            writeln!(out, "{answer}").unwrap();
        }
    }

    #[test]
    fn a_guest_tells_its_name_and_memory() {
        let (_directory, path) = socket(qemu);
        let mut qmp = connect(&path).unwrap();
        let told = query_monitor(&mut qmp).unwrap();
        assert_eq!((told.name.as_deref(), told.uuid, told.status.as_deref()), (Some("web"), None, Some("running")));
        assert_eq!(
            (told.backends[0].id.as_deref(), told.backends[0].merge, told.backends[0].share),
            (Some("pc.ram"), true, false)
        );
        let error = qmp.execute("dance", json!({}), PATIENCE).unwrap_err().to_string();
        assert_eq!(error, "QEMU refuses dance: never heard of it");
    }

    #[test]
    fn a_peer_that_hangs_closes_or_talks_nonsense_is_left_with_an_error() {
        let send_banner = |stream: &mut UnixStream| writeln!(stream, r#"{{"QMP": {{}}}}"#).unwrap();
        let cases: [(Act, &str); 4] = [
            (|_stream| std::thread::sleep(Duration::from_secs(60)), "does not answer in time"),
            (drop, "closed the connection"),
            (
                |mut stream| stream.write_all(b"HTTP/1.1 \x1b[2J400\n").unwrap(),
                "sends no QMP: HTTP/1.1 \\u{1b}[2J400",
            ),
            (|mut stream| while stream.write_all(&[b'x'; 4096]).is_ok() {}, "without end"),
        ];
        for (act, expected) in cases {
            let (_directory, path) = socket(act);
            let started = Instant::now();
            let error = connect(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(started.elapsed() < Duration::from_secs(20), "it waited");
        }
        let (_directory, path) = socket(move |mut stream| {
            send_banner(&mut stream);
            std::thread::sleep(Duration::from_secs(60));
        });
        assert!(connect(&path).unwrap_err().to_string().contains("does not answer in time"));
    }

    #[test]
    fn a_flood_of_events_is_left_too() {
        let (_directory, path) = socket(|mut stream| {
            let mut text = "{\"QMP\": {}}\n".to_owned();
            while stream.write_all(text.as_bytes()).is_ok() {
                text = "{\"event\": \"STOP\"}\n".repeat(100);
            }
        });
        let error = connect(&path).unwrap_err().to_string();
        assert!(error.contains("events without end") || error.contains("in time"), "{error}");
    }

    #[test]
    fn nothing_connects_to_a_socket_of_another_user() {
        let (pid, uid) = (std::process::id(), rustix::process::geteuid().as_raw());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("qmp");
        let listener = UnixListener::bind(&path).unwrap();
        listener.set_nonblocking(true).unwrap();
        let error = QmpConnection::connect(&path, pid, uid + 1).unwrap_err();
        assert!(matches!(error, MonitorError::OfOther { .. }), "{error}");
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        // Nor by a link of the user's own.
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(QmpConnection::connect(&link, pid, uid).is_err());
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn nothing_is_said_to_a_socket_of_another_process() {
        let (sender, heard) = std::sync::mpsc::channel();
        let (_directory, path) = socket(move |stream| {
            let mut line = String::new();
            let _ = BufReader::new(stream).read_line(&mut line);
            sender.send(line).unwrap();
        });
        let uid = rustix::process::geteuid().as_raw();
        let error = QmpConnection::connect(&path, std::process::id() + 1, uid).unwrap_err();
        assert!(matches!(error, MonitorError::Foreign { .. }), "{error}");
        assert_eq!(heard.recv().unwrap(), "");
    }
}
