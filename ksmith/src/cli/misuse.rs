//! Messages for words that are no commands, but that people try.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The words that people try, and what to do instead.
const TRIED: &[(&[&str], &str)] = &[
    (&["start"], "`systemctl start ksmith` starts the daemon; `ksmith enable` switches KSM on by hand"),
    (
        &["stop", "kill"],
        "`systemctl stop ksmith` ends the daemon, `ksmith pause` parks ksmd for a time, and `ksmith disable` switches \
         KSM off where no daemon runs",
    ),
    (&["restart"], "`systemctl restart ksmith` restarts the daemon"),
    (&["reload"], "`systemctl reload ksmith` has the daemon read its configuration again"),
    (&["on"], "`ksmith merge on GUEST` switches merging of a guest on, `ksmith enable` KSM as a whole"),
    (&["off"], "`ksmith merge off GUEST` switches merging of a guest off, `ksmith disable` KSM as a whole"),
    (&["park", "suspend", "freeze"], "`ksmith pause` parks ksmd for a time"),
    (&["unpause", "continue", "unfreeze"], "`ksmith resume` ends a pause"),
    (&["list", "ls", "ps", "vms", "vm"], "`ksmith guests` lists the guests"),
    (
        &["show", "get"],
        "`ksmith status` shows KSM's settings and savings, `ksmith guests` the guests, and `ksmith config show` the \
         configuration",
    ),
    (
        &["stats", "stat", "info", "summary"],
        "`ksmith status` shows the figures of the host, `ksmith guests` those of each guest, and `ksmith metrics` all",
    ),
    (
        &["savings", "saved", "memory", "usage"],
        "`ksmith status` shows what the host saves, and `ksmith guests` what each guest does",
    ),
    (
        &["watch", "monitor", "tui"],
        "`ksmith top` shows the host live; `ksmith status --every 2` repeats the figures",
    ),
    (
        &["log", "logs", "events"],
        "`ksmith history` shows what was decided and why; `journalctl -u ksmith` shows the daemon's log",
    ),
    (
        &["init", "install", "configure"],
        "`ksmith setup` sets a host up, and `ksmith config check` checks the configuration",
    ),
    (&["uninstall", "remove"], "`ksmith setup --undo` undoes what `ksmith setup` has done"),
    (
        &["undo", "revert", "reset", "rollback", "clean"],
        "`ksmith restore` restores what a killed ksmith has changed, and `ksmith setup --undo` undoes a setup",
    ),
    (&["check", "diagnose", "why", "explain"], "`ksmith doctor` says why KSM saves less than it could"),
    (
        &["advise", "suggest", "recommend"],
        "`ksmith estimate` says what merging would save, and `ksmith doctor` what keeps memory from merging",
    ),
    (&["test", "try"], "`ksmith demo` merges the memory of four small guests, and undoes it"),
    (
        &["tune"],
        "`ksmith set` changes settings of the kernel, and `ksmith config show` shows those of the policies",
    ),
    (&["web", "ui", "gui", "dashboard", "server"], "`ksmith serve` serves the page and the metrics"),
    (
        &["bench", "benchmark"],
        "`ksmith lab run` compares policies on this kernel, `ksmith sim` on a simulated host",
    ),
    (&["version"], "`ksmith --version` prints the version"),
];

/// Returns the advice for a word that people try as a command; `None` for any other.
fn find_advice(word: &str) -> Option<&'static str> {
    TRIED.iter().find(|(words, _)| words.contains(&word)).map(|(_, advice)| *advice)
}

/// Returns the message for a word that is no command, but that people try; `None` for any other error.
pub(super) fn explain_command(error: &clap::Error) -> Option<String> {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let advice = find_advice(word.split_whitespace().last()?)?;
    Some(format!("error: there is no command '{word}': {advice}\n\nFor more information, try '--help'.\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    #[test]
    fn words_that_people_try_are_answered_by_what_there_is() {
        for (word, part) in [
            ("start", "`systemctl start ksmith`"),
            ("stop", "`ksmith pause`"),
            ("list", "`ksmith guests`"),
            ("ps", "`ksmith guests`"),
            ("show", "`ksmith config show`"),
            ("stats", "`ksmith metrics`"),
        ] {
            let error = Cli::command().try_get_matches_from(["ksmith", word]).unwrap_err();
            let said = explain_command(&error).unwrap_or_else(|| panic!("{word}: {error}"));
            assert!(said.starts_with(&format!("error: there is no command '{word}': ")), "{said}");
            assert!(said.contains(part), "{said}");
        }
        for arguments in [&["ksmith", "bogus"][..], &["ksmith", "status", "--nonsense"]] {
            let error = Cli::command().try_get_matches_from(arguments).unwrap_err();
            assert_eq!(explain_command(&error), None);
        }
    }

    #[test]
    fn no_word_is_a_command_and_each_advice_names_commands_that_there_are() {
        for (words, advice) in TRIED {
            for word in *words {
                assert!(Cli::command().find_subcommand(word).is_none(), "{word} is a command");
            }
            let commands: Vec<&str> = advice.split('`').skip(1).step_by(2).collect();
            assert!(!commands.is_empty(), "{advice}");
            for line in commands.into_iter().filter(|line| line.starts_with("ksmith")) {
                // `ksmith set` lacks its settings.
                let refused = Cli::command().try_get_matches_from(line.split(' ')).err().map(|error| error.kind());
                let is_fine = [None, Some(ErrorKind::DisplayVersion), Some(ErrorKind::MissingRequiredArgument)];
                assert!(is_fine.contains(&refused), "{line}: {refused:?}");
            }
        }
    }
}
