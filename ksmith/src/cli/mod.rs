//! The command line: the table of commands here, and one file per command beside it.

mod amounts;
mod asked;
mod balance;
mod completion;
mod config;
mod control;
mod daemon;
mod demo;
mod docs;
mod doctor;
mod estimate;
mod fold;
mod fold_worker;
mod guests;
mod heat_map;
mod help;
mod history;
mod job;
mod knobs;
mod lab;
mod memory_guest;
mod merge;
mod metrics;
mod misuse;
mod naming;
mod optin;
mod overview;
mod page_tables;
mod past;
mod patience;
mod pause;
mod print;
mod progress;
mod report;
mod restore;
mod run;
mod run_report;
mod run_scans;
mod scan;
mod schema;
mod serve;
mod setup;
mod sim;
mod sketch;
mod source;
mod status;
mod top;
mod unmerge;
mod watch;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use ksmith_core::guest::{FindGuestError, WAYS};
use ksmith_core::printable::TextPage;
use ksmith_host::root::Root;
use ksmith_lab::scenario::ScenarioError;
use ksmith_record::ReadError;
use ksmith_service::config::{Config, ConfigError};
use ksmith_service::control::ClientError;

use crate::exit::{self, NamedExitCode};
use print::ColourChoice;

/// Make Linux memory merging (KSM) worth using.
///
/// ksmith watches a host's guests and ksmd, spends ksmd's CPU only where it pays, shows the savings of each
/// process, and restores every setting when it ends.
///
/// Without a command it shows what KSM does here, what it could save, and which command comes next. `ksmith setup` sets
/// a host up; `ksmith doctor` reads and changes nothing; `ksmith demo` shows merging on four small guests.
#[derive(Debug, Parser)]
#[command(name = "ksmith", version, after_help = after_help())]
pub struct Cli {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: Option<CliCommand>,
}

/// Returns the text below the help: the exit codes, the ways to name a guest, and the need for root.
fn after_help() -> String {
    let codes: Vec<String> = exit::lines().collect();
    format!(
        "Exit codes:\n{}\n`ksmith run` exits with its program's code, `ksmith doctor --check` with Nagios codes: 0, 1, 2, 3.\n\n\
         A guest is named by its {}.\nReading does not need root; acting does.",
        codes.join("\n"),
        WAYS
    )
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// Print JSON with stable keys: bytes and seconds as plain numbers. An error is one JSON object on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// Read a captured tree (with proc and sys in it, and etc/ksmith.toml) instead of this host
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Read this configuration instead of /etc/ksmith.toml, or instead of the one in --root's tree.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say more: -v shows each change of a setting and the arithmetic behind reasons, -vv everything;
    /// RUST_LOG=MODULE=LEVEL sets the level by module.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Colours in text
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    color: ColourChoice,
}

impl GlobalArgs {
    /// Refuses a `--root` that is no directory: its files would all be absent, which says nothing of a kernel. Refuses a
    /// tree that does not show its page size.
    fn check_root(&self) -> Result<(), CommandFailure> {
        let Some(root) = self.root.as_deref() else { return Ok(()) };
        let refuse = |why: String| {
            let shown = root.display();
            Err(CommandFailure::usage(format!(
                "--root {shown}: {why}; name a captured tree, with proc and sys in it"
            )))
        };
        match std::fs::metadata(root) {
            Err(error) if error.kind() == ErrorKind::NotFound => refuse("there is no such directory".to_owned()),
            Err(error) => refuse(format!("it can't be read: {error}")),
            Ok(found) if !found.is_dir() => refuse("it is not a directory".to_owned()),
            Ok(_) if !root.join("proc").is_dir() && !root.join("sys").is_dir() => {
                refuse("it has neither proc nor sys in it".to_owned())
            }
            Ok(_) => match self.root().page_size() {
                Ok(_) => Ok(()),
                Err(why) => refuse(why.to_string()),
            },
        }
    }

    /// Returns the host to read.
    pub fn root(&self) -> Root {
        self.root.as_ref().map_or_else(Root::host, Root::at)
    }

    /// Loads the configuration: that of --config, or that of the host or the tree that is read.
    ///
    /// # Errors
    /// The file can't be read, or has faults.
    pub fn load_config(&self) -> Result<Config, ConfigError> {
        Config::load_of(&self.root(), self.config.as_deref())
    }

    /// Loads the configuration for a command that only reads. A fault in the host's file is a warning: what is sound in
    /// it holds.
    ///
    /// # Errors
    /// The file that --config names can't be read, or has faults.
    pub fn load_config_to_read(&self) -> Result<Config, ConfigError> {
        match self.load_config() {
            Err(error) if self.config.is_none() => {
                let faults = format!("{error:#}");
                tracing::warn!("the configuration has faults, and defaults stand in for them: {faults}");
                Ok(Config::load_sound(&self.root()))
            }
            read => read,
        }
    }

    /// Returns the host to act on.
    ///
    /// # Errors
    /// `--root` names a captured tree, which has no kernel.
    pub fn live_root(&self) -> Result<Root, CommandFailure> {
        match self.root() {
            root if root.is_host() => Ok(root),
            _ => Err(CommandFailure::usage("--root names a captured tree, and this command acts on a live kernel")),
        }
    }
}

/// Declares the commands, each with the arguments that run it.
macro_rules! commands {
    ($($(#[$attribute:meta])* $name:ident($args:ty);)*) => {
        #[derive(Debug, Subcommand)]
        enum CliCommand {
            $($(#[$attribute])* $name($args),)*
        }

        impl CliCommand {
            fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
                match self {
                    $(Self::$name(args) => args.run(global),)*
                }
            }
        }
    };
}

commands! {
    Overview(overview::OverviewArgs);
    Status(status::StatusArgs);
    Guests(guests::GuestsArgs);
    History(history::HistoryArgs);
    Report(report::ReportArgs);
    Top(top::TopArgs);
    Doctor(doctor::DoctorArgs);
    Estimate(estimate::EstimateArgs);
    Fold(fold::FoldArgs);
    Sketch(sketch::SketchArgs);
    Demo(demo::DemoArgs);
    Setup(setup::SetupArgs);
    Daemon(daemon::DaemonArgs);
    Serve(serve::ServeArgs);
    Metrics(metrics::MetricsArgs);
    Run(run::RunArgs);
    #[command(subcommand)]
    Job(job::JobCommand);
    Scan(scan::ScanArgs);
    Pause(pause::PauseArgs);
    Resume(pause::ResumeArgs);
    Enable(knobs::EnableArgs);
    Disable(knobs::DisableArgs);
    Set(knobs::SetArgs);
    Merge(merge::MergeArgs);
    Balance(balance::BalanceArgs);
    Hold(balance::HoldArgs);
    Give(balance::GiveArgs);
    Take(balance::TakeArgs);
    Unmerge(unmerge::UnmergeArgs);
    Optin(optin::OptinArgs);
    Restore(restore::RestoreArgs);
    #[command(subcommand)]
    Lab(lab::LabCommand);
    Sim(sim::SimArgs);
    #[command(subcommand)]
    Config(config::ConfigCommand);
    Schema(schema::SchemaArgs);
    Completions(docs::CompletionsArgs);
    #[command(hide = true)]
    Manual(docs::ManualArgs);
    #[command(hide = true)]
    FoldWorker(fold_worker::FoldWorkerArgs);
    #[command(hide = true)]
    MemoryGuest(memory_guest::MemoryGuestArgs);
}

/// Parses the command line and runs the command.
///
/// # Errors
/// As [`Cli::run`].
pub fn main() -> anyhow::Result<ExitCode> {
    if completion::answer_script() {
        return Ok(ExitCode::SUCCESS);
    }
    let cli = match parse() {
        Ok(cli) => cli,
        // Help and version are results: a full disk is an error, a closed pipe is none.
        Err(help) if !help.use_stderr() => {
            print::help(&help.render())?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(misuse) => {
            let mut page = TextPage::new();
            let text = misuse::explain_command(&misuse).unwrap_or_else(|| misuse.render().to_string());
            if asks_for_json() {
                let first = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>();
                tell_json(exit::USAGE, first.join(" ").trim_start_matches("error: "));
            } else {
                page.lines(text.lines());
                print::aside(&page);
            }
            return Ok(exit::USAGE.into());
        }
    };
    print::choose(cli.global.color);
    // A log would stand in the middle of the screen.
    if !matches!(cli.command, Some(CliCommand::Top(_))) {
        let may_wait = !matches!(cli.command, Some(CliCommand::Daemon(_) | CliCommand::Serve(_)));
        crate::log::start(cli.global.verbose, print::has_colours(print::is_watched()), may_wait);
    }
    match cli.run().map_err(with_remedy) {
        Err(error) if cli.global.json => {
            let code = code_of(&error);
            tell_json(code, &sentence(&error));
            Ok(code.into())
        }
        outcome => outcome,
    }
}

/// Parses the command line.
fn parse() -> Result<Cli, clap::Error> {
    let mut program = help::with_help(Cli::command());
    let matches = program.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut program))
}

/// Returns true if the command line asks for JSON, even if it can't be parsed. Words behind `--` belong to another
/// program.
fn asks_for_json() -> bool {
    std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json")
}

/// Prints an error on standard error as one line of JSON.
fn tell_json(code: NamedExitCode, message: &str) {
    let error = serde_json::json!({ "error": { "code": code.number, "kind": code.name, "message": message } });
    let mut page = TextPage::new();
    page.line(error);
    print::aside(&page);
}

/// Returns an error with its causes as a sentence. Each cause is named once, because many errors name their cause
/// themselves.
pub fn sentence(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match () {
        () if said.is_empty() => cause,
        () if said.contains(&cause) => said,
        () => format!("{said}: {cause}"),
    })
}

/// Prints an error on standard error.
pub fn print_error(error: &anyhow::Error) {
    let mut page = TextPage::new();
    let text = format!("ksmith: {}", sentence(error));
    // Only a file of the operator's is quoted in several lines. Errors of others have one line, whatever they say.
    if error.chain().any(|cause| cause.is::<ConfigError>() || cause.is::<ScenarioError>()) {
        page.indented(text);
    } else {
        page.line(text);
    }
    print::aside(&page);
}

impl Cli {
    /// Runs the command.
    ///
    /// # Errors
    /// A [`CommandFailure`] carries its own exit code; any other error means 1.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        let global = &self.global;
        // `optin` writes into an image, which need hold no captured tree.
        // A check of a monitoring system has exit codes of its own.
        if !matches!(self.command, Some(CliCommand::Optin(_) | CliCommand::Doctor(_))) {
            global.check_root()?;
        }
        match &self.command {
            Some(command) => command.run(global),
            None => overview::OverviewArgs {}.run(global),
        }
    }
}

/// An error with its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CommandFailure {
    /// Exit code of the process.
    pub code: NamedExitCode,
    message: String,
}

impl CommandFailure {
    /// Makes an error of the command line or the configuration.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: exit::USAGE, message: message.into() }
    }

    /// Makes an error with this exit code.
    pub fn with_code(code: NamedExitCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Makes an error of what this host can't do.
    pub fn impossible(message: impl Into<String>) -> Self {
        Self { code: exit::IMPOSSIBLE, message: message.into() }
    }

    /// Makes an error of a missing privilege. The message names the remedy: as which user to run the command.
    pub fn no_privilege(message: impl Into<String>) -> Self {
        Self { code: exit::NO_PRIVILEGE, message: message.into() }
    }
}

impl From<FindGuestError> for CommandFailure {
    fn from(error: FindGuestError) -> Self {
        Self::with_code(exit::UNKNOWN_GUEST, error.to_string())
    }
}

impl From<ReadError> for CommandFailure {
    fn from(error: ReadError) -> Self {
        let code = match error {
            ReadError::Absent { .. } => exit::IMPOSSIBLE,
            ReadError::NoColumn { .. } | ReadError::NoLabel { .. } => exit::USAGE,
            ReadError::NoGuest(_) => exit::UNKNOWN_GUEST,
            ReadError::Foreign { .. } | ReadError::Damaged { .. } | ReadError::Sqlite { .. } => exit::FAILED,
        };
        Self::with_code(code, error.to_string())
    }
}

/// Returns the exit code of an error.
pub fn code_of(error: &anyhow::Error) -> NamedExitCode {
    use ksmith_host::act::{ControlError, LockError, UndoError};

    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<CommandFailure>() {
            return failure.code;
        }
        if cause.is::<ScenarioError>() {
            return exit::USAGE;
        }
        match cause.downcast_ref::<ConfigError>() {
            // The same configuration is right on another kernel.
            Some(ConfigError::Kernel(_)) => return exit::IMPOSSIBLE,
            Some(_) => return exit::USAGE,
            None => {}
        }
        if let Some(ClientError::NoGuest(_)) = cause.downcast_ref() {
            return exit::UNKNOWN_GUEST;
        }
        let held = cause.downcast_ref::<ControlError>();
        if matches!(held, Some(ControlError::Lock(LockError::Held { .. }) | ControlError::Held(_)))
            || matches!(cause.downcast_ref(), Some(LockError::Held { .. }))
        {
            return exit::IMPOSSIBLE;
        }
        // A damaged undo store stays damaged, so that a later attempt is useless.
        let is_damaged = |store: &UndoError| matches!(store, UndoError::Damaged { .. });
        if matches!(held, Some(ControlError::Journal(journal)) if is_damaged(journal))
            || cause.downcast_ref().is_some_and(is_damaged)
        {
            return exit::IMPOSSIBLE;
        }
    }
    // Root that is denied something lacks more than being root.
    if is_denied(error.as_ref()) && !rustix::process::geteuid().is_root() {
        return exit::NO_PRIVILEGE;
    }
    exit::FAILED
}

/// Adds the remedy to a denied permission. A [`CommandFailure`] names its own.
fn with_remedy(error: anyhow::Error) -> anyhow::Error {
    let names_remedy = error.chain().any(|cause| cause.is::<CommandFailure>());
    match !names_remedy && code_of(&error) == exit::NO_PRIVILEGE {
        true => CommandFailure::no_privilege(format!("{}: run it as root", sentence(&error))).into(),
        false => error,
    }
}

/// Returns true if the error, or a cause of it, is a denied permission.
fn is_denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::PermissionDenied) {
            return true;
        }
        cause = error.source();
    }
    false
}
