//! Every command in a page is marked as run or not, and names only what the program has.
//!
//! A block of commands has one of these words behind its fence. The blocks of the tutorial are run by `make tutorial-test`.
//!
//! | word | |
//! |---|---|
//! | `sh,run`, `sh,run=CODE` | run over a captured tree |
//! | `sh,run,host=NAME` | run over the tree of a platform, by its name in `cli/platform_hosts.rs` in small letters, joined by `-` |
//! | `sh,run-by=FILE`, `sh,run-by=FILE+NAME` | run by a test in `ksmith/tests/FILE.rs`; NAME tells blocks apart |
//! | `sh,run-in=SCRIPT` | run in a guest by `packaging/tests/SCRIPT`, which `make package-test` starts |
//! | `sh,not-run=REASON` | not run |

use std::fs;

use clap::CommandFactory;
use clap::error::ErrorKind;
use ksmith::cli::Cli;

use crate::page::{self, DocBlock};

/// The blocks outside of the tutorial that no test runs, at most. It only falls.
const NOT_RUN: usize = 51;

/// Pages of which each command is run.
const WHOLLY_RUN: [&str; 4] = [
    "docs/how-to/libvirt.md",
    "docs/how-to/plain-qemu.md",
    "docs/how-to/platforms.md",
    "docs/how-to/user-mode-linux.md",
];

/// Reasons for not running a block of commands by a test.
const REASONS: [&str; 12] = [
    "the-tutorial",
    "changes-the-host",
    "needs-a-guest",
    "needs-root",
    "needs-systemd",
    "needs-proxmox",
    "needs-kubernetes",
    "needs-slurm",
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
    /// This test runs it over a captured tree, or the tree of a platform, and expects this exit code.
    Run { code: i32, host: Option<String> },
    /// A test in this file below `ksmith/tests/` runs it.
    RunBy(String),
    /// This script below `packaging/tests/` runs it in a guest.
    RunIn(String),
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
    let run = |code, host: Option<&str>| Ok(Some(BlockMark::Run { code, host: host.map(str::to_owned) }));
    match mark.split_once('=') {
        None if mark == "run" => run(0, None),
        Some(("run", code)) => {
            code.parse().map_or_else(|_| Err(format!("no code: {code}")), |code| run(code, None))
        }
        Some(("run,host", host)) => run(0, Some(host)),
        Some(("run-by", file)) => {
            Ok(Some(BlockMark::RunBy(file.split_once('+').map_or(file, |(file, _)| file).to_owned())))
        }
        Some(("run-in", script)) => Ok(Some(BlockMark::RunIn(script.to_owned()))),
        Some(("not-run", reason)) if REASONS.contains(&reason) => Ok(Some(BlockMark::NotRun)),
        _ => Err(format!(
            "{info:?}: sh,run, sh,run-by=FILE, sh,run-in=SCRIPT or sh,not-run=REASON, one of {REASONS:?}"
        )),
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

/// A test that runs a block takes it by its word and page, so both stand in its file.
#[test]
fn each_test_that_is_said_to_run_a_block_takes_it() {
    let mut faults = Vec::new();
    for page in page::for_users() {
        let name = page.path.rsplit('/').next().unwrap();
        for block in page.blocks() {
            let Ok(Some(BlockMark::RunBy(file))) = mark(&block) else { continue };
            let path = page::workspace().join("ksmith/tests").join(format!("{file}.rs"));
            let test = fs::read_to_string(&path).unwrap_or_default();
            let word = block.info.unwrap();
            for text in ["#[test]", &format!("\"{name}\""), &format!("\"{word}\"")] {
                if !test.contains(text) {
                    faults.push(format!("{}:{}: {} has no {text}", page.path, block.line, path.display()));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A script that runs a block takes it by its word and page, and is one of those of `make package-test`.
#[test]
fn each_script_that_is_said_to_run_a_block_takes_it() {
    let started = fs::read_to_string(page::workspace().join("tools/package-test")).unwrap();
    let (mut faults, mut found) = (Vec::new(), 0);
    for page in page::for_users() {
        for block in page.blocks() {
            let Ok(Some(BlockMark::RunIn(script))) = mark(&block) else { continue };
            found += 1;
            let path = format!("packaging/tests/{script}");
            let text = fs::read_to_string(page::workspace().join(&path)).unwrap_or_default();
            let word = block.info.unwrap();
            let takes_it = text.contains(&page.path) && text.contains(&format!("```{word}"));
            if !takes_it || !started.lines().any(|line| line == path) {
                faults.push(format!("{}:{}: {path} does not run it", page.path, block.line));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(found > 0, "no block is marked as run in a guest");
}

#[test]
fn blocks_that_no_test_runs_become_no_more() {
    let mut not_run = Vec::new();
    for page in page::for_users().into_iter().filter(|page| page.path != "docs/tutorial.md") {
        let blocks = page.blocks();
        let its = blocks.iter().filter(|block| mark(block) == Ok(Some(BlockMark::NotRun)));
        not_run.extend(its.map(|block| format!("{}:{}", page.path, block.line)));
    }
    let forbidden = |place: &&String| WHOLLY_RUN.iter().any(|page| place.starts_with(page));
    assert_eq!(not_run.iter().find(forbidden), None, "each command of this page is to be run");
    assert_eq!(not_run.len(), NOT_RUN, "NOT_RUN is the number of these blocks, and only falls: {not_run:#?}");
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
    let run = |code, host: Option<&str>| Ok(Some(BlockMark::Run { code, host: host.map(str::to_owned) }));
    assert_eq!(marked(Some("sh,run")), run(0, None));
    assert_eq!(marked(Some("sh,run=3")), run(3, None));
    assert_eq!(marked(Some("sh,run,host=nova")), run(0, Some("nova")));
    for word in ["sh,run-by=live/guests", "sh,run-by=live/guests+libvirt"] {
        assert_eq!(marked(Some(word)), Ok(Some(BlockMark::RunBy("live/guests".to_owned()))));
    }
    assert_eq!(marked(Some("sh,run-in=guest")), Ok(Some(BlockMark::RunIn("guest".to_owned()))));
    assert_eq!(marked(Some("sh,not-run=needs-root")), Ok(Some(BlockMark::NotRun)));
    assert_eq!(marked(Some("toml")), Ok(None));
    for bad in [None, Some("sh"), Some("bash"), Some("sh,not-run"), Some("sh,not-run=laziness"), Some("sh,run=x")] {
        assert!(marked(bad).is_err(), "{bad:?}");
    }
}
