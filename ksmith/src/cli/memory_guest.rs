//! `ksmith memory-guest`: what the demo and the lab start, hidden from help.

use std::process::ExitCode;

use clap::Args;

use crate::lab::{Contents, Part, serve};

/// Hold memory with known content and offer it to KSM, until standard input ends.
#[derive(Debug, Args)]
pub struct MemoryGuestArgs {
    /// What to hold
    #[arg(value_name = "PART", value_parser = |text: &str| text.parse::<Part>())]
    parts: Vec<Part>,
    /// What to be called; heeded by whoever reads the command line of this process
    #[arg(long)]
    name: Option<String>,
}

impl MemoryGuestArgs {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        serve(&Contents(self.parts.clone()), std::io::stdin().lock(), std::io::stdout())?;
        Ok(ExitCode::SUCCESS)
    }
}
