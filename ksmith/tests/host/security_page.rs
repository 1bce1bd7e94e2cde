//! The threat model: each line about an actor or an attack names what shows it, and what it names is there.

use std::fs;
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/explanation/threat-model.md");

/// The rows of the tables under a heading, without the headings of the columns.
fn rows(heading: &str) -> Vec<&'static str> {
    let section = PAGE.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    let lines: Vec<&str> = section.lines().collect();
    let is_body = |at: usize| lines[at].starts_with('|') && at > 1 && lines[at - 1].starts_with('|');
    (0..lines.len()).filter(|at| is_body(*at) && !lines[*at].starts_with("|---")).map(|at| lines[at]).collect()
}

/// Names of tests in a text: identifiers in backquotes, of several words.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |word: &&str| {
        word.matches('_').count() > 3
            && word.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    text.split('`').skip(1).step_by(2).filter(is_name)
}

#[test]
fn each_row_names_its_test() {
    for heading in ["What each actor may cause", "Attacks"] {
        let rows = rows(heading);
        assert!(!rows.is_empty(), "{heading}");
        for row in rows {
            let is_shown_in_a_guest =
                ["`make guest-unit`", "`make package-test`"].iter().any(|make| row.contains(make));
            assert!(named(row).next().is_some() || is_shown_in_a_guest, "{row}");
        }
    }
}

#[test]
fn the_tests_that_are_named_exist() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let listed = Command::new("git").args(["ls-files", "*.rs"]).current_dir(root).output().unwrap();
    let files = String::from_utf8(listed.stdout).unwrap();
    let sources: String = files.lines().filter_map(|file| fs::read_to_string(root.join(file)).ok()).collect();
    let missing: Vec<&str> = named(PAGE).filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no such test: {missing:?}");
    assert!(named(PAGE).count() > 20);
}
