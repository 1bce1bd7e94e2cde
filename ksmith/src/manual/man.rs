//! The manual as man pages.

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::commands::CommandPage;
use super::files;
use super::settings::{PackagedSettings, SettingsKey};
use crate::exit::CODES;

/// The manual's title, in the middle of each page's header.
const MANUAL: &str = "ksmith";

/// Returns the man page of a command.
pub fn of_command(page: &CommandPage<'_>, all: &[CommandPage<'_>], date: &str) -> Vec<u8> {
    let mut text = Vec::new();
    // Writing into memory does not fail.
    let _ = render(page, all, date, &mut text);
    text
}

fn render(page: &CommandPage<'_>, all: &[CommandPage<'_>], date: &str, into: &mut Vec<u8>) -> std::io::Result<()> {
    let source = format!("ksmith {}", env!("CARGO_PKG_VERSION"));
    let command = page.command.clone().display_name(page.name()).bin_name(page.call());
    let man = Man::new(command).title(page.name()).date(date).source(source).manual(MANUAL);
    man.render_title(into)?;
    man.render_name_section(into)?;
    man.render_synopsis_section(into)?;
    man.render_description_section(into)?;
    man.render_options_section(into)?;
    let mut roff = Roff::new();
    let inner = children(page, all);
    if !inner.is_empty() {
        roff.control("SH", ["COMMANDS"]);
    }
    for page in inner {
        entry(&mut roff, &format!("{}(1)", page.name()), &about(page));
    }
    add_examples(&mut roff, page);
    let files = files::command_files(&page.words);
    if !files.is_empty() {
        roff.control("SH", ["FILES"]);
    }
    for (path, meaning) in files {
        roff.control("TP", []).text([italic(*path)]).text([roman(*meaning)]);
    }
    roff.control("SH", ["EXIT STATUS"]);
    for code in CODES {
        entry(&mut roff, &code.to_string(), code.meaning);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut seen = related(page, all);
    seen.push("ksmith.toml(5)".to_owned());
    roff.text([roman(seen.join(", "))]);
    roff.to_writer(into)
}

/// Returns the first line of a command's help.
fn about(page: &CommandPage<'_>) -> String {
    page.command.get_about().map(ToString::to_string).unwrap_or_default()
}

/// Returns the commands directly below this one.
fn children<'a, 'b>(page: &CommandPage<'_>, all: &'b [CommandPage<'a>]) -> Vec<&'b CommandPage<'a>> {
    let depth = page.words.split_whitespace().count() + 1;
    let is_below = |words: &str| {
        words.split_whitespace().count() == depth
            && words.strip_prefix(&page.words).is_some_and(|rest| page.words.is_empty() || rest.starts_with(' '))
    };
    all.iter().filter(|other| is_below(&other.words)).collect()
}

/// Returns the names of the pages above this one and beside it.
fn related(page: &CommandPage<'_>, all: &[CommandPage<'_>]) -> Vec<String> {
    let above = page.words.rsplit_once(' ').map_or("", |(above, _)| above);
    let is_related = |other: &&CommandPage<'_>| match page.words.as_str() {
        "" => false,
        _ => other.words != page.words && (other.words.is_empty() || is_beside(above, &other.words)),
    };
    all.iter().filter(is_related).map(|other| format!("{}(1)", other.name())).collect()
}

/// Returns true if a command is `above` or below it. The commands of the program are too many to name on each page.
fn is_beside(above: &str, words: &str) -> bool {
    !above.is_empty() && (words == above || words.starts_with(&format!("{above} ")))
}

fn add_examples(roff: &mut Roff, page: &CommandPage<'_>) {
    if page.examples().is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]);
    for (line, meaning) in page.examples() {
        entry(roff, line, meaning);
    }
}

/// Adds a term in bold, with its meaning indented below it.
fn entry(roff: &mut Roff, term: &str, meaning: &str) {
    roff.control("TP", []).text([bold(term)]).text([roman(meaning)]);
}

/// Returns the man page of ksmith.toml.
pub fn of_settings(settings: &PackagedSettings, date: &str) -> Vec<u8> {
    let mut roff = Roff::new();
    roff.control("TH", ["ksmith.toml", "5", date, concat!("ksmith ", env!("CARGO_PKG_VERSION")), MANUAL]);
    roff.control("SH", ["NAME"]);
    roff.text([roman("ksmith.toml - configuration of ksmith")]);
    roff.control("SH", ["SYNOPSIS"]).text([italic("/etc/ksmith.toml")]);
    roff.control("SH", ["DESCRIPTION"]).text([roman(&settings.preface)]);
    for table in &settings.tables {
        roff.control("SS", [table.header.as_str()]);
        if !table.meaning.is_empty() {
            roff.text([roman(&table.meaning)]);
        }
        for key in &table.keys {
            roff.control("TP", []).text([bold(&key.name), roman(format!(" {}", default_of(key)))]);
            roff.text([roman(&key.meaning)]);
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.text([roman("ksmd may use half a CPU, and guests give memory when the host runs short:")]);
    roff.control("PP", []).control("EX", []);
    for line in ["[limits]", "max_cpu = \"50%\"", "", "[balance]", "enabled = true"] {
        roff.text([roman(line)]);
    }
    roff.control("EE", []);
    roff.control("SH", ["FILES"]);
    roff.control("TP", []).text([italic("/etc/ksmith.toml")]);
    roff.text([roman("The configuration. Packages install one that says the defaults.")]);
    roff.control("SH", ["SEE ALSO"]).text([roman("ksmith(1), ksmith-config(1), ksmith-daemon(1)")]);
    roff.to_roff().into_bytes()
}

fn default_of(key: &SettingsKey) -> String {
    if key.is_default { format!("= {}", key.value) } else { format!("(not set; such as {})", key.value) }
}
