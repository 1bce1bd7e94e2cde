//! The command `ksmith config`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{Failure, Global, print};
use ksmith_service::config::{Config, DEFAULT_PATH};

/// Work with the configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    Check(CheckArgs),
}

/// Check the configuration: unknown keys and invalid values are refused with line and column.
///
/// Besides, the CPUs and NUMA nodes that it names must be there. That no file is there is no error: the defaults hold.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The file to check instead of --config's, or of /etc/ksmith.toml
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ConfigCommand {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let Self::Check(args) = self;
        args.run(global)
    }
}

impl CheckArgs {
    fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let named = self.file.as_deref().or(global.config.as_deref());
        let path = named.unwrap_or(Path::new(DEFAULT_PATH));
        let is_there = named.is_some() || path.exists();
        let config = Config::load(named)?;
        let root = global.root();
        let missing = config.missing_on(&root);
        if !missing.is_empty() {
            return Err(Failure::usage(format!("{}: {}", path.display(), missing.join("; "))).into());
        }
        config.check_kernel(&root)?;
        let policy = config.policy()?;
        if global.json {
            print::json(&serde_json::json!({ "path": path, "policy": policy.name(), "is_there": is_there }))?;
        } else {
            let state = if is_there { "good" } else { "there is no such file, so the defaults hold" };
            print::line(format_args!(
                "{}: {state}; policy {}, ksmd up to {} of a CPU",
                path.display(),
                policy.name(),
                config.limits.max_cpu
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
