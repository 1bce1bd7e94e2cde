//! The bounds on the length of what users read.

use crate::page;

/// Words of all pages that are written by hand for users, README.md and blocks of code apart.
const WORDS: usize = 12_000;
/// Words of all pages for developers and of all measurements, as `wc -w` counts them.
const WORDS_FOR_DEVELOPERS: usize = 45_000;
/// Lines of README.md.
const LINES: usize = 80;

#[test]
fn the_pages_for_users_stay_short() {
    let pages = page::for_users();
    let counted: Vec<(usize, &str)> = pages
        .iter()
        .filter(|page| page.path != "README.md")
        .map(|page| (page.words(), page.path.as_str()))
        .collect();
    let total: usize = counted.iter().map(|(words, _)| words).sum();
    assert!(total <= WORDS, "{total} words, {WORDS} at most: {counted:#?}");
    assert!(total > 5_000, "the pages were not found: {total} words");
}

#[test]
fn the_pages_for_developers_stay_within_their_limit() {
    let is_counted = |path: &str| path.starts_with("docs/internals/") || path.starts_with("docs/measurements/");
    let counted: Vec<(usize, String)> = page::all()
        .into_iter()
        .filter(|page| is_counted(&page.path))
        .map(|page| (page.text.split_whitespace().count(), page.path))
        .collect();
    let total: usize = counted.iter().map(|(words, _)| words).sum();
    assert!(total <= WORDS_FOR_DEVELOPERS, "{total} words, {WORDS_FOR_DEVELOPERS} at most: {counted:#?}");
}

#[test]
fn the_readme_is_short() {
    let readme = page::all().into_iter().find(|page| page.path == "README.md").unwrap();
    let lines = readme.text.lines().count();
    assert!(lines <= LINES, "README.md has {lines} lines, {LINES} at most");
    let install = readme.text.find("apt install").expect("README.md says how to install");
    let command = readme.text.find("ksmith estimate").expect("README.md shows a command");
    assert!(install < command, "README.md says how to install first");
}

#[test]
fn every_page_begins_with_a_heading_of_three_words() {
    let begins_well = |text: &str| {
        let first = text.lines().next().unwrap_or_default();
        first.strip_prefix("# ").is_some_and(|heading| heading.split_whitespace().count() >= 3)
    };
    let is_runbook = |path: &str| path.starts_with("docs/how-to/runbooks/");
    let bad: Vec<String> = page::all()
        .into_iter()
        .filter(|page| page.path.starts_with("docs/") && page.is_for_users() && !is_runbook(&page.path))
        .filter(|page| !page::GENERATED.contains(&page.path.as_str()))
        .filter(|page| !begins_well(&page.text))
        .map(|page| page.path)
        .collect();
    assert!(bad.is_empty(), "these begin with a shorter heading, or none: {bad:?}");
}
