//! The keys of `[balance]` in the packaged configuration, from their declarations.

use std::fs;

use ksmith_core::balance::{BalanceConfig, ConfigKey, SqueezeConfig};
use toml::{Table, Value};

use crate::generated::compare;
use crate::page;

const FILE: &str = "packaging/ksmith.toml";

/// The column of the comments behind shorter keys.
const COLUMN: usize = 25;

/// A meaning as a comment: in lower case, without a full stop.
fn comment(meaning: &str) -> String {
    let text = meaning.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.strip_suffix('.').unwrap_or(&text);
    let is_name = text.chars().take(2).all(char::is_uppercase);
    let first =
        text.chars().next().filter(|_| !is_name).map(|first| (first.to_ascii_lowercase(), first.len_utf8()));
    first.map_or_else(|| text.to_owned(), |(first, length)| format!("{first}{}", &text[length..]))
}

/// The lines of a table's keys with their defaults. Tables below it stand elsewhere.
fn lines(keys: &[ConfigKey], defaults: &Table) -> String {
    let line = |key: &ConfigKey| {
        let value = defaults.get(key.name).filter(|value| !matches!(value, Value::Table(_)))?;
        let code = format!("{} = {value}", key.name);
        let gap = if code.len() < COLUMN { COLUMN - code.len() } else { 3 };
        Some(format!("{code}{:gap$}# {}\n", "", comment(key.meaning)))
    };
    keys.iter().filter_map(line).collect()
}

/// The file with these lines as a table's keys, up to the empty line behind the table.
fn with_keys(file: &str, header: &str, lines: &str) -> String {
    let start = file.find(&format!("\n{header} ")).unwrap_or_else(|| panic!("{FILE} has no table {header}")) + 1;
    let keys = start + file[start..].find('\n').unwrap() + 1;
    let end = keys + file[keys..].find("\n\n").unwrap() + 1;
    format!("{}{lines}{}", &file[..keys], &file[end..])
}

#[test]
fn the_keys_of_balance_in_the_packaged_file_are_fresh() {
    let file = fs::read_to_string(page::workspace().join(FILE)).unwrap();
    let balance = lines(BalanceConfig::KEYS, &Table::try_from(BalanceConfig::default()).unwrap());
    let squeeze = lines(SqueezeConfig::KEYS, &Table::try_from(SqueezeConfig::default()).unwrap());
    let new = with_keys(&with_keys(&file, "[balance]", &balance), "[balance.squeeze]", &squeeze);
    compare(FILE, &new);
    for line in balance.lines().chain(squeeze.lines()) {
        assert!(line.len() <= 130, "say less in the key's documentation: {line}");
    }
}

#[test]
fn a_key_has_its_meaning_as_a_comment() {
    assert_eq!(comment(" Memory is taken.\n Always."), "memory is taken. Always");
    assert_eq!(comment(" PSI of a guest."), "PSI of a guest");
    let defaults = "a = 1\nb = { c = 2 }".parse().unwrap();
    let keys = ["a", "b"].map(|name| ConfigKey { name, meaning: " It." });
    let file = "[x]  # x\nold = 2\n\n[y]\n";
    let [head, rest] = [format!("\n{file}"), lines(&keys, &defaults)];
    assert_eq!(with_keys(&head, "[x]", &rest), format!("\n[x]  # x\na = 1{:20}# it\n\n[y]\n", ""));
}
