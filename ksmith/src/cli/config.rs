//! The command `ksmith config`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{GlobalArgs, print};
use crate::exit;
use crate::show::settings::EffectiveConfig;
use ksmith_host::bad_file::{BadFile, read_text};
use ksmith_service::config::{Config, ConfigError, ConfigFaults, parse_table, path_of};

/// Work with the configuration file.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    Check(CheckArgs),
    Show(ShowArgs),
}

/// Check the configuration: all faults at once, each with file, line and column.
///
/// It finds unknown keys, values that a key does not take, and settings that contradict each other. It also finds what
/// this host lacks: cgroups, groups, NUMA nodes and CPUs that are named, and domains to which no guest can belong. The
/// default groups may be missing: then only root may ask.
#[derive(Debug, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    file: ConfigFileArg,
}

/// Show the configuration in force: each key with its value, and which of them are defaults.
///
/// The output is itself a configuration. It shows the file as it is now; a running daemon read it at its start, or at
/// the last SIGHUP. What the daemon would refuse is refused here, in the same words: `systemctl reload ksmith` runs
/// this command first.
#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    file: ConfigFileArg,
}

/// The file to read.
#[derive(Debug, Args)]
struct ConfigFileArg {
    /// The file to read instead of --config's, or of /etc/ksmith.toml
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// A configuration that was found.
struct FoundConfig {
    path: PathBuf,
    /// `None` if no file was named, and there is none at the default path.
    text: Option<String>,
}

impl ConfigFileArg {
    fn find(&self, global: &GlobalArgs) -> anyhow::Result<FoundConfig> {
        let named = self.file.as_ref().or(global.config.as_ref());
        let path = named.map_or_else(|| path_of(&global.root()), Clone::clone);
        match read_text(&path) {
            Ok(text) => Ok(FoundConfig { path, text: Some(text) }),
            Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => {
                Ok(FoundConfig { path, text: None })
            }
            Err(source) => {
                Err(ConfigError::from(BadFile::Unreadable { what: "configuration", path, source }).into())
            }
        }
    }
}

impl ConfigCommand {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        match self {
            Self::Check(args) => args.run(global),
            Self::Show(args) => args.run(global),
        }
    }
}

impl CheckArgs {
    fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let FoundConfig { path, text } = self.file.find(global)?;
        let config = match Config::check(&path, text.as_deref().unwrap_or_default(), &global.root()) {
            Err(ConfigError::Faults(ConfigFaults { faults, .. })) if global.json => {
                let places = faults
                    .iter()
                    .map(|fault| json!({ "line": fault.line, "column": fault.column, "message": fault.message }));
                let places: Vec<_> = places.collect();
                print::json(&json!({ "path": path, "is_there": true, "policy": null, "faults": places }))?;
                return Ok(ExitCode::from(exit::USAGE));
            }
            read => read?,
        };
        self.print_result(global, &path, text.is_some(), &config)
    }

    fn print_result(
        &self,
        global: &GlobalArgs,
        path: &Path,
        exists: bool,
        config: &Config,
    ) -> anyhow::Result<ExitCode> {
        let (policy, share, path) = (config.policy.kind.name(), config.limits.max_cpu, path.display());
        if global.json {
            let path = path.to_string();
            print::json(&json!({ "path": path, "is_there": exists, "policy": policy, "faults": [] }))?;
        } else if exists {
            print::line(format_args!("{path}: good; policy {policy}, ksmd up to {share} of a CPU"))?;
        } else {
            print::line(format_args!(
                "{path}: there is no such file, so the defaults hold; policy {policy}, ksmd up to {share} of a CPU"
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ShowArgs {
    fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let FoundConfig { path, text } = self.file.find(global)?;
        let (is_there, text) = (text.is_some(), text.unwrap_or_default());
        let config = Config::parse(&path, &text)?;
        config.check_kernel(&global.root())?;
        config.policy()?;
        let in_force = EffectiveConfig::new(&parse_table(&text).unwrap_or_default())?;
        let path = path.display().to_string();
        let missing = if is_there { "" } else { ": there is no such file, so the defaults hold" };
        let settings = || json!({ "path": path, "is_there": is_there, "settings": in_force.json() });
        print::answer(global.json, settings, || in_force.text(&format!("{path}{missing}")))
    }
}
