//! Shell completions and man pages, generated from the same table as the help.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, print};

/// Print completions for a shell, as in `ksmith completions bash > /etc/bash_completion.d/ksmith`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Name of the shell
    shell: Shell,
}

impl CompletionsArgs {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        // Into memory first, because clap_complete panics on a closed pipe.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "ksmith", &mut script);
        print::own(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Write the man pages, one per command, into a directory.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// Directory for the man pages
    directory: PathBuf,
}

impl ManArgs {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let directory = &self.directory;
        fs::create_dir_all(directory).with_context(|| format!("can't make {}", directory.display()))?;
        clap_mangen::generate_to(Cli::command(), directory)
            .with_context(|| format!("can't write man pages to {}", directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
