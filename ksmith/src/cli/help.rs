//! The help of the program: its commands in groups, and examples at the end of each command's help.

use std::fmt::Write;

use clap::Command;
use clap::builder::{StyledStr, Styles};

use crate::manual::command_examples;
use crate::show::wrap::wrap_text;

/// A heading with its commands.
type CommandGroup = (&'static str, &'static [&'static str]);

/// The commands by their purpose. A test names one that is missing.
const GROUPS: [CommandGroup; 5] = [
    ("Look", &["overview", "status", "guests", "top", "history", "report", "doctor", "estimate"]),
    ("Set up", &["demo", "setup", "daemon", "serve", "metrics", "config", "schema", "completions"]),
    ("Guests", &["run", "job", "optin", "merge", "fold", "balance", "hold", "give", "take"]),
    ("Kernel", &["scan", "pause", "resume", "enable", "disable", "set", "unmerge", "restore"]),
    ("Lab and fleet", &["lab", "sim", "sketch"]),
];

/// Columns of the list of commands, which fit any terminal.
const WIDTH: usize = 80;

/// Columns of a command's name, with the gap behind it.
const NAME: usize = 13;

/// Returns the command line with its help.
pub fn with_help(program: Command) -> Command {
    let template = write_template(&program);
    with_examples(program, "").help_template(template)
}

/// Adds examples to the help of each command below this one.
fn with_examples(command: Command, words: &str) -> Command {
    command.mut_subcommands(|inner| {
        let words = format!("{words} {}", inner.get_name()).trim_start().to_owned();
        let examples = format_examples(&words);
        let inner = with_examples(inner, &words);
        if examples.is_empty() { inner } else { inner.after_help(examples) }
    })
}

fn format_examples(words: &str) -> String {
    let examples = command_examples(words);
    let lines = examples.iter().map(|(line, meaning)| format!("  {line}\n      {meaning}"));
    let heading = (!examples.is_empty()).then(|| "Examples:".to_owned());
    heading.into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

/// Returns the template of the program's help. clap itself lists commands under one heading only.
fn write_template(program: &Command) -> StyledStr {
    let styles = Styles::styled();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = "{before-help}{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    // A String takes all that is written to it.
    for (heading, names) in GROUPS {
        let _ = write!(text, "\n{header}{heading}:{header:#}\n");
        for name in names {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let lines = wrap_text(&format!("  {name:<NAME$}{about}"), WIDTH).join("\n");
            let _ = writeln!(text, "{}", lines.replacen(name, &format!("{literal}{name}{literal:#}"), 1));
        }
    }
    let _ = write!(text, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    text.into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::super::Cli;
    use super::*;

    /// Returns the help of the command with these words, as `--help` prints it.
    fn help(words: &[&str]) -> String {
        let mut command = with_help(Cli::command());
        command.build();
        let mut inner = &mut command;
        for word in words {
            inner = inner.find_subcommand_mut(word).unwrap();
        }
        inner.render_long_help().to_string()
    }

    #[test]
    fn each_command_is_in_one_group() {
        let program = Cli::command();
        let commands: BTreeSet<&str> =
            program.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        listed.sort_unstable();
        assert_eq!(listed, commands.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn the_groups_stand_under_their_headings_and_fit_any_terminal() {
        let help = help(&[]);
        let at =
            |heading: &str| help.find(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("{heading}: {help}"));
        let places = GROUPS.map(|(heading, _)| at(heading));
        assert!(places.is_sorted() && places[4] < at("Options"), "{help}");
        assert!(!help.contains("\nCommands:\n"), "{help}");
        let list = &help[places[0]..at("Options")];
        assert!(list.lines().all(|line| line.chars().count() <= WIDTH), "{list}");
        assert!(list.contains("\n  guests       Show each guest by name"), "{list}");
    }

    #[test]
    fn options_of_every_command_have_a_heading_of_their_own() {
        let help = help(&["guests"]);
        let (own, global) = help.split_once("\nGlobal options:\n").unwrap();
        let lists = |part: &str, option: &str| {
            let begins = [format!("      {option}"), format!("  -v, {option}")];
            part.lines().any(|line| begins.iter().any(|begin| line.starts_with(begin)))
        };
        for option in ["--json", "--root", "--config", "--verbose", "--color"] {
            assert!(!lists(own, option) && lists(global, option), "{option}: {help}");
        }
        assert!(own.contains("  --sort <FIGURE>") && !global.contains("--sort"), "{help}");
    }

    #[test]
    fn examples_end_the_help_of_a_command() {
        for words in [&["history"][..], &["config", "check"]] {
            let help = help(words);
            let (_, examples) = help.split_once("\nExamples:\n").unwrap_or_else(|| panic!("{help}"));
            for (line, _) in command_examples(&words.join(" ")) {
                assert!(examples.contains(&format!("  {line}\n")), "{line}: {help}");
            }
        }
    }

    /// Names of options that mean one thing in every command, each with names that would mean the same.
    const SAME: [(&str, &[&str]); 5] = [
        ("every", &["watch", "interval", "period", "refresh"]),
        ("limit", &["rows", "count", "max-guests", "top", "lines"]),
        ("out", &["output", "to", "write"]),
        ("file", &["input", "history-file", "from", "history-db"]),
        ("resolution", &["tier", "step", "granularity"]),
    ];

    /// Returns the long options of a command and of all below it.
    fn options(command: &Command) -> Vec<String> {
        let own = command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned));
        own.chain(command.get_subcommands().flat_map(options)).collect()
    }

    #[test]
    fn one_thing_has_one_name_in_every_command() {
        let options = options(&Cli::command());
        for (name, others) in SAME {
            assert!(options.iter().any(|option| option == name), "no command has --{name}");
            for other in others {
                assert!(!options.iter().any(|option| option == other), "--{other} is --{name}");
            }
        }
    }
}
