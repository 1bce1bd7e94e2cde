//! Commands that sample the host themselves go by the page tables that the daemon has read, and read them where there is none.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crossbeam_channel::unbounded;
use ksmith_core::model::StatusReport;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use ksmith_host::memory::process::OpenProcess;
use ksmith_lab::{MemoryGuest, MemoryPart};
use ksmith_service::control::{ControlReply, FigureAnswers, PendingRequest, serve};
use ksmith_service::socket::ServedSocket;
use serde_json::Value;

use crate::support::program::PROGRAM;
use crate::support::{guest, hold_off_ksm, skipped};

/// Freed zeros that the stand-in has read in a guest: more than any host has to cover.
const FREED: u64 = 1 << 50;

/// A guest, the configuration that names a daemon's socket, and a place for files.
struct Scene {
    guest: MemoryGuest,
    directory: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let scene = Self { guest: guest(&[MemoryPart::Unique { pages: 4 }]), directory };
        std::fs::write(
            scene.path("ksmith.toml"),
            format!("[daemon]\ncontrol_socket = {:?}\n", scene.path("control")),
        )
        .unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs the program, which may end with any code, and returns its JSON.
    fn run(&self, arguments: &[&str]) -> Value {
        let mut command = Command::new(PROGRAM);
        command.arg("--json").arg("--config").arg(self.path("ksmith.toml")).args(arguments).stdin(Stdio::null());
        let output = command.output().unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Starts a stand-in for a daemon that has read the freed zeros of the guest, and answers nothing else.
    fn serve_reading(&self) -> ServedSocket {
        let OpenProcess { pid, start_ticks, .. } = OpenProcess::open(self.guest.pid()).unwrap();
        let id = ProcessId { pid, start_ticks };
        let process = ProcessSample { folded_bytes: Some(FREED), ..ProcessSample::new(id, "guest".into(), false) };
        let sample = Sample { page_size: 4096, processes: vec![process], ..Sample::default() };
        let status = StatusReport { sample, ..StatusReport::default() };
        let (sender, requests) = unbounded::<PendingRequest>();
        std::thread::spawn(move || {
            for asked in requests {
                let (_, reply, _) = asked.into_parts();
                let _ = reply.send(ControlReply::Status(Box::new(status.clone())));
            }
        });
        let figures = FigureAnswers::new(sender.clone(), |asked| asked);
        serve(&self.path("control"), sender, |asked| asked, figures).unwrap()
    }
}

/// Returns false, told as a skip, for users that may not ask a daemon.
fn may_ask() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skipped("only root may ask a daemon");
    }
    is_root
}

#[test]
fn a_sketch_has_the_freed_zeros_that_the_daemon_has_read() {
    if !may_ask() {
        return;
    }
    let _ksm_waits = hold_off_ksm();
    let scene = Scene::new();
    let (secret, out, pid) = (scene.path("key"), scene.path("h1.parquet"), scene.guest.pid().to_string());
    let secret = secret.to_str().unwrap();
    let made = Command::new(PROGRAM).args(["sketch", "--new-secret", secret]).stdout(Stdio::null()).status();
    assert!(made.unwrap().success());
    // Metadata are text in the file.
    let exposure = || {
        let options = ["sketch", &pid, "--again", "0", "--secret", secret, "--out", out.to_str().unwrap()];
        assert_eq!(scene.run(&options)["guests"], 1);
        let text = String::from_utf8_lossy(&std::fs::read(&out).unwrap()).into_owned();
        let figure = text.split("\"exposure_bytes\":").nth(1).unwrap();
        figure.split(',').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(exposure() < FREED, "no daemon answers");
    let _daemon = scene.serve_reading();
    assert!(exposure() >= FREED);
}

#[test]
fn doctor_finds_the_exposure_by_freed_zeros_that_the_daemon_has_read() {
    if !may_ask() {
        return;
    }
    let _ksm_waits = hold_off_ksm();
    let scene = Scene::new();
    let is_exposed = || {
        let report = scene.run(&["doctor"]);
        report["findings"].as_array().unwrap().iter().any(|finding| finding["code"] == "exposure")
    };
    assert!(!is_exposed(), "no daemon answers");
    let _daemon = scene.serve_reading();
    assert!(is_exposed());
}
