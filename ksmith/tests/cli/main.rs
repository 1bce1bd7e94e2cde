//! The command line as users meet it: help, exit codes, messages, and what happens to output that can't be written.
//!
//! Nothing here changes the host: what acts is refused before it acts.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

#[path = "../support/mod.rs"]
mod support;

mod captured_trees;
mod completion;
mod configuration;
mod help;
mod platform_hosts;
mod platforms;
mod rights;
mod terminal;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ksmith");

/// Commands that change something, with arguments that would do so.
const ACTING: [&[&str]; 9] = [
    &["daemon"],
    &["scan"],
    &["enable"],
    &["disable"],
    &["set", "run=1"],
    &["unmerge"],
    &["restore"],
    &["lab", "run", "burst"],
    &["set", "run=1", "--dry-run"],
];

fn tree(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata").join(name).display().to_string()
}

fn ksmith(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Returns the names of the commands that are not hidden.
fn commands() -> Vec<String> {
    let program = <ksmith::cli::Cli as clap::CommandFactory>::command();
    let commands = program.get_subcommands().filter(|command| !command.is_hide_set());
    commands.map(|command| command.get_name().to_owned()).collect()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not ended by a signal")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}", out(output)))
}

/// Returns the schema that `ksmith schema` prints for a command.
fn schema(command: &str) -> jsonschema::Validator {
    let arguments: Vec<&str> = ["schema"].into_iter().chain(command.split(' ')).collect();
    jsonschema::validator_for(&json(&ksmith(&arguments))).expect("a schema")
}
