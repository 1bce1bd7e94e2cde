//! `ksmith status`

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ksmith_core::decide::History;
use ksmith_core::decide::domains::DomainsReport;

use super::{Global, print};
use crate::config::Config;
use crate::control::{self, Client};
use crate::guests::{Guests, Uri};
use crate::observe::Observer;
use crate::show::Status;

/// Show KSM's settings and figures, what is saved for whom, and what the daemon is doing.
///
/// A running daemon answers at once; without one ksmith looks itself, for a quarter of a second, so that ksmd's
/// CPU use can be told. `saved` is memory that is not needed because pages are merged; `exposure` is what the
/// host would need if all of that were written to, and `headroom` what it has for that.
#[derive(Debug, Args)]
pub struct StatusArgs {}

/// Between the two looks from which ksmd's CPU use is reckoned.
const BETWEEN: Duration = Duration::from_millis(250);

impl StatusArgs {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let root = global.root();
        if root.is_host()
            && let Some(answer) = ask_daemon(global)?
        {
            if global.json {
                print::json(&answer.json)?;
            } else {
                print::text(&answer.text)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let is_live = root.is_host();
        let config = Config::load(global.config.as_deref())?;
        let mut guests = Guests::new(root.clone(), Uri::default());
        let mut observer = Observer::new(root);
        let mut history = History::default();
        history.push(&observer.sample());
        if is_live {
            std::thread::sleep(BETWEEN);
        }
        let sample = observer.sample();
        history.push(&sample);
        let ksmd_cpu_percent = history.ksmd_share().filter(|_| is_live).map(|share| share * 100.0);
        let domains = Some(DomainsReport::of(&config.domains, &guests.list(&sample).guests, None));
        let status = Status { sample, ksmd_cpu_percent, daemon: None, domains, balance: None };
        if global.json {
            print::json(&status.to_json())?;
        } else {
            print::text(&status)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The answer of a running daemon. `None` where there is none, or none that this user may ask.
fn ask_daemon(global: &Global) -> anyhow::Result<Option<control::StatusAnswer>> {
    let config = Config::load(global.config.as_deref())?;
    match Client::connect(&config.daemon.control_socket) {
        Ok(mut client) => Ok(Some(client.status()?)),
        Err(error) if error.is_nobody_there() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
