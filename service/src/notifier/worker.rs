//! The thread that delivers notices.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use ksmith_core::alarm::AlarmTransition;
use ksmith_core::printable::OneLine;
use rustix::process::{Pid, Signal, kill_process_group};
use tracing::{info, warn};

use super::{NotifierOrder, NotifyConfig, journal};

/// The longest run of a command. Then it is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest wait of the daemon's end for a command.
pub(super) const LAST: Duration = Duration::from_secs(2);

/// The interval between two checks of a command that runs.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn work(inbox: &Receiver<NotifierOrder>) {
    let mut has_failed = false;
    for NotifierOrder { notice, config } in inbox {
        deliver_notice(&config, &notice, &mut has_failed);
    }
}

fn deliver_notice(config: &NotifyConfig, notice: &AlarmTransition, has_failed: &mut bool) {
    if config.journal
        && let Err(why) = journal::send(journal::SOCKET, notice)
        && !std::mem::replace(has_failed, true)
    {
        info!("alarms do not go to the journal: {}: {why}", journal::SOCKET);
    }
    if let Some((program, arguments)) = config.command.split_first()
        && let Err(why) = run(program, arguments, notice)
    {
        warn!("[notify] command {}: {why}", OneLine(program));
    }
}

/// An error of the configured command.
#[derive(Debug, thiserror::Error)]
enum NotifyError {
    /// It can't be started or waited for.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended with a failure.
    #[error("it failed: {0}")]
    Failed(ExitStatus),
    /// It ran too long.
    #[error("it was killed after {} s", PATIENCE.as_secs())]
    Killed,
}

/// Runs the command. It gets the notice in its environment, and no descriptor but the null device.
fn run(program: &str, arguments: &[String], notice: &AlarmTransition) -> Result<(), NotifyError> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("KSMITH_ALARM", notice.alarm.word())
        .env("KSMITH_STATE", notice.state())
        .env("KSMITH_TEXT", OneLine(&notice.text).to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What it starts is killed with it.
        .process_group(0)
        .spawn()?;
    let ended = wait(&mut child, PATIENCE);
    if !matches!(ended, Ok(Some(_))) {
        // It may have ended just now.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
    }
    match ended? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(NotifyError::Failed(status)),
        None => Err(NotifyError::Killed),
    }
}

fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    }
}
