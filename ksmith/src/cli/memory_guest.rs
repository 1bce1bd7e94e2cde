//! The command `ksmith memory-guest`, which the demo and the lab start. It is hidden from help.

use std::process::ExitCode;

use clap::Args;

use ksmith_lab::{GuestContents, MemoryPart, serve};

use super::GlobalArgs;

/// Hold memory with known content and offer it to KSM, until standard input ends.
#[derive(Debug, Args)]
pub struct MemoryGuestArgs {
    /// Parts of the memory
    #[arg(value_name = "PART", value_parser = |text: &str| text.parse::<MemoryPart>())]
    parts: Vec<MemoryPart>,
    /// Name of the guest, for readers of this command line
    #[arg(long)]
    name: Option<String>,
    /// Ask for transparent huge pages
    #[arg(long)]
    huge: bool,
}

impl MemoryGuestArgs {
    #[allow(clippy::disallowed_methods, reason = "its words go to the ksmith that started it")]
    pub(super) fn run(&self, _global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        serve(&GuestContents(self.parts.clone()), self.huge, std::io::stdin().lock(), std::io::stdout())?;
        Ok(ExitCode::SUCCESS)
    }
}
