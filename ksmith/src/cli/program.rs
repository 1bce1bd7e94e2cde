//! The run of a program: the command line, the log, the command, and the error's way to the user.

use std::process::ExitCode;

use clap::Parser;
use ksmith_core::printable::TextPage;
use ksmith_lab::scenario::ScenarioError;
use ksmith_service::config::ConfigError;

use super::{GlobalArgs, code_of, print, sentence, with_remedy};
use crate::exit::{self, NamedExitCode};

/// A program's command line. Each program links the code of its own commands only.
pub trait CommandLine: Parser {
    /// Returns the options of every command.
    fn global(&self) -> &GlobalArgs;

    /// Returns true if the log may be on the terminal, and no program takes over that has a log of its own.
    fn has_log(&self) -> bool {
        true
    }

    /// Runs the command.
    ///
    /// # Errors
    /// A [`CommandFailure`](super::CommandFailure) carries its own exit code; any other error means 1.
    fn run(&self) -> anyhow::Result<ExitCode>;
}

/// Parses the command line and runs the command. Prints errors on standard error.
pub fn main<C: CommandLine>() -> ExitCode {
    match run_command::<C>() {
        Ok(code) => code,
        Err(error) => {
            print_error(&error);
            code_of(&error).into()
        }
    }
}

fn run_command<C: CommandLine>() -> anyhow::Result<ExitCode> {
    let cli = match C::try_parse() {
        Ok(cli) => cli,
        // Help and version are results: a full disk is an error, a closed pipe is none.
        Err(help) if !help.use_stderr() => {
            print::help(&help.render())?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(misuse) => {
            let mut page = TextPage::new();
            let text = misuse.render().to_string();
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
    let global = cli.global();
    print::choose(global.color);
    if cli.has_log() {
        crate::log::start(global.verbose, print::has_colours(print::is_watched()));
    }
    match cli.run().map_err(with_remedy) {
        Err(error) if global.json => {
            let code = code_of(&error);
            tell_json(code, &sentence(&error));
            Ok(code.into())
        }
        outcome => outcome,
    }
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

/// Prints an error on standard error.
fn print_error(error: &anyhow::Error) {
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
