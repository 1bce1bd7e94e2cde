//! Holds the rooms of `ksmith/src` to the arrows of the architecture: observe -> decide -> act -> record -> show, and
//! nobody below names who is above. That the core is pure is clippy's business (`core/clippy.toml`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Who must not name whom.
const FORBIDDEN: [(&str, &[&str]); 8] = [
    ("observe", &["act", "record", "show", "live", "controller"]),
    ("act", &["observe", "record", "show", "live", "controller"]),
    ("record", &["observe", "act", "show", "live", "controller"]),
    ("show", &["observe", "act", "live", "controller"]),
    ("lab", &["observe", "act", "record", "show"]),
    ("config", &["observe", "act", "record", "show"]),
    // Policies meet a host, whichever it is.
    ("controller", &["observe", "act", "record", "show", "live"]),
    ("root", &["observe", "act", "record", "show"]),
];

/// Who may name whom that nobody else may.
const RESERVED: [(&str, &[&str]); 2] = [("daemon", &["cli"]), ("cli", &["main"])];

/// The rooms that a source text names by `crate::…`, in groups too. Comments do not count.
fn named(source: &str) -> BTreeSet<String> {
    let code: String =
        source.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join(" ");
    let mut rooms = BTreeSet::new();
    for prefix in ["crate::", "ksmith::"] {
        for (at, _) in code.match_indices(prefix) {
            let is_word = code[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
            if !is_word {
                rooms.extend(first_names(&code[at + prefix.len()..]));
            }
        }
    }
    rooms
}

/// The first names of what follows `crate::`: one, or each of a group in braces.
fn first_names(path: &str) -> Vec<String> {
    let name =
        |text: &str| text.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let mut depth = 0;
    let mut names = vec![String::new()];
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.push(String::new()),
            _ => {}
        }
        if let Some(last) = names.last_mut().filter(|_| c != ',' || depth > 0) {
            last.push(c);
        }
    }
    names.iter().map(|text| name(text)).filter(|name| !name.is_empty()).collect()
}

/// What the source of `room` says against the architecture.
fn violations(room: &str, source: &str) -> Vec<String> {
    let forbidden = FORBIDDEN.iter().find(|(from, _)| *from == room).map_or(&[][..], |(_, to)| to);
    let is_violation = |named: &String| {
        let reserved = RESERVED.iter().find(|(name, _)| name == named);
        forbidden.contains(&named.as_str()) || named != room && reserved.is_some_and(|(_, by)| !by.contains(&room))
    };
    named(source).into_iter().filter(is_violation).map(|named| format!("{room} names {named}")).collect()
}

fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let first = path.strip_prefix(root).unwrap().components().next().unwrap();
            let room = first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned();
            found.push((room, fs::read_to_string(&path).unwrap()));
        }
    }
}

#[test]
fn the_rooms_keep_to_the_arrows() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    let rooms: BTreeSet<&str> = found.iter().map(|(room, _)| room.as_str()).collect();
    for room in ["observe", "act", "show", "controller", "daemon", "cli", "main"] {
        assert!(rooms.contains(room), "{room} is not looked at: {rooms:?}");
    }
    let all: Vec<String> = found.iter().flat_map(|(room, source)| violations(room, source)).collect();
    assert_eq!(all, Vec::<String>::new());
}

#[test]
fn the_live_host_is_where_observing_and_acting_meet() {
    let live = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/live.rs")).unwrap();
    assert!(named(&live).is_superset(&["observe".to_owned(), "act".to_owned()].into()), "the checker sees no use");
}

#[test]
fn a_planted_violation_is_found() {
    for (room, source, expected) in [
        ("show", "use crate::observe::Observer;", &["show names observe"][..]),
        ("observe", "use crate::{root::Root, act::{Control, Lock}};", &["observe names act"]),
        ("act", "fn f() { crate::observe::Observer::new(); }", &["act names observe"]),
        ("record", "use crate::{act, observe};", &["record names act", "record names observe"]),
        ("control", "use crate::daemon::Daemon;", &["control names daemon"]),
        ("lab", "pub(crate) use crate::cli::Cli;", &["lab names cli"]),
        ("show", "use crate::{\n    config::{A, B},\n    act,\n};", &["show names act"]),
        ("show", "/// See [`crate::act::Control`].\nuse crate::config::Config;", &[]),
        ("cli", "use crate::daemon::Daemon;", &[]),
        ("show", "use mycrate::act::Control; use ksmith_core::act;", &[]),
    ] {
        assert_eq!(violations(room, source), expected, "{source}");
    }
}
