//! A competitor at work. It is a process of its own, so that its costs can be measured.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ksmith_core::decide::PolicyLimits;
use ksmith_host::bad_file::read_any_text;

use super::LabError;
use super::group::ProcessGroup;
use super::usage::ControllerProcesses;
use crate::competitor::{Competitor, CompetitorKind, limits_table};

/// The longest that a controller may take until it is ready.
const TO_START: Duration = Duration::from_secs(20);
/// The longest that a controller may take to end. A batch of the hand settings is a whole pass, and writing
/// `run` waits for its end.
const TO_END: Duration = Duration::from_secs(60);

/// A running controller, which is ended on drop.
#[derive(Debug)]
pub(super) struct RunningController {
    name: String,
    group: Option<ProcessGroup>,
    measured: ControllerProcesses,
    log: PathBuf,
}

impl RunningController {
    /// Starts `competitor`, with its files in the empty directory `place`, and waits until it is ready. Its
    /// output goes to `log`.
    pub(super) fn start(
        program: &Path,
        competitor: &Competitor,
        limits: &PolicyLimits,
        place: &Path,
        log: &Path,
    ) -> Result<Self, LabError> {
        let mut contender = Self {
            name: competitor.name.clone(),
            group: None,
            measured: ControllerProcesses::Nothing,
            log: log.to_owned(),
        };
        match &competitor.kind {
            CompetitorKind::Off => {}
            CompetitorKind::Daemon { policy } => {
                contender.daemon(program, format!("{policy}{}", limits_table(limits)), place)?;
            }
            CompetitorKind::Configured { file } => {
                let text = configured(file).map_err(|why| contender.failed(&why))?;
                contender.daemon(program, text, place)?;
            }
            CompetitorKind::Ksmtuned { script, is_eager } => contender.ksmtuned(script, *is_eager, place)?,
        }
        Ok(contender)
    }

    pub(super) fn measured(&self) -> ControllerProcesses {
        self.measured
    }

    /// Ends the controller.
    ///
    /// # Errors
    /// The controller ended before or failed.
    pub(super) fn end(mut self) -> Result<(), LabError> {
        let Some(mut group) = self.group.take() else { return Ok(()) };
        if let Some(status) = group.ended().map_err(LabError::System)? {
            return Err(self.failed(&format!("it ended during the run: {status}")));
        }
        let status = group.end(TO_END).map_err(LabError::System)?;
        // The status of a shell that is killed is not 0; the daemon ends with 0 when it is asked to.
        match self.measured {
            ControllerProcesses::Process(_) if !status.success() => {
                Err(self.failed(&format!("it ended badly: {status}")))
            }
            _ => Ok(()),
        }
    }

    fn daemon(&mut self, program: &Path, config: String, place: &Path) -> Result<(), LabError> {
        let (file, socket) = (place.join("ksmith.toml"), place.join("control"));
        fs::write(&file, format!("{config}\n{}", places(place, &socket))).map_err(LabError::System)?;
        let mut command = Command::new(program);
        command.args(["daemon", "-v", "--config"]).arg(&file).arg("--state-dir").arg(place.join("state"));
        let group = self.launch(&mut command)?;
        self.measured = ControllerProcesses::Process(group.pid());
        self.group = Some(group);
        self.wait_for(&socket)
    }

    fn ksmtuned(&mut self, script: &Path, is_eager: bool, place: &Path) -> Result<(), LabError> {
        let pid_file = place.join("ksmtuned.pid");
        let mut command = Command::new("bash");
        // The script leaves its loop in the background and ends. Sourced into this shell, the loop ends with the
        // shell.
        command.args(["-c", "trap 'trap - TERM; kill 0' TERM; . \"$0\"; wait"]).arg(script);
        command.env("PIDFILE", &pid_file);
        if is_eager {
            command.env("KSM_THRES_COEF", "100");
        }
        let group = self.launch(&mut command)?;
        self.measured = ControllerProcesses::Group(group.pid());
        self.group = Some(group);
        self.wait_for(&pid_file)
    }

    fn launch(&self, command: &mut Command) -> Result<ProcessGroup, LabError> {
        let log = || File::create(&self.log).and_then(|log| Ok((log.try_clone()?, log)));
        let (out, err) = log().map_err(LabError::System)?;
        command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("JOURNAL_STREAM");
        ProcessGroup::start(command).map_err(|why| self.failed(&format!("it can't be started: {why}")))
    }

    /// Waits for a file that appears when the controller is ready.
    fn wait_for(&mut self, file: &Path) -> Result<(), LabError> {
        let began = Instant::now();
        while !file.exists() {
            let ended = self.group.as_mut().and_then(|group| group.ended().transpose()).transpose();
            if let Some(status) = ended.map_err(LabError::System)? {
                return Err(self.failed(&format!("it ended at once: {status}")));
            }
            if began.elapsed() > TO_START {
                return Err(self.failed("it does not get ready"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn failed(&self, why: &str) -> LabError {
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let last = said.lines().last().unwrap_or("nothing").chars().take(400).collect();
        LabError::Competitor { name: self.name.clone(), why: why.to_owned(), said: last }
    }
}

/// Returns the configuration of a contender's sockets and history: in its own directory, apart from those of the host.
fn places(place: &Path, socket: &Path) -> String {
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    format!(
        "[daemon]\ncontrol_socket = {}\n[view]\nsocket = {}\n[history]\npath = {}\n",
        quoted(socket),
        quoted(&place.join("view")),
        quoted(&place.join("history.db"))
    )
}

/// The tables of a configuration that say where its daemon listens and records, and which program it notifies.
const OF_THE_HOST: [&str; 5] = ["daemon", "view", "history", "sketch", "notify"];

/// The text of a configuration file, without those tables.
fn configured(file: &Path) -> Result<String, String> {
    let text = read_any_text(file).map_err(|why| format!("can't read {}: {why}", file.display()))?;
    let mut table: toml::Table = text.parse().map_err(|why| format!("{}: {why}", file.display()))?;
    OF_THE_HOST.iter().for_each(|name| {
        table.remove(*name);
    });
    Ok(table.to_string())
}

#[cfg(test)]
mod tests {
    use ksmith_service::config::Config;

    use super::*;

    #[test]
    fn a_contender_listens_and_records_in_its_own_place() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("theirs.toml");
        let theirs = "[limits]\nmax_cpu = \"30%\"\n[daemon]\nksmd_cpus = \"0\"\n[view]\nsocket = \"/run/v\"\n[history]\nmax_mib = 7\n\
                      [notify]\ncommand = [\"/bin/mail\"]\n[sketch]\nenabled = true\n";
        fs::write(&file, theirs).unwrap();
        let text = format!("{}\n{}", configured(&file).unwrap(), places(Path::new("/p"), Path::new("/p/control")));
        let config = Config::parse(&file, &text).unwrap();
        let usual = Config::default();
        assert_eq!(config.limits.max_cpu.to_string(), "30 %");
        assert_eq!(config.daemon.control_socket, Path::new("/p/control"));
        assert_eq!((config.view.socket, config.history.path), ("/p/view".into(), "/p/history.db".into()));
        assert_eq!((config.history.max_mib, config.daemon.ksmd_cpus), (usual.history.max_mib, None));
        assert!(!config.sketch.enabled && config.notify == usual.notify);
    }
}
