//! The commands `ksmith pause` and `ksmith resume`, which a running daemon carries out.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ksmith_service::control::{ClientError, ControlClient};

use super::{CommandFailure, GlobalArgs, amounts, control, print};
use crate::show::orders::PauseReply;

/// Pause merging: the running daemon parks ksmd, for a time or until `ksmith resume`.
///
/// Merged pages stay merged. The daemon continues to watch and balance guests, to keep trust domains apart and to warn.
/// `ksmith status` and `top` show until when. Scans are refused meanwhile; folding goes on. A restart of the daemon
/// ends the pause.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// Length of the pause: 90s, 1h or seconds; without it, until `ksmith resume`
    #[arg(value_name = "DURATION", value_parser = amounts::pause)]
    duration: Option<Duration>,
}

/// Resume merging after `ksmith pause`: the daemon's policy decides again.
#[derive(Debug, Args)]
pub struct ResumeArgs {}

impl PauseArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let message = order(global, |daemon| daemon.pause(self.duration))?;
        let seconds = self.duration.map(|time| time.as_secs_f64());
        report(global, &PauseReply { paused: true, seconds, message: &message })
    }
}

impl ResumeArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let message = order(global, ControlClient::resume)?;
        report(global, &PauseReply { paused: false, seconds: None, message: &message })
    }
}

/// Sends an order to the running daemon. Returns the daemon's sentence.
fn order(
    global: &GlobalArgs,
    send: impl FnOnce(&mut ControlClient) -> Result<String, ClientError>,
) -> anyhow::Result<String> {
    control::require(global)?;
    let config = global.load_config()?;
    match ControlClient::connect(&config.daemon.control_socket) {
        Ok(mut daemon) => Ok(send(&mut daemon)?),
        Err(error) if error.is_absent() => Err(CommandFailure::impossible(
            "no daemon runs here: start it with `systemctl start ksmith`, or stop ksmd by hand with `ksmith disable`",
        )
        .into()),
        Err(error) => Err(error.into()),
    }
}

fn report(global: &GlobalArgs, reply: &PauseReply<'_>) -> anyhow::Result<ExitCode> {
    match global.json {
        true => print::json(reply)?,
        false => print::line(reply.message)?,
    }
    Ok(ExitCode::SUCCESS)
}
