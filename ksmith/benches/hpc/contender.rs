//! The controllers of KSM under which a job runs.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ksmith_service::control::ControlClient;
use rustix::process::{Pid, Signal, kill_process};

use crate::parent_death::end_with_parent;

const KSM: &str = "/sys/kernel/mm/ksm";

/// A way of running a job: with or without KSM, and under which control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HpcContender {
    /// Without KSM.
    None,
    /// Without KSM, beside a loop that takes a second of CPU time: what any second taken from the job costs it.
    Theft,
    /// The program's own layer instead of KSM.
    Indirect,
    /// Opted in, ksmd at the kernel's defaults: 100 pages each 20 ms.
    Default,
    /// Opted in, ksmd as S. Valat set it: 2000 pages each 20 ms.
    Seed,
    /// `ksmith daemon` with the configuration for compute nodes and `ksmith run`.
    Ksmith,
    /// The same with the daemon's defaults.
    KsmithDefault,
    /// The same with libksmith, which has only those ranges marked that the daemon finds worth it.
    KsmithGuided,
    /// `ksmith run --fold` without KSM: libksmith gives zero pages back.
    Fold,
    /// Both: the daemon for compute nodes merges what libksmith has not folded.
    FoldKsmith,
}

impl HpcContender {
    pub(crate) const ALL: [Self; 10] = [
        Self::None,
        Self::Theft,
        Self::Default,
        Self::Seed,
        Self::Indirect,
        Self::KsmithDefault,
        Self::Ksmith,
        Self::KsmithGuided,
        Self::Fold,
        Self::FoldKsmith,
    ];

    /// Returns true if the job's memory is offered to KSM.
    pub(crate) fn opts_in(self) -> bool {
        !matches!(self, Self::None | Self::Theft | Self::Indirect | Self::Fold)
    }

    /// The options of `ksmith run`. The daemon sees by itself when memory has been filled.
    pub(crate) fn options(self) -> &'static [&'static str] {
        match self {
            Self::KsmithGuided => &["--preload", "--ranges", "guided", "--scan", "never"],
            Self::Fold => &["--fold", "--ranges", "none", "--scan", "never"],
            Self::FoldKsmith => &["--fold", "--scan", "never"],
            _ => &["--prctl", "--scan", "never"],
        }
    }

    /// Returns the command that builds what this way needs; `None` if it is there.
    pub(crate) fn missing(self) -> Option<&'static str> {
        let library = Path::new(env!("CARGO_BIN_EXE_ksmith")).with_file_name("libksmith.so");
        let needs_library = matches!(self, Self::KsmithGuided | Self::Fold | Self::FoldKsmith);
        (needs_library && !library.exists()).then_some("cargo build --release -p ksmith-preload")
    }

    /// Sets KSM up for a job. Undone by the bench's next reset, and a daemon by dropping what is returned.
    pub(crate) fn take_over(self, place: &Path) -> ControlledKsm {
        let pages = match self {
            Self::None | Self::Indirect => return ControlledKsm { daemon: None, config: None },
            Self::Theft => return ControlledKsm { daemon: Some(theft()), config: None },
            Self::Fold => return ControlledKsm { daemon: None, config: Some(configured(place, "")) },
            Self::Ksmith | Self::KsmithGuided | Self::FoldKsmith => {
                return daemon(place, include_str!("../../../packaging/hpc.toml"));
            }
            Self::KsmithDefault => return daemon(place, ""),
            Self::Default => 100,
            Self::Seed => 2000,
        };
        for (name, value) in [("pages_to_scan", pages), ("sleep_millisecs", 20), ("run", 1)] {
            fs::write(Path::new(KSM).join(name), value.to_string()).unwrap();
        }
        ControlledKsm { daemon: None, config: None }
    }
}

impl fmt::Display for HpcContender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Theft => "theft",
            Self::Indirect => "indirect",
            Self::Default => "default",
            Self::Seed => "seed",
            Self::Ksmith => "ksmith",
            Self::KsmithDefault => "ksmith-default",
            Self::KsmithGuided => "ksmith-guided",
            Self::Fold => "fold",
            Self::FoldKsmith => "fold-ksmith",
        })
    }
}

/// KSM under the control of a contender. A daemon, or what runs beside the job, is ended on drop.
pub(crate) struct ControlledKsm {
    daemon: Option<Child>,
    /// The configuration, which tells `ksmith run` where a daemon listens.
    pub(crate) config: Option<PathBuf>,
}

impl ControlledKsm {
    pub(crate) fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }
}

/// Starts a loop that takes a second of CPU time, at ksmd's niceness and when ksmd does: once the job has filled its memory.
fn theft() -> Child {
    let mut command = Command::new("nice");
    end_with_parent(&mut command, Signal::TERM);
    command.args(["-n", "5", "sh", "-c", "sleep 12; ulimit -t 1; while :; do :; done"]).spawn().unwrap()
}

/// Writes a configuration with this policy, with its sockets in `place`.
fn configured(place: &Path, policy: &str) -> PathBuf {
    let (socket, config) = (place.join("control"), place.join("ksmith.toml"));
    let mut table: toml::Table = policy.parse().unwrap();
    for (name, key, file) in [("daemon", "control_socket", &socket), ("optin", "socket", &place.join("user"))] {
        let part = table.entry(name).or_insert_with(|| toml::Table::new().into());
        part.as_table_mut().unwrap().insert(key.to_owned(), file.display().to_string().into());
    }
    fs::write(&config, table.to_string()).unwrap();
    config
}

/// Starts the daemon and waits until it answers.
fn daemon(place: &Path, policy: &str) -> ControlledKsm {
    let (socket, log) = (place.join("control"), place.join("daemon.log"));
    let config = configured(place, policy);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ksmith"));
    // It puts KSM's settings back then.
    end_with_parent(&mut command, Signal::TERM);
    let child = command
        .args(["daemon", "-v", "--config"])
        .arg(&config)
        .arg("--state-dir")
        .arg(place.join("state"))
        .stdin(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .env_remove("NOTIFY_SOCKET")
        .env_remove("JOURNAL_STREAM")
        .spawn()
        .unwrap();
    let controlled = ControlledKsm { daemon: Some(child), config: Some(config.clone()) };
    let began = Instant::now();
    while ControlClient::connect(&socket).and_then(|mut client| client.status()).is_err() {
        assert!(began.elapsed() < Duration::from_secs(60), "no daemon: {}", fs::read_to_string(&log).unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
    controlled
}

impl Drop for ControlledKsm {
    fn drop(&mut self) {
        if let Some(child) = &mut self.daemon {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            let _ = child.wait();
        }
    }
}
