//! The command `ksmith config`.

use std::process::ExitCode;

use clap::Subcommand;

use super::{Global, print};
use ksmith_service::config::{Config, DEFAULT_PATH};

/// Work with the configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration: unknown keys and invalid values are refused with line and column.
    Check,
}

impl ConfigCommand {
    pub(super) fn run(&self, global: &Global) -> anyhow::Result<ExitCode> {
        let Self::Check = self;
        let config = Config::load(global.config.as_deref())?;
        config.check_kernel(&global.root())?;
        let policy = config.policy()?;
        let path = global.config.as_deref().map_or(DEFAULT_PATH.to_owned(), |path| path.display().to_string());
        if global.json {
            print::json(&serde_json::json!({ "path": path, "policy": policy.name() }))?;
        } else {
            print::line(format_args!(
                "{path}: good; policy {}, ksmd up to {} of a CPU",
                policy.name(),
                config.limits.max_cpu
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
