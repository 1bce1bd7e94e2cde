//! What libksmith.so is from outside: what it needs, what it has, and that the header says the same.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::collections::BTreeSet;
use std::process::Command;

use support::{has, library, skipped};

/// What the library interposes.
const INTERPOSED: [&str; 14] = [
    "aligned_alloc",
    "brk",
    "calloc",
    "madvise",
    "malloc",
    "memalign",
    "mmap",
    "mmap64",
    "mprotect",
    "mremap",
    "posix_memalign",
    "prctl",
    "realloc",
    "sbrk",
];

fn said(program: &str, arguments: &[&str]) -> Option<String> {
    if !has(program) {
        skipped(&format!("there is no {program}"));
        return None;
    }
    let output = Command::new(program).args(arguments).arg(library()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn it_needs_libc_and_nothing_else() {
    let Some(text) = said("readelf", &["--dynamic", "--wide"]) else { return };
    let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    assert!(needed.len() == 1 && needed[0].contains("[libc.so.6]"), "{needed:?}");
    assert!(text.contains("soname: [libksmith.so]") && text.contains("NODELETE") && text.contains("NOW"), "{text}");
}

#[test]
fn it_shows_what_the_header_names_and_what_it_interposes() {
    let Some(text) = said("nm", &["--dynamic", "--defined-only"]) else { return };
    let shown: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    let header = include_str!("../include/ksmith.h");
    let named = header.lines().filter(|line| line.ends_with(");") && !line.starts_with(' '));
    let named = named.filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back());
    let expected: BTreeSet<&str> = named.chain(INTERPOSED).collect();
    assert_eq!(expected.len(), 9 + INTERPOSED.len(), "{expected:?}");
    assert_eq!(shown, expected);
}
