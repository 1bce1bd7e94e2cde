//! `ksmith top` and `--every` in a real terminal, on a captured tree and with a daemon that goes away and comes back.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crossbeam_channel::unbounded;
use ksmith_core::kernel::Meminfo;
use ksmith_core::model::{DaemonStatus, GuestsReport, StatusReport};
use ksmith_core::reading::Reading;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use ksmith_service::control::{ControlReply, ControlRequest, FigureAnswers, PendingRequest, serve};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::skipped;
use crate::support::tmux::TmuxTerminal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ksmith");

fn on_tree(arguments: &str) -> String {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/linux-6.18");
    format!("{PROGRAM} --root {} {arguments}", tree.display())
}

/// The names of the guests that the list shows.
fn listed(screen: &str) -> Vec<&str> {
    ["alpha", "beta", "gamma"].into_iter().filter(|name| screen.contains(&format!("\n{name} "))).collect()
}

#[test]
fn top_obeys_keys_and_fits_every_size() {
    let Some(terminal) = TmuxTerminal::start((80, 24), "", &on_tree("top --every 0.2")) else { return };
    let screen = terminal.wait("all guests", |screen| listed(screen).len() == 3);
    for part in ["from the kernel, no daemon", "saved 764 KiB", "policy none", "order saved", "q end"] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    assert!(!screen.contains("metadata") && terminal.has_other_screen());
    // docs/how-to/top.md shows this screen; its charts grow with time.
    let page =
        include_str!("../../../docs/how-to/top.md").split("```text").nth(1).unwrap().split("```").next().unwrap();
    for line in page.lines().filter(|line| !line.contains('≤')) {
        assert!(screen.lines().any(|shown| shown.trim_end() == line), "{line:?}:\n{screen}");
    }
    terminal.keys(&["Right", "Right"]);
    terminal.wait_for("order profit ▼");
    terminal.keys(&["r"]);
    terminal.wait_for("order profit ▲");
    terminal.text("/rss>1.1M and kind!=process");
    terminal.wait_for("filter: rss>1.1M and kind!=process");
    terminal.keys(&["Enter"]);
    terminal.wait("two guests", |screen| listed(screen) == ["alpha", "beta"]);
    terminal.resize(200, 50);
    let wide = terminal.wait("all columns", |screen| screen.contains("zero") && screen.contains("metadata"));
    assert!(wide.lines().any(|line| line.len() > 150), "{wide}");
    assert_eq!(wide.lines().count(), 50);
    terminal.resize(40, 10);
    terminal.wait_for("has 40 x 10");
    terminal.resize(80, 24);
    terminal.wait("the list again", |screen| listed(screen) == ["alpha", "beta"]);
    terminal.keys(&["Escape"]);
    terminal.wait("all guests", |screen| listed(screen).len() == 3);
    terminal.keys(&["g"]);
    terminal.wait_for("by kind");
    terminal.keys(&["g", "g", "g", "g", "g", "g"]);
    terminal.wait("each guest", |screen| !screen.contains("  by ") && listed(screen).len() == 3);
    terminal.keys(&["Down", "Enter"]);
    terminal.wait_for("beta (pid 13467)");
    terminal.keys(&["w"]);
    terminal.wait_for("Why it does not merge");
    terminal.keys(&["?"]);
    terminal.wait_for("PgUp, PgDn, Home, End");
    terminal.keys(&["2"]);
    terminal.wait_for("only a daemon decides");
    terminal.keys(&["3"]);
    terminal.wait_for("No daemon balances");
    terminal.keys(&["q"]);
    terminal.wait_for("ENDED 0 icanon echo");
    assert!(!terminal.has_other_screen());
}

#[test]
fn top_has_colours_unless_they_are_unwanted() {
    // The profit is green: number 2 of the palette.
    let is_coloured = |painted: &str| ["[32m", "[38;5;2m"].iter().any(|code| painted.contains(code));
    for (variables, options, expected) in [
        ("", "", true),
        ("NO_COLOR=1", "", false),
        ("", "--color never", false),
        ("NO_COLOR=1", "--color always", true),
    ] {
        let Some(terminal) = TmuxTerminal::start((80, 24), variables, &on_tree(&format!("{options} top"))) else {
            return;
        };
        terminal.wait("all guests", |screen| listed(screen).len() == 3);
        assert_eq!(is_coloured(&terminal.painted()), expected, "{variables} {options}");
    }
}

#[test]
fn signals_end_top_and_give_the_terminal_back() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let Some(terminal) = TmuxTerminal::start((80, 24), "", &on_tree("top --mouse")) else { return };
        terminal.wait("all guests", |screen| listed(screen).len() == 3);
        kill_process(terminal.pid(), signal).unwrap();
        terminal.wait_for("ENDED 0 icanon echo");
        assert!(!terminal.has_other_screen());
    }
}

#[test]
fn top_needs_a_terminal() {
    let output = Command::new(PROGRAM).arg("top").stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("`ksmith status --every 2`"));
}

/// A daemon that answers with made-up figures. Dropping it takes its socket away.
struct StubDaemon(#[allow(dead_code, reason = "it is only held")] ksmith_service::socket::ServedSocket);

impl StubDaemon {
    fn start(socket: &Path, pid: u32, reason: &str) -> Self {
        let mut sample = Sample { page_size: 4096, ..Sample::default() };
        sample.ksm.run = Reading::Value(1);
        sample.ksm.pages_shared = Reading::Value(10);
        sample.ksm.pages_sharing = Reading::Value(512);
        sample.host.memory =
            Reading::Value(Meminfo { total: Some(4 << 30), available: Some(1 << 30), ..Meminfo::default() });
        sample.processes = vec![ProcessSample::new(ProcessId { pid: 42, start_ticks: 1 }, "web".into(), true)];
        let status = StatusReport {
            sample: sample.clone(),
            ksmd_cpu_percent: Some(2.5),
            daemon: Some(DaemonStatus {
                pid,
                policy: "profit".to_owned(),
                state: "quiet".to_owned(),
                reason: reason.to_owned(),
                reason_detail: None,
                cpu_seconds: 0.5,
                rss_bytes: 9 << 20,
                uptime_seconds: 60.0,
                max_cpu: Some(1.0),
                paused_until: None,
            }),
            ..StatusReport::default()
        };
        let guests = GuestsReport::new(&sample, ksmith_core::guest::group(&sample, |_| None).0, 0);
        let (sender, requests) = unbounded::<PendingRequest>();
        std::thread::spawn(move || {
            for asked in requests {
                let (request, reply, _) = asked.into_parts();
                let answer = match request {
                    ControlRequest::Status => ControlReply::Status(Box::new(status.clone())),
                    ControlRequest::Guests => ControlReply::Guests(Box::new(guests.clone())),
                    _ => ControlReply::Error { message: "that is not made up".to_owned() },
                };
                let _ = reply.send(answer);
            }
        });
        let figures = FigureAnswers::new(sender.clone(), |asked| asked);
        Self(serve(socket, sender, |asked| asked, figures).unwrap())
    }
}

/// A directory for the socket of a daemon, and a configuration that names it. `None` for users that may not ask a daemon.
fn place() -> Option<(tempfile::TempDir, PathBuf, String)> {
    if !rustix::process::geteuid().is_root() {
        skipped("only root may ask a daemon");
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let (socket, config) = (directory.path().join("control"), directory.path().join("ksmith.toml"));
    std::fs::write(&config, format!("[daemon]\ncontrol_socket = {:?}\n", socket.display())).unwrap();
    let command = format!("{PROGRAM} --config {}", config.display());
    Some((directory, socket, command))
}

#[test]
fn top_survives_the_daemon() {
    let Some((_directory, socket, ksmith)) = place() else { return };
    let daemon = StubDaemon::start(&socket, 7, "no guest is new");
    let Some(terminal) = TmuxTerminal::start((80, 24), "", &format!("{ksmith} top --every 0.2")) else { return };
    let screen = terminal.wait_for("daemon pid 7");
    assert!(screen.contains("policy profit: quiet, no guest is new") && screen.contains("\nweb "), "{screen}");
    drop(daemon);
    let screen = terminal.wait_for("no daemon answers since the last one ended");
    assert!(screen.contains("from the kernel, no daemon"), "{screen}");
    let daemon = StubDaemon::start(&socket, 8, "it has just begun");
    terminal.wait_for("daemon pid 8");
    terminal.keys(&["2"]);
    let screen = terminal.wait_for("profit: quiet       it has just begun");
    for seen in ["profit: quiet       no guest is new", "the daemon was restarted: pid 8"] {
        assert!(screen.contains(seen), "{seen}:\n{screen}");
    }
    drop(daemon);
    terminal.keys(&["q"]);
    terminal.wait_for("ENDED 0");
}

#[test]
fn watch_redraws_a_terminal_and_ends_by_ctrl_c() {
    let Some(terminal) = TmuxTerminal::start((60, 24), "", &on_tree("guests --every 0.2")) else { return };
    terminal.wait("all guests", |screen| listed(&format!("\n{screen}")).len() == 3);
    assert!(terminal.has_other_screen());
    terminal.resize(100, 24);
    terminal.wait("all columns", |screen| screen.contains("metadata"));
    terminal.resize(40, 5);
    terminal.wait_for("more lines");
    terminal.keys(&["C-c"]);
    terminal.wait_for("ENDED 0 icanon echo");
    assert!(!terminal.has_other_screen());
    terminal.resize(100, 40);
    terminal.wait("the last block, which stays", |screen| listed(&format!("\n{screen}")).len() == 3);
}

/// The lines that a command writes.
type Lines = Box<dyn Iterator<Item = String>>;

/// Runs a command until `read` has read enough of it, and ends it as Ctrl-C does.
fn until<T>(command: &str, read: impl FnOnce(&mut Lines) -> T) -> T {
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec {command}")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut lines: Lines = Box::new(lines);
    let seen = read(&mut lines);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    seen
}

#[test]
fn watch_writes_a_pipe_block_by_block_and_json_line_by_line() {
    let documents = until(&on_tree("guests --every 0.1 --json"), |lines| lines.take(3).collect::<Vec<_>>());
    for line in documents {
        let document: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(document["guests"].as_array().unwrap().len(), 3);
    }
    let text = until(&on_tree("status --every 0.1"), |lines| lines.take(40).collect::<Vec<_>>());
    let first = text.iter().filter(|line| line.starts_with("KSM is running")).count();
    assert!(first >= 2 && !text.concat().contains('\u{1b}'), "{text:?}");
}

#[test]
fn watch_ends_when_its_reader_goes_away() {
    let command = format!("{} | head -n 1 > /dev/null", on_tree("status --every 0.1"));
    let status = Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).status().unwrap();
    assert!(status.success());
}

#[test]
fn watch_survives_the_daemon() {
    let Some((_directory, socket, ksmith)) = place() else { return };
    let mut daemon = Some(StubDaemon::start(&socket, 7, "no guest is new"));
    until(&format!("{ksmith} status --every 0.1"), |lines| {
        lines.find(|line| line == "policy    profit: quiet, no guest is new").unwrap();
        daemon = None;
        let note = lines.find(|line| line.starts_with("note  ") && !line.starts_with("note   ")).unwrap();
        assert_eq!(note, "note  no daemon answers since the last one ended: these are the kernel's figures");
        daemon = Some(StubDaemon::start(&socket, 7, "it goes on"));
        lines.find(|line| line == "note  the daemon answers again (pid 7)").unwrap();
        lines.find(|line| line == "policy    profit: quiet, it goes on").unwrap();
    });
    drop(daemon);
}
