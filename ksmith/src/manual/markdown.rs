//! The manual as pages of the reference.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

use super::commands::CommandPage;
use super::settings::{PackagedSettings, SettingsKey};
use crate::exit::CODES;

const GENERATED: &str = "This page is generated: `cargo run -p ksmith -- manual --dir target/manual && cp target/manual/reference/*.md \
                         docs/reference/`.";

/// Returns the reference of all commands.
pub fn of_commands(pages: &[CommandPage<'_>]) -> String {
    let mut text = format!(
        "# Commands of ksmith\n\nEach command has a man page, such as ksmith-status(1), and explains itself with `--help`. {GENERATED}\n"
    );
    for page in pages {
        match page.words.as_str() {
            "" => program(&mut text, page),
            _ => command(&mut text, page),
        }
    }
    text
}

fn program(text: &mut String, page: &CommandPage<'_>) {
    text.push_str("\n## Options of every command\n\n");
    arguments(text, page);
    text.push_str("\n## Exit codes\n\n| code | meaning |\n|---|---|\n");
    for code in CODES {
        let _ = writeln!(text, "| {code} | {} |", code.meaning);
    }
}

fn command(text: &mut String, page: &CommandPage<'_>) {
    let _ = write!(text, "\n## {}\n\n", page.call());
    let about = page.command.get_long_about().or_else(|| page.command.get_about());
    let _ = writeln!(text, "{}", about.map(|about| prose(&about.to_string())).unwrap_or_default());
    if page.is_group() {
        return;
    }
    let _ = write!(text, "\n```text\n{}\n```\n\n", usage(page.command));
    arguments(text, page);
    if !page.examples().is_empty() {
        text.push_str("\nExamples:\n\n");
    }
    for (line, meaning) in page.examples() {
        let _ = writeln!(text, "* `{line}`: {meaning}");
    }
}

/// Returns the usage in one line.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>().join(" ")
}

fn arguments(text: &mut String, page: &CommandPage<'_>) {
    let mut rows = page.own().map(row).peekable();
    if rows.peek().is_some() {
        text.push_str("| argument | meaning |\n|---|---|\n");
    }
    rows.for_each(|row| text.push_str(&row));
}

fn row(argument: &Arg) -> String {
    let help =
        argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = prose(&help).replace("\n\n", " ").replace('\n', " ").replace('|', "\\|");
    if !meaning.is_empty() && !meaning.ends_with('.') {
        meaning.push('.');
    }
    let takes_value = matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    if takes_value && !argument.is_hide_possible_values_set() {
        for value in argument.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
            let help = value.get_help().map(|help| format!(": {}", prose(&help.to_string()))).unwrap_or_default();
            let _ = write!(meaning, " `{}`{help};", value.get_name());
        }
        if let Some(left) = meaning.strip_suffix(';') {
            meaning = format!("{left}.");
        }
    }
    let default: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if takes_value && !default.is_empty() && !argument.is_hide_default_value_set() {
        let _ = write!(meaning, " Default: `{}`.", default.join(" "));
    }
    format!("| `{}` | {} |\n", spelled(argument).replace('|', "\\|"), meaning.trim())
}

/// Returns an argument as it is written: `-o, --out <FILE>`.
fn spelled(argument: &Arg) -> String {
    let names = argument
        .get_value_names()
        .map(|names| names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" "));
    let is_optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
    let value = match argument.get_action() {
        ArgAction::Set | ArgAction::Append => names.unwrap_or_else(|| format!("<{}>", argument.get_id())),
        _ => String::new(),
    };
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let name = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    match (name.as_str(), value.as_str()) {
        ("", value) => value.to_owned(),
        (name, "") => name.to_owned(),
        (name, value) if is_optional => format!("{name}[={value}]"),
        (name, value) => format!("{name} {value}"),
    }
}

/// Escapes text for Markdown, except between backticks, so that nothing is taken for HTML or a link.
fn prose(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => part.replace('<', "&lt;").replace('>', "&gt;").replace('*', "\\*").replace('[', "\\["),
        _ => format!("`{part}`"),
    });
    parts.collect()
}

/// Returns the reference of the configuration.
pub fn of_settings(settings: &PackagedSettings) -> String {
    let preface = prose(&settings.preface);
    let mut text = format!(
        "# Settings of ksmith in ksmith.toml\n\n{preface} ksmith.toml(5) has the same text as this page. {GENERATED}\n"
    );
    for table in &settings.tables {
        let _ = write!(text, "\n## {}\n", table.header.replace('[', "\\[").replace(']', "\\]"));
        if !table.meaning.is_empty() {
            let _ = write!(text, "\n{}\n", prose(&table.meaning));
        }
        if !table.keys.is_empty() {
            text.push_str("\n| key | default | meaning |\n|---|---|---|\n");
        }
        for key in &table.keys {
            let SettingsKey { name, value, is_default, meaning } = key;
            let default = if *is_default { format!("`{value}`") } else { format!("not set; such as `{value}`") };
            let _ = writeln!(text, "| `{name}` | {default} | {} |", prose(meaning).replace('|', "\\|"));
        }
    }
    text
}
