//! The command `ksmith status`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use ksmith_core::decide::History;
use ksmith_core::decide::domains::DomainsReport;

use super::{Global, print};
use crate::show;
use ksmith_core::model::Status;
use ksmith_host::guests::{Guests, Uri};
use ksmith_host::observe::Observer;
use ksmith_service::config::Config;
use ksmith_service::control::Client;

/// Show KSM's settings and figures, what each process saves, and the state of the daemon.
///
/// A running daemon answers at once; without one ksmith looks itself, for a quarter of a second, so that ksmd's
/// CPU use can be told. `saved` is memory that is not needed because pages are merged; `exposure` is what the
/// host would need if all of that were written to, and `headroom` what it has for that.
#[derive(Debug, Args)]
pub struct StatusArgs {}

/// Time between the two samples from which ksmd's CPU use is computed.
const BETWEEN: Duration = Duration::from_millis(250);

impl StatusArgs {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let config = Config::load(global.config.as_deref())?;
        let asked = if global.root().is_host() { ask_daemon(&config)? } else { None };
        let status = asked.unwrap_or_else(|| look(global, &config));
        if global.json {
            print::json(&show::status::json(&status))?;
        } else {
            print::page(&show::status::text(&status))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The status without a daemon.
pub(super) fn look(global: &Global, config: &Config) -> Status {
    let root = global.root();
    let is_live = root.is_host();
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
    Status { sample, ksmd_cpu_percent, daemon: None, domains, ..Status::default() }
}

/// The answer of a running daemon. `None` where there is none, or none that this user may ask.
fn ask_daemon(config: &Config) -> anyhow::Result<Option<Status>> {
    match Client::connect(&config.daemon.control_socket) {
        Ok(mut client) => Ok(Some(client.status()?)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
