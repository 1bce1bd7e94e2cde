//! Shell completions and the manual, generated from the same table as the help.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, GlobalArgs, print};
use crate::manual::{completion_script, manual};

/// Print completions for a shell, as in `ksmith completions bash > /etc/bash_completion.d/ksmith`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Name of the shell
    shell: Shell,
}

impl CompletionsArgs {
    pub(super) fn run(&self, _global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        print::own(&String::from_utf8_lossy(&completion_script(self.shell)))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Write the manual: man pages, completions, and the reference of commands and configuration.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Directory for man1/, man5/, completions/ and reference/
    #[arg(long)]
    dir: PathBuf,
    /// The date in the man pages, as YYYY-MM-DD
    #[arg(long, default_value = "")]
    date: String,
}

impl ManualArgs {
    pub(super) fn run(&self, _global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        for file in manual(Cli::command(), &self.date)? {
            let path = self.dir.join(file.path);
            let above = path.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(above).with_context(|| format!("can't make the directory {}", above.display()))?;
            fs::write(&path, file.content).with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
