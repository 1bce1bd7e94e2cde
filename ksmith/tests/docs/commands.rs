//! Every command in a page is marked as run or not, and names only what the program has.
//!
//! A block of commands has the word `sh,run`, `sh,run=CODE` or `sh,not-run=REASON`
//! The blocks of the tutorial are run by `make tutorial-test`.behind its fence.

use clap::CommandFactory;
use clap::error::ErrorKind;
use ksmith::cli::Cli;

use crate::page::{self, DocBlock};

/// Reasons for not running a block of commands by a test.
const REASONS: [&str; 14] = [
    "the-tutorial",
    "changes-the-host",
    "needs-a-guest",
    "needs-root",
    "needs-systemd",
    "needs-libvirt",
    "needs-proxmox",
    "needs-kubernetes",
    "needs-slurm",
    "needs-a-container-engine",
    "needs-network",
    "needs-a-desktop",
    "needs-a-daemon",
    "needs-the-package",
];

/// Programs that start the program behind them.
const WRAPPERS: [&str; 8] = ["sudo", "exec", "time", "nice", "srun", "mpirun", "timeout", "watch"];

/// The treatment of a block of commands.
#[derive(Debug, PartialEq)]
pub enum BlockMark {
    /// A test runs it and expects this exit code.
    Run(i32),
    /// No test runs it.
    NotRun,
}

/// The mark of a block, or nothing for what is no command.
pub fn mark(block: &DocBlock) -> Result<Option<BlockMark>, String> {
    let Some(info) = &block.info else {
        return Err("a block without a fence says not what it is".to_owned());
    };
    let (language, mark) = info.split_once(',').unwrap_or((info, ""));
    if ["bash", "shell", "console", "zsh"].contains(&language) {
        return Err(format!("{language}: commands are marked as sh"));
    }
    if language != "sh" {
        return Ok(None);
    }
    match mark.split_once('=') {
        None if mark == "run" => Ok(Some(BlockMark::Run(0))),
        Some(("run", code)) => {
            code.parse().map(|code| Some(BlockMark::Run(code))).map_err(|_| format!("no code: {code}"))
        }
        Some(("not-run", reason)) if REASONS.contains(&reason) => Ok(Some(BlockMark::NotRun)),
        _ => Err(format!("{info:?}: sh,run or sh,not-run=REASON, one of {REASONS:?}")),
    }
}

/// The argument lists of ksmith in a line of shell.
fn invocations(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_default();
    let is_operator = |word: &String| matches!(word.as_str(), "|" | "&&" | "||" | ";" | "&");
    let mut found = Vec::new();
    for part in words.split(is_operator) {
        let is_assignment = |word: &&String| word.split_once('=').is_some_and(|(name, _)| !name.starts_with('-'));
        let command: Vec<String> = part.iter().skip_while(is_assignment).cloned().collect();
        let at = match command.first().map(String::as_str) {
            Some("ksmith") => Some(0),
            Some(name) if WRAPPERS.contains(&name) => command.iter().position(|word| word == "ksmith"),
            _ => None,
        };
        let Some(at) = at else { continue };
        let is_redirection =
            |word: &String| word.starts_with('>') || word.starts_with("2>") || word.starts_with('<');
        found.push(command[at..].iter().take_while(|word| !is_redirection(word)).cloned().collect());
    }
    found
}

/// Returns the error of the program's command line for these arguments, if it refuses them.
fn refused(arguments: &[String]) -> Option<ErrorKind> {
    let error = Cli::command().try_get_matches_from(arguments).err()?;
    let is_value =
        |word: &&String| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || "-._:/".contains(c));
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        // A word in capitals stands for a value.
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if arguments.iter().any(|word| is_value(&word)) => {
            None
        }
        kind => Some(kind),
    }
}

#[test]
fn every_block_of_commands_is_run_or_says_why_not() {
    let mut faults = Vec::new();
    for page in page::for_users() {
        for block in page.blocks() {
            let place = format!("{}:{}", page.path, block.line);
            match mark(&block) {
                Err(why) => faults.push(format!("{place}: {why}")),
                Ok(None) => {}
                Ok(Some(_)) => {
                    for line in block.code.replace("\\\n", " ").lines() {
                        for arguments in invocations(line) {
                            let why = refused(&arguments)
                                .map(|kind| format!("{place}: {kind:?}: {}", arguments.join(" ")));
                            faults.extend(why);
                        }
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A command in a sentence may be a part of one, but names no option and no command that is not there.
#[test]
fn commands_in_sentences_name_what_is_there() {
    let mut faults = Vec::new();
    for page in page::for_users() {
        for (code, line) in page.inline_code() {
            for arguments in invocations(&code) {
                let unknown = refused(&arguments).filter(|kind| {
                    matches!(
                        kind,
                        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand | ErrorKind::ArgumentConflict
                    )
                });
                faults.extend(unknown.map(|kind| format!("{}:{line}: {kind:?}: {code}", page.path)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn commands_are_found_in_lines_of_shell() {
    let found = |line: &str| invocations(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(found("sudo ksmith status | less  # figures"), ["ksmith status"]);
    assert_eq!(found("A=1 ksmith guests > file && ksmith top"), ["ksmith guests", "ksmith top"]);
    assert_eq!(found("mpirun -n 8 ksmith run -- ./solver"), ["ksmith run -- ./solver"]);
    assert!(found("systemctl restart ksmith").is_empty());
    let refused = |line: &str| refused(&invocations(line)[0]);
    assert_eq!(refused("ksmith status --nonsense"), Some(ErrorKind::UnknownArgument));
    assert_eq!(refused("ksmith nonsense"), Some(ErrorKind::InvalidSubcommand));
    assert_eq!(refused("ksmith take web nonsense"), Some(ErrorKind::ValueValidation));
    assert_eq!(refused("ksmith take GUEST SIZE"), None);
}

#[test]
fn a_block_without_a_mark_is_a_fault() {
    let marked = |info: Option<&str>| {
        let info = info.map(str::to_owned);
        mark(&DocBlock { info, code: String::new(), line: 1, start: 0, end: 0 })
    };
    assert_eq!(marked(Some("sh,run")), Ok(Some(BlockMark::Run(0))));
    assert_eq!(marked(Some("sh,run=3")), Ok(Some(BlockMark::Run(3))));
    assert_eq!(marked(Some("sh,not-run=needs-root")), Ok(Some(BlockMark::NotRun)));
    assert_eq!(marked(Some("toml")), Ok(None));
    for bad in [None, Some("sh"), Some("bash"), Some("sh,not-run"), Some("sh,not-run=laziness"), Some("sh,run=x")] {
        assert!(marked(bad).is_err(), "{bad:?}");
    }
}
