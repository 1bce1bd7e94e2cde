//! The command `ksmith guests`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser};
use ksmith_core::figures::{self, GUEST, find};
use ksmith_core::model::GuestsReport;

use super::{Failure, Global, patience, print};
use crate::show;
use crate::show::guests::Order;
use ksmith_host::guests::{Guests, List, read_memory};
use ksmith_host::observe::Observer;
use ksmith_service::config::Config;
use ksmith_service::control::Client;
use ksmith_service::domains::sharing;

/// Show each guest by name: what it takes, what merging saves and costs.
///
/// A guest is a virtual machine, a user-mode Linux, a systemd service, a container or any other process with
/// mergeable memory. `saved` adds up to what the host saves; `profit` is saved less KSM's metadata, and negative
/// for a guest that only costs. `private` and `shared` make up its part of the host's memory (PSS); they are dear
/// to read, so on a host with large guests only what can be read in a moment is shown unless --pss asks for all.
/// --by domain also looks up, as root, which merged pages guests of different trust domains share now.
#[derive(Debug, Args)]
pub struct GuestsArgs {
    /// What makes a row
    #[arg(long, value_parser = labels(), default_value = EACH, value_name = "WHAT")]
    by: String,
    /// What to order by, the largest first: any figure of a guest
    #[arg(long, value_parser = keys(), default_value = "saved_bytes", value_name = "FIGURE")]
    sort: String,
    /// Read private and shared memory of all guests, however long that takes
    #[arg(long)]
    pss: bool,
}

/// A name that stands for each guest by itself.
const EACH: &str = "guest";

/// The labels that guests can be summed up by, from the table of figures.
fn labels() -> PossibleValuesParser {
    let each = PossibleValue::new(EACH).help("Each guest by itself");
    let labels = figures::labels().map(|figure| PossibleValue::new(figure.field.name).help(figure.field.help));
    [each].into_iter().chain(labels).collect::<Vec<_>>().into()
}

/// The figures that rows can be ordered by, each by its key or its heading.
fn keys() -> PossibleValuesParser {
    let keys = GUEST
        .iter()
        .map(|figure| PossibleValue::new(figure.field.name).help(figure.field.help).aliases(figure.heading));
    keys.collect::<Vec<_>>().into()
}

/// For private and shared memory, unless all of it is asked for.
const PSS_BUDGET: Duration = Duration::from_millis(60);

/// For hypervisors to answer, where no daemon has asked them before.
const PATIENCE: Duration = Duration::from_secs(1);

impl GuestsArgs {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let config = Config::load(global.config.as_deref())?;
        let root = global.root();
        let asked = if root.is_host() { ask_daemon(&config)? } else { None };
        let mut report = match asked {
            Some(report) => report,
            None => {
                let sample = Observer::new(root.clone()).sample();
                let mut guests = Guests::new(root.clone(), config.guests.libvirt_uri.clone());
                let List { guests, unattributed_bytes } = guests.list_within(&sample, PATIENCE);
                GuestsReport::new(&sample, guests, unattributed_bytes)
            }
        };
        config.domains.assign(&mut report.guests);
        let budget = if self.pss { None } else { Some(PSS_BUDGET) };
        report.errors.extend(read_memory(&root, &mut report.guests, budget));
        if self.by == "domain" {
            patience::watch();
            match sharing(&root, &config.domains, &report.guests) {
                Ok(sharing) => report.sharing = Some(sharing),
                Err(why) => report.errors.push(why.to_string()),
            }
        }
        let sort = find(GUEST, &self.sort).ok_or_else(|| Failure::usage("there is no such figure"))?;
        let order = Order { by: find(GUEST, &self.by), sort };
        if global.json {
            print::json(&show::guests::json(&report, order))?;
        } else {
            print::page(&show::guests::text(&report, order))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The answer of a running daemon. `None` where there is none, or none that this user may ask.
fn ask_daemon(config: &Config) -> anyhow::Result<Option<GuestsReport>> {
    match Client::connect(&config.daemon.control_socket) {
        Ok(mut client) => Ok(Some(client.guests()?)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}
