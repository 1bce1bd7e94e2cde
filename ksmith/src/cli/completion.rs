//! Candidates for the word that is being typed in a shell: commands, options, figures, settings, and the guests of
//! a running daemon.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, PathCompleter, ValueCompleter};
use clap_complete::{CompleteEnv, CompletionCandidate};
use ksmith_core::figures::GUEST;
use ksmith_core::knobs::Knob;
use ksmith_host::root::Root;
use ksmith_record::columns;
use ksmith_service::config::Config;
use ksmith_service::control::ControlClient;

use super::Cli;
use crate::manual::COMPLETION_VARIABLE;

/// The longest wait for the daemon, since a user waits meanwhile.
const PATIENCE: Duration = Duration::from_millis(200);

/// The greatest age of the guests, which the daemon lists once for all that ask.
const MOST_AGE: Duration = Duration::from_secs(10);

/// The longest name that is offered.
const LONGEST_NAME: usize = 100;

/// Answers the completion script of a shell. Returns false if none asks.
pub(super) fn answer_script() -> bool {
    // Every script puts `--` first. A variable that was left behind is no request.
    if env::args_os().nth(1).is_none_or(|word| word != "--") {
        return false;
    }
    let directory = env::current_dir().ok();
    let answer = CompleteEnv::with_factory(|| with_candidates(Cli::command()))
        .var(COMPLETION_VARIABLE)
        .try_complete(env::args_os(), directory.as_deref());
    // An error would stand in the middle of the line that is being typed.
    answer.unwrap_or(true)
}

/// Adds candidates to each argument of a command and of those below it.
fn with_candidates(command: Command) -> Command {
    command.mut_args(add_candidates).mut_subcommands(with_candidates)
}

/// Adds candidates to an argument, by the name of its value in the help.
fn add_candidates(argument: Arg) -> Arg {
    let name = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    match name.as_deref() {
        Some("GUEST") => argument.add(ArgValueCandidates::new(list_guests)),
        Some("GUEST|FILE") => argument.add(ArgValueCompleter::new(list_guests_and_files)),
        Some("FIGURE") => argument.add(ArgValueCandidates::new(list_figures)),
        Some("FIGURES") => argument.add(ArgValueCandidates::new(list_columns)),
        Some("NAME=VALUE") => argument.add(ArgValueCandidates::new(list_settings)),
        Some("DURATION") => argument.add(ArgValueCandidates::new(list_times)),
        _ if has_path(&argument) => argument.add(ArgValueCompleter::new(list_files)),
        _ => argument,
    }
}

/// Returns true if the value of an argument is a path.
fn has_path(argument: &Arg) -> bool {
    use ValueHint::{AnyPath, DirPath, ExecutablePath, FilePath};
    matches!(argument.get_value_hint(), AnyPath | DirPath | ExecutablePath | FilePath)
}

fn list_figures() -> Vec<CompletionCandidate> {
    let figures = GUEST.iter().map(|figure| figure.field);
    figures.map(|field| CompletionCandidate::new(field.name).help(Some(field.help.into()))).collect()
}

fn list_columns() -> Vec<CompletionCandidate> {
    let columns = columns::host().into_iter();
    columns.map(|column| CompletionCandidate::new(column.name).help(Some(column.field.help.into()))).collect()
}

fn list_settings() -> Vec<CompletionCandidate> {
    Knob::ALL.iter().map(|knob| CompletionCandidate::new(format!("{}=", knob.name()))).collect()
}

fn list_times() -> Vec<CompletionCandidate> {
    ["10min", "1h", "8h"].map(CompletionCandidate::new).into()
}

fn list_guests_and_files(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = list_guests();
    found.retain(|guest| guest.get_value().as_encoded_bytes().starts_with(typed.as_encoded_bytes()));
    found.extend(list_files(typed));
    found
}

/// Lists paths that a shell takes as one plain word: whoever may write to a directory chooses the names in it.
fn list_files(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mut found = PathCompleter::any().complete(typed);
    found.retain(|path| path.get_value().to_str().is_some_and(is_safe_path));
    found
}

/// Lists the names of a running daemon's guests; none if it does not answer in time.
fn list_guests() -> Vec<CompletionCandidate> {
    let (sender, answer) = mpsc::channel();
    // The process ends without waiting for the thread.
    thread::spawn(move || sender.send(query_guests()));
    let names = answer.recv_timeout(PATIENCE).ok().flatten().unwrap_or_default();
    names.into_iter().filter(|name| is_safe_word(name)).map(CompletionCandidate::new).collect()
}

/// Queries the daemon: root at its control socket, others at the read-only one.
fn query_guests() -> Option<BTreeSet<String>> {
    // A captured tree has no daemon.
    if named_value("--root").is_some() {
        return None;
    }
    let config = match named_value("--config") {
        Some(path) => Config::load_of(&Root::host(), Some(path.as_ref())).ok()?,
        None => Config::load_sound(&Root::host()),
    };
    let control = ControlClient::connect(&config.daemon.control_socket).map(|client| client.sharing(MOST_AGE));
    let mut client = control.or_else(|_| ControlClient::connect(&config.view.socket)).ok()?;
    Some(client.guests().ok()?.guests.into_iter().map(|guest| guest.name).collect())
}

/// Returns the value of an option on the line that is being typed.
fn named_value(option: &str) -> Option<OsString> {
    let mut words = env::args_os().skip(2);
    while let Some(word) = words.next() {
        if word == option {
            return words.next();
        }
        if let Some(value) = word.to_str().and_then(|word| word.strip_prefix(option)?.strip_prefix('=')) {
            return Some(value.into());
        }
    }
    None
}

/// Returns true if a shell takes the name as one plain word. Users choose names, and the shell puts what is offered
/// into root's command line as it is.
fn is_safe_word(name: &str) -> bool {
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('-') && name.chars().all(is_plain)
}

/// Returns true if a shell takes the path as one plain word. It may begin with the user's home.
fn is_safe_path(path: &str) -> bool {
    let path = path.strip_prefix("~/").unwrap_or(path);
    !path.starts_with('-') && path.chars().all(is_plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-+@%:/".contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_shell_would_take_for_more_than_a_word_is_left_out() {
        for name in ["web-1", "100", "ns/pod/app", "a.b_c@d:e+f%g"] {
            assert!(is_safe_word(name), "{name}");
        }
        for name in
            ["", "-rf", "a b", "a;reboot", "$(reboot)", "`reboot`", "a\nb", "a\u{b}b", "*", "~", "é", "a'b", "a&b"]
        {
            assert!(!is_safe_word(name), "{name:?}");
        }
        assert!(!is_safe_word(&"x".repeat(LONGEST_NAME + 1)));
    }

    #[test]
    fn a_file_whose_name_is_more_than_a_word_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["memory.vmem", "$(reboot)", "a b", "a;reboot"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let found = list_files(directory.path().join("").as_os_str());
        let found: Vec<_> = found.iter().map(|it| it.get_value().to_owned()).collect();
        assert_eq!(found, [directory.path().join("memory.vmem").into_os_string()]);
        let program = with_candidates(Cli::command());
        let config = program.get_arguments().find(|it| it.get_id() == "config").unwrap();
        assert!(config.get::<ArgValueCompleter>().is_some());
    }

    #[test]
    fn each_kind_of_value_has_its_candidates() {
        let program = with_candidates(Cli::command());
        let values = |command: &str, name: &str| {
            let argument = program.find_subcommand(command).unwrap().get_arguments().find(|it| it.get_id() == name);
            let found = argument.unwrap().get::<ArgValueCandidates>().unwrap().candidates();
            found.iter().map(|it| it.get_value().to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert!(values("guests", "sort").contains(&"saved_bytes".to_owned()));
        assert!(values("history", "figures").contains(&"full_scans".to_owned()));
        assert!(values("set", "settings").contains(&"pages_to_scan=".to_owned()));
        assert!(values("pause", "duration").contains(&"1h".to_owned()));
    }
}
