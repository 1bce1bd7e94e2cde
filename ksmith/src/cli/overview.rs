//! The command `ksmith overview`, which is also `ksmith` without a command: KSM's state here, its potential, and the
//! next command.

use std::process::ExitCode;

use clap::Args;
use ksmith_host::other_controllers::survey;
use ksmith_host::systemd;

use super::source::FallbackSource;
use super::{GlobalArgs, print};
use crate::show::overview::{HostOverview, OverviewInputs, text};

/// Show what KSM does here, what it could save, and which command to type next; the same as no command.
///
/// Works for every user; root sees more. "could save" is an upper bound, not an estimate: all memory that guests offer
/// to KSM. `ksmith estimate` reads that memory and says what merging would save.
#[derive(Debug, Args)]
pub struct OverviewArgs {}

impl OverviewArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let root = global.root();
        let config = global.load_config_to_read()?;
        // A daemon that may not be asked, or hangs, is no reason to show nothing.
        let seen = FallbackSource::steady(root.clone(), config).everything()?.value;
        let overview = HostOverview::new(OverviewInputs {
            status: &seen.status,
            guests: &seen.guests,
            others: &survey(&root),
            is_service_active: root.is_host() && systemd::is_active(&root, "ksmith.service"),
            is_root: root.is_host() && rustix::process::geteuid().is_root(),
        });
        print::answer(global.json, || &overview, || text(&overview))
    }
}
