//! The command `ksmith schema`.

use std::process::ExitCode;

use clap::Args;
use ksmith_core::figures;

use super::{CommandFailure, GlobalArgs, print};
use crate::show::schemas::{SCHEMAS, command_schema};

/// Print the JSON Schema of what a command prints with --json.
///
/// Each key is described with its unit, its kind (gauge, counter or state) and the first kernel that has it. Without a
/// command, the commands that have a schema are listed. /usr/share/doc/ksmith/docs/reference/figures.md has all figures on one page.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// The command, such as status or lab run
    command: Vec<String>,
    /// Print the reference page of all figures
    #[arg(long, conflicts_with = "command")]
    figures: bool,
    /// Print the reference page of the history's tables
    #[arg(long, conflicts_with_all = ["command", "figures"])]
    history: bool,
}

impl SchemaArgs {
    pub(super) fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        if self.figures {
            print::own(&figures::reference())?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.history {
            print::own(&ksmith_record::reference())?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.command.is_empty() && global.json {
            print::json(&SCHEMAS.iter().map(|(name, _)| name).collect::<Vec<_>>())?;
            return Ok(ExitCode::SUCCESS);
        }
        if self.command.is_empty() {
            SCHEMAS.iter().try_for_each(|(name, _)| print::line(name))?;
            return Ok(ExitCode::SUCCESS);
        }
        let command = self.command.join(" ");
        let unknown = || {
            CommandFailure::usage(format!("{command} has no schema; `ksmith schema` lists the commands that have"))
        };
        print::json(&command_schema(&command).ok_or_else(unknown)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
