//! The command line: one table here, one file per command beside it.

mod balance;
mod config;
mod control;
mod daemon;
mod demo;
mod docs;
mod doctor;
mod estimate;
mod guests;
mod knobs;
mod lab;
mod memory_guest;
mod merge;
mod optin;
mod print;
mod restore;
mod run;
mod run_scans;
mod scan;
mod status;
mod unmerge;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::root::Root;

/// Exit codes, as documented in the help.
pub mod exit {
    /// Failed.
    pub const FAILED: u8 = 1;
    /// Usage or configuration.
    pub const USAGE: u8 = 2;
    /// Not possible here: no KSM, no privilege, somebody else in control.
    pub const IMPOSSIBLE: u8 = 3;
}

/// Makes Linux memory merging (KSM) worth using.
///
/// ksmith watches a host's guests and ksmd, spends ksmd's CPU only where it pays, shows what is saved for each
/// process, and puts every setting back when it ends.
///
/// Start with `ksmith doctor` (looks, changes nothing), `ksmith demo` (shows the work on four small guests) or
/// `ksmith daemon` (does it).
#[derive(Debug, Parser)]
#[command(name = "ksmith", version, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "Exit codes: 0 done, 1 failed, 2 usage or configuration, 3 not possible here (no KSM, no \
                          privilege, somebody else in control).\nLooking needs no root; acting does.";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub struct Global {
    /// Print JSON with stable keys: bytes and seconds as plain numbers
    #[arg(long, global = true)]
    pub json: bool,
    /// Look at a captured tree (with proc and sys in it) instead of this host
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Read this configuration instead of /etc/ksmith.toml
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say more: each change of a setting as it is made, and what led to it
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

impl Global {
    /// The host to look at.
    pub fn root(&self) -> Root {
        self.root.as_ref().map_or_else(Root::host, Root::at)
    }

    /// The host to act upon.
    ///
    /// # Errors
    /// A captured tree was named: there is no kernel behind it.
    pub fn live_root(&self) -> Result<Root, Failure> {
        match self.root() {
            root if root.is_host() => Ok(root),
            _ => Err(Failure::usage("--root names a captured tree, and this command acts on a live kernel")),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    Status(status::StatusArgs),
    Guests(guests::GuestsArgs),
    Doctor(doctor::DoctorArgs),
    Estimate(estimate::EstimateArgs),
    Demo(demo::DemoArgs),
    Daemon(daemon::DaemonArgs),
    Run(run::RunArgs),
    Scan(scan::ScanArgs),
    Enable(knobs::EnableArgs),
    Disable(knobs::DisableArgs),
    Set(knobs::SetArgs),
    Merge(merge::MergeArgs),
    Balance(balance::BalanceArgs),
    Hold(balance::HoldArgs),
    Give(balance::GiveArgs),
    Take(balance::TakeArgs),
    Unmerge(unmerge::UnmergeArgs),
    Optin(optin::OptinArgs),
    Restore(restore::RestoreArgs),
    #[command(subcommand)]
    Lab(lab::LabCommand),
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Completions(docs::CompletionsArgs),
    #[command(hide = true)]
    Man(docs::ManArgs),
    #[command(hide = true)]
    MemoryGuest(memory_guest::MemoryGuestArgs),
}

/// Reads the command line and does what it asks for.
///
/// # Errors
/// As [`Cli::run`].
pub fn main() -> anyhow::Result<ExitCode> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version are results like any other: a full disk is an error, a reader who leaves is none.
        Err(help) if !help.use_stderr() => {
            let text = help.render();
            let is_terminal = std::io::stdout().is_terminal();
            print::text(if is_terminal { text.ansi().to_string() } else { text.to_string() })?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(misuse) => {
            let _ = misuse.print();
            return Ok(ExitCode::from(exit::USAGE));
        }
    };
    crate::log::start(cli.global.verbose);
    cli.run()
}

/// An error with its causes, each said once: many errors name their cause themselves.
pub fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match () {
        () if said.is_empty() => cause,
        () if said.contains(&cause) => said,
        () => format!("{said}: {cause}"),
    })
}

impl Cli {
    /// Does what was asked.
    ///
    /// # Errors
    /// A [`Failure`] carries its own exit code; any other error means 1.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let global = &self.global;
        match &self.command {
            Command::Status(args) => args.run(global),
            Command::Guests(args) => args.run(global),
            Command::Doctor(args) => args.run(global),
            Command::Estimate(args) => args.run(global),
            Command::Demo(args) => args.run(global),
            Command::Daemon(args) => args.run(global),
            Command::Run(args) => args.run(global),
            Command::Scan(args) => args.run(global),
            Command::Enable(args) => args.run(global),
            Command::Disable(args) => args.run(global),
            Command::Set(args) => args.run(global),
            Command::Merge(args) => args.run(global),
            Command::Balance(args) => args.run(global),
            Command::Hold(args) => args.run(global),
            Command::Give(args) => args.run(global),
            Command::Take(args) => args.run(global),
            Command::Unmerge(args) => args.run(global),
            Command::Optin(args) => args.run(global),
            Command::Restore(args) => args.run(global),
            Command::Lab(command) => command.run(global),
            Command::Config(command) => command.run(global),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(),
            Command::MemoryGuest(args) => args.run(),
        }
    }
}

/// An error with its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the process ends with.
    pub code: u8,
    message: String,
}

impl Failure {
    /// Exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: exit::USAGE, message: message.into() }
    }

    /// This exit code.
    pub fn with_code(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Exit code 3.
    pub fn impossible(message: impl Into<String>) -> Self {
        Self { code: exit::IMPOSSIBLE, message: message.into() }
    }
}

/// The exit code that an error stands for.
pub fn code_of(error: &anyhow::Error) -> u8 {
    use crate::act::{JournalError, LockError, TakeError};
    use crate::config::ConfigError;

    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if cause.is::<ConfigError>() {
            return exit::USAGE;
        }
        let held = cause.downcast_ref::<TakeError>();
        if matches!(held, Some(TakeError::Lock(LockError::Held { .. }) | TakeError::Held(_))) {
            return exit::IMPOSSIBLE;
        }
        // Trying again does not make it whole.
        let is_damaged = |journal: &JournalError| matches!(journal, JournalError::Damaged { .. });
        if matches!(held, Some(TakeError::Journal(journal)) if is_damaged(journal))
            || cause.downcast_ref().is_some_and(is_damaged)
        {
            return exit::IMPOSSIBLE;
        }
    }
    exit::FAILED
}
