//! The command lines of the programs that `ksmith` becomes: the options of every command, and their own commands.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use super::program::CommandLine;
use super::{GlobalArgs, daemon, demo, fold_worker, lab, memory_guest, serve, sim};

/// The command line of a program beside `ksmith`.
#[derive(Debug, Parser)]
#[command(version)]
pub struct SiblingCli<C: Subcommand> {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: C,
}

/// A command of a program beside `ksmith`.
pub trait SiblingCommand: Subcommand {
    /// Runs the command.
    ///
    /// # Errors
    /// As [`CommandLine::run`].
    fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode>;
}

impl<C: SiblingCommand> CommandLine for SiblingCli<C> {
    fn global(&self) -> &GlobalArgs {
        &self.global
    }

    fn run(&self) -> anyhow::Result<ExitCode> {
        self.global.check_root()?;
        self.command.run(&self.global)
    }
}

/// A command of `ksmithd`.
#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    /// The daemon.
    Daemon(daemon::DaemonArgs),
    /// Its child that splits huge pages.
    #[command(hide = true)]
    FoldWorker(fold_worker::FoldWorkerArgs),
}

impl SiblingCommand for DaemonCommand {
    fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        match self {
            Self::Daemon(args) => args.run(global),
            Self::FoldWorker(args) => args.run(),
        }
    }
}

/// A command of `ksmith-lab`.
#[derive(Debug, Subcommand)]
pub enum LabProgramCommand {
    /// The laboratory.
    #[command(subcommand)]
    Lab(lab::LabCommand),
    /// The simulator.
    Sim(sim::SimArgs),
    /// The demo.
    Demo(demo::DemoArgs),
    /// A guest of known memory.
    #[command(hide = true)]
    MemoryGuest(memory_guest::MemoryGuestArgs),
}

impl SiblingCommand for LabProgramCommand {
    fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        match self {
            Self::Lab(command) => command.run(global),
            Self::Sim(args) => args.run(global),
            Self::Demo(args) => args.run(global),
            Self::MemoryGuest(args) => args.run(),
        }
    }
}

/// A command of `ksmith-serve`.
#[derive(Debug, Subcommand)]
pub enum ServeCommand {
    /// The web server.
    Serve(serve::ServeArgs),
}

impl SiblingCommand for ServeCommand {
    fn run(&self, global: &GlobalArgs) -> anyhow::Result<ExitCode> {
        let Self::Serve(args) = self;
        args.run(global)
    }
}
