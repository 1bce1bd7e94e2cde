//! Pages that are made from the sources: compared, or written where `KSMITH_WRITE` is set.

use std::fs;
use std::path::Path;

use crate::page;

/// Compares a page with what is to stand there, or writes it.
pub fn check(path: &str, text: &str) {
    assert!(page::GENERATED.contains(&path), "{path} is not listed as generated");
    compare(path, text);
}

/// Compares a file with what is to stand there, or writes it. Pages with words that people wrote in a table of the
/// sources, such as runbooks, count as written by hand.
pub fn compare(path: &str, text: &str) {
    let file = page::workspace().join(path);
    if std::env::var_os("KSMITH_WRITE").is_some() {
        fs::write(file, text).unwrap();
        return;
    }
    let there = fs::read_to_string(file).unwrap_or_default();
    assert!(there == text, "{path} is out of date: KSMITH_WRITE=1 cargo test -p ksmith --test docs");
}

/// The sources of a crate without their tests, as parsed files with their paths from the workspace.
pub fn sources(directories: &[&str]) -> Vec<(String, syn::File)> {
    let mut found = Vec::new();
    for directory in directories {
        read(&page::workspace().join(directory), directory, &mut found);
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

fn read(directory: &Path, name: &str, found: &mut Vec<(String, syn::File)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        let name = format!("{name}/{file}");
        if path.is_dir() && file != "tests" {
            read(&path, &name, found);
        } else if file.ends_with(".rs") && file != "tests.rs" && file != "testing.rs" {
            found.push((name, syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap()));
        }
    }
}

/// A text as it stands in a cell of a table.
pub fn cell(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}
