//! The external interface of libksmith.so: its dependencies, its symbols, and their agreement with the header.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use support::{has, library, library_with_blocks, skipped};

/// Functions that the library interposes, and those that it also interposes if it examines blocks.
const INTERPOSED: [&str; 16] = [
    "madvise",
    "mmap",
    "mmap64",
    "mprotect",
    "mremap",
    "prctl",
    "setns",
    "unshare",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "syscall",
];
const BLOCKS: [&str; 8] =
    ["aligned_alloc", "brk", "calloc", "malloc", "memalign", "posix_memalign", "realloc", "sbrk"];

fn said(program: &str, arguments: &[&str], library: &Path) -> Option<String> {
    if !has(program) {
        skipped(&format!("there is no {program}"));
        return None;
    }
    let output = Command::new(program).args(arguments).arg(library).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn it_needs_libc_and_nothing_else() {
    for library in [library(), library_with_blocks()] {
        let Some(text) = said("readelf", &["--dynamic", "--wide"], &library) else { return };
        let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
        assert!(needed.len() == 1 && needed[0].contains("[libc.so.6]"), "{needed:?}");
        let name = library.file_name().unwrap().to_str().unwrap();
        assert!(text.contains(&format!("soname: [{name}]")), "{text}");
        assert!(text.contains("NODELETE") && text.contains("NOW"), "{text}");
    }
}

#[test]
fn it_shows_what_the_header_names_and_what_it_interposes() {
    let header = include_str!("../include/ksmith.h");
    let named = header.lines().filter(|line| line.ends_with(");") && !line.starts_with(' '));
    let named: Vec<&str> = named.filter_map(|line| line.split('(').next()?.split([' ', '*']).next_back()).collect();
    assert_eq!(named.len(), 10, "{named:?}");
    for (library, blocks) in [(library(), &[][..]), (library_with_blocks(), &BLOCKS)] {
        let Some(text) = said("nm", &["--dynamic", "--defined-only"], &library) else { return };
        let shown: BTreeSet<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
        let expected: BTreeSet<&str> = named.iter().chain(&INTERPOSED).chain(blocks).copied().collect();
        assert_eq!(shown, expected);
    }
}
