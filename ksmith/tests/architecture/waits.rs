//! Waits without a deadline: each call in the daemon's crates that may wait for ever is listed in `waits.toml`, with
//! the reason why it does not, or why no turn waits for it. So is each name of a file of a process that waits for a lock
//! of that process, in `process_files.toml`, if its line is no read by the reader's child.
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

/// Files and links of a process that wait for its memory map, or until it has executed a program.
const PROCESS_FILES: [&str; 19] = [
    "stat",
    "exe",
    "cwd",
    "root",
    "ns/user",
    "mem",
    "pagemap",
    "io",
    "environ",
    "cmdline",
    "smaps",
    "maps",
    "fd",
    "ksm_stat",
    "smaps_rollup",
    "numa_maps",
    "auxv",
    "syscall",
    "stack",
];

/// Readings of the wall clock, which an administrator may set, and of times that it has given to files.
const CLOCKS: [&str; 6] =
    ["ClockId::Realtime", "SystemTime::now(", "Timestamp::now(", "Zoned::now(", ".modified()", ".mtime()"];

/// Calls that open or read a file.
const OPENERS: [&str; 14] = [
    "open(",
    "openat(",
    "read(",
    "read_dir(",
    "read_to_string(",
    "file(",
    "path(",
    "join(",
    "format!(\"/proc/",
    "statat(",
    "statx(",
    "metadata(",
    "read_link(",
    "readlinkat(",
];

/// Calls by which the reader's child reads on the live host.
const BY_CHILD: [&str; 6] = ["text(", "texts_of(", "reader::", "mappings::read(", "each_mapping(", "Error"];

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

/// Counts the calls without a deadline in a line.
fn calls(line: &str) -> usize {
    CALLS.iter().filter(|call| line.contains(**call)).count()
}

/// Counts the readings of the wall clock in a line.
fn clocks(line: &str) -> usize {
    CLOCKS.iter().filter(|clock| line.contains(**clock)).count()
}

/// Counts the files of a process that a line opens, unless the reader's child reads them. Those of this process itself wait
/// for nothing.
fn process_files(line: &str) -> usize {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    let is_named = |name: &&&str| ["\"", "/", "{"].iter().any(|end| line.contains(&format!("}}/{name}{end}")));
    let is_asked = |name: &&&str| line.contains(&format!("\"{name}\""));
    if line.contains("/self/") || !has(&OPENERS) || has(&BY_CHILD) {
        return 0;
    }
    PROCESS_FILES.iter().filter(|name| is_named(name) || is_asked(name)).count()
}

/// Counts what `count` finds in the lines of each file below a directory.
fn count_calls(directory: &Path, count: fn(&str) -> usize, found: &mut BTreeMap<PathBuf, usize>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            count_calls(&path, count, found);
        } else if name.ends_with(".rs") && !["tests.rs", "testing.rs"].contains(&name) {
            let text = fs::read_to_string(&path).unwrap();
            let calls: usize = production_code(&text).map(count).sum();
            if calls > 0 {
                found.insert(path.strip_prefix(workspace()).unwrap().to_owned(), calls);
            }
        }
    }
}

/// Compares what `count` finds in the daemon's crates, but below `except`, with a list.
fn compare(listed: &str, count: fn(&str) -> usize, except: Option<&str>, advice: &str) {
    let mut found = BTreeMap::new();
    for name in ["host", "service"] {
        count_calls(&workspace().join(name).join("src"), count, &mut found);
    }
    found.retain(|path, _| except.is_none_or(|except| !path.starts_with(except)));
    let listed: BTreeMap<PathBuf, ListedWaits> = toml::from_str(listed).unwrap();
    assert!(listed.values().all(|waits| waits.why.split_whitespace().count() >= 4), "each has a reason");
    let listed: BTreeMap<PathBuf, usize> = listed.into_iter().map(|(path, waits)| (path, waits.calls)).collect();
    assert_eq!(found, listed, "{advice}");
}

#[test]
fn each_wait_without_a_deadline_is_listed_with_the_reason_why_no_turn_waits_for_ever() {
    compare(include_str!("waits.toml"), calls, None, "give the call a deadline, or list it in waits.toml");
}

#[test]
fn each_file_of_a_process_that_waits_is_read_by_the_readers_child_or_listed_with_the_reason() {
    let advice = "read it by `Root::text` or `reader`, or list it in process_files.toml";
    // The reader's child is what may wait.
    compare(include_str!("process_files.toml"), process_files, Some("host/src/reader"), advice);
    assert_eq!(process_files("File::open(root.path(format!(\"proc/{pid}/stat\")))"), 1);
    assert_eq!(process_files("openat(directory, \"ns/user\", READ, Mode::empty())"), 1);
    assert_eq!(process_files("let meta = statx(directory, \"exe\", AtFlags::empty(), StatxFlags::UID)?;"), 1);
    assert_eq!(process_files("let text = root.text(format!(\"proc/{pid}/stat\"));"), 0);
}

#[test]
fn each_reading_of_the_wall_clock_is_listed_with_the_reason_why_setting_it_changes_no_decision() {
    let advice = "use Instant, or CLOCK_BOOTTIME of the samples, or list it in wall_clocks.toml";
    compare(include_str!("wall_clocks.toml"), clocks, None, advice);
}

#[test]
fn a_blocking_lock_of_a_file_is_found_and_one_of_a_mutex_is_not() {
    let has = |line: &str| calls(line) > 0;
    assert!(has("        file.lock()?;") && has("    let said = inbox.recv();"));
    assert!(!has("self.0.lock().unwrap_or_else(PoisonError::into_inner)") && !has("file.try_lock()"));
    assert!(!has("inbox.recv_timeout(LONG)") && !has("path.join(name)") && !has("child.wait(patience)"));
}
