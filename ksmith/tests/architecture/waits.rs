//! Waits without a deadline: each call in the daemon's crates that may wait for ever is listed in `waits.toml`, with
//! the reason why it does not, or why no turn waits for it.
//!
//! The text of a call tells that it has no deadline. A `lock()` whose error is returned is one of a file; one of a mutex
//! has no error to return.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::workspace;

/// Calls without a deadline, as they stand in production code. A pool's queue and a `for` over a receiver are a
/// thread's own business.
const CALLS: [&str; 13] = [
    ".recv()",
    ".join()",
    ".wait()",
    ".wait(guard)",
    ".wait(state)",
    ".wait_while(",
    ".lock()?",
    ".lock_shared()",
    "flock(",
    " waitpid(",
    "::waitpid(",
    ".accept()",
    ".output()",
];

/// A file's calls in `waits.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedWaits {
    calls: usize,
    why: String,
}

/// Returns the production code of a file: what stands before its module of tests.
fn production_code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//"))
}

/// Counts the calls of each file below a directory.
fn count_calls(directory: &Path, found: &mut BTreeMap<PathBuf, usize>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            count_calls(&path, found);
        } else if name.ends_with(".rs") && !["tests.rs", "testing.rs"].contains(&name) {
            let text = fs::read_to_string(&path).unwrap();
            let calls = |line: &str| CALLS.iter().filter(|call| line.contains(**call)).count();
            let calls: usize = production_code(&text).map(calls).sum();
            if calls > 0 {
                found.insert(path.strip_prefix(workspace()).unwrap().to_owned(), calls);
            }
        }
    }
}

#[test]
fn each_wait_without_a_deadline_is_listed_with_the_reason_why_no_turn_waits_for_ever() {
    let mut found = BTreeMap::new();
    for name in ["host", "service"] {
        count_calls(&workspace().join(name).join("src"), &mut found);
    }
    let listed: BTreeMap<PathBuf, ListedWaits> = toml::from_str(include_str!("waits.toml")).unwrap();
    assert!(listed.values().all(|waits| waits.why.split_whitespace().count() >= 4), "each has a reason");
    let listed: BTreeMap<PathBuf, usize> = listed.into_iter().map(|(path, waits)| (path, waits.calls)).collect();
    assert_eq!(found, listed, "give the call a deadline, or list it in waits.toml");
}

#[test]
fn a_blocking_lock_of_a_file_is_found_and_one_of_a_mutex_is_not() {
    let has = |line: &str| CALLS.iter().any(|call| line.contains(call));
    assert!(has("        file.lock()?;") && has("    let said = inbox.recv();"));
    assert!(!has("self.0.lock().unwrap_or_else(PoisonError::into_inner)") && !has("file.try_lock()"));
    assert!(!has("inbox.recv_timeout(LONG)") && !has("path.join(name)") && !has("child.wait(patience)"));
}
