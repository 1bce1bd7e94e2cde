use clap::CommandFactory;
use ksmith_service::config::Config;
use serde::Deserialize;

use super::examples::{EXAMPLES, command_examples};
use super::*;
use crate::cli::Cli;

/// Returns the keys of a table, from TOML's error on an unknown key; `None` if this is no table with fixed keys.
fn keys(header: &str) -> Option<Vec<String>> {
    let error = toml::from_str::<Config>(&format!("{header}\nno-such-key = 1")).err()?.to_string();
    let known = error.split_once("unknown field `no-such-key`, expected ")?.1;
    Some(known.split('`').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Collects the headers of all tables of the configuration, with their keys.
fn tables(name: &str, into: &mut Vec<(String, Vec<String>)>) {
    let written = [format!("[{name}]"), format!("[[{name}]]")];
    let Some((header, keys)) = written.into_iter().find_map(|header| keys(&header).map(|keys| (header, keys)))
    else {
        return;
    };
    for key in &keys {
        tables(&format!("{name}.{key}"), into);
    }
    into.push((header, keys));
}

#[test]
fn every_key_of_the_configuration_is_in_the_packaged_file_with_its_meaning() {
    let settings = PackagedSettings::packaged().unwrap();
    let roots = keys("").unwrap();
    assert!(roots.contains(&"balance".to_owned()), "{roots:?}");
    let mut known = Vec::new();
    roots.iter().for_each(|root| tables(root, &mut known));
    assert!(known.iter().any(|(header, _)| header == "[[domains.rule]]"), "{known:?}");
    for (header, keys) in &known {
        let table = settings.tables.iter().find(|table| table.header == *header);
        let table = table.unwrap_or_else(|| panic!("packaging/ksmith.toml has no table {header}"));
        for key in keys {
            let is_table = settings.tables.iter().any(|other| other.name() == format!("{}.{key}", table.name()));
            let listed = table.keys.iter().find(|listed| listed.name == *key);
            assert!(is_table || listed.is_some(), "packaging/ksmith.toml does not list {header} {key}");
            assert!(listed.is_none_or(|listed| !listed.meaning.is_empty()), "{header} {key} has no meaning");
        }
    }
}

#[test]
fn every_value_in_the_packaged_file_is_one_that_its_key_takes() {
    #[derive(Deserialize)]
    struct AnyTable {}
    for table in &PackagedSettings::packaged().unwrap().tables {
        for key in &table.keys {
            let text = format!("{}\n{} = {}", table.header, key.name, key.value);
            toml::from_str::<AnyTable>(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            // A rule of balance must name a guest, and one of the domains its domain: none stands alone.
            if !table.header.starts_with("[[") {
                toml::from_str::<Config>(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            }
        }
    }
}

#[test]
fn a_line_that_is_neither_a_table_nor_a_key_is_refused() {
    let read = |text: &str| PackagedSettings::read(text);
    assert!(read("[limits]\nmax_cpu").unwrap_err().to_string().contains("line 2"));
    assert!(read("[limits]\n# a comment of its own").is_err());
    let settings =
        read("# first\n# second\n[a] # one\n  # table\nk = \"#\" # it\n   # goes on\n# e = 2 # none").unwrap();
    assert_eq!(settings.preface, "first second");
    let [table] = &settings.tables[..] else { panic!("{settings:?}") };
    assert_eq!((table.header.as_str(), table.meaning.as_str()), ("[a]", "one table"));
    let keys: Vec<_> =
        table.keys.iter().map(|key| (&*key.name, &*key.value, key.is_default, &*key.meaning)).collect();
    assert_eq!(keys, [("k", "\"#\"", true, "it goes on"), ("e", "2", false, "none")]);
}

#[test]
fn every_command_has_examples_and_the_command_line_takes_each() {
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    let pages = pages(&program);
    for page in pages.iter().filter(|page| !page.is_group()) {
        let count = page.examples().len();
        assert!((2..=3).contains(&count), "{} has {count} examples: ksmith/src/manual/examples.rs", page.call());
    }
    for (words, examples) in EXAMPLES {
        assert!(pages.iter().any(|page| page.words == *words), "there is no command {words:?}");
        for (line, meaning) in *examples {
            assert!(meaning.ends_with('.'), "{line}: {meaning}");
            if line.starts_with("ksmith") {
                let read = Cli::command().try_get_matches_from(line.split_whitespace());
                assert!(read.is_ok(), "{line}: {}", read.unwrap_err());
            }
        }
    }
}

#[test]
fn the_example_of_history_tells_the_default_of_since() {
    let program = Cli::command();
    let history = program.find_subcommand("history").unwrap();
    let since = history.get_arguments().find(|argument| argument.get_id() == "since").unwrap();
    assert_eq!(since.get_default_values(), ["2h"]);
    assert_eq!(command_examples("history")[0], ("ksmith history", "What happened in the last two hours."));
}

#[test]
fn each_page_has_the_sections_that_a_reader_looks_for() {
    let files = manual(Cli::command(), "2026-11-24").unwrap();
    let text = |path: &str| {
        let file = files.iter().find(|file| file.path.as_os_str() == path).unwrap_or_else(|| panic!("no {path}"));
        String::from_utf8(file.content.clone()).unwrap()
    };
    for page in
        ["ksmith", "ksmith-estimate", "ksmith-daemon", "ksmith-lab-run", "ksmith-config-check", "ksmith-serve"]
    {
        let page = text(&format!("man1/{page}.1"));
        for section in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "FILES", "\"EXIT STATUS\"", "\"SEE ALSO\""]
        {
            assert!(page.contains(&format!(".SH {section}\n")), "{section} is not in\n{page}");
        }
    }
    let settings = text("man5/ksmith.toml.5");
    for key in ["price_mib_per_cpu_second", "passes_per_hour", "ceiling_mib"] {
        assert!(settings.contains(&format!("\\fB{key}\\fR")), "{key}");
    }
    assert!(!files.iter().any(|file| file.path.to_string_lossy().contains("memory-guest")));
}
