//! The memory of an unmodified program that is marked: by prctl, by madvise above a threshold, and by the library's
//! thread. Also the memory that must not be marked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::{CompiledProgram, compile, has_ksm, has_prctl, library, library_with_blocks, lock, run, skipped};

/// Returns the marked share of each kind of memory, in permille: for the program, and for the one that it executes.
fn marked(program: &CompiledProgram, library: &Path, settings: &[(&str, &str)]) -> [BTreeMap<String, u32>; 2] {
    let said = run(program.preloaded(library, settings).arg("again"));
    let mut halves = [BTreeMap::new(), BTreeMap::new()];
    let mut half = 0;
    for line in said.lines() {
        let (name, permille) = line.split_once(' ').unwrap();
        half += usize::from(halves[half].contains_key(name));
        halves[half].insert(name.to_owned(), permille.parse().unwrap());
    }
    halves
}

/// Memory that can't be merged, or must not be.
const NEVER: [&str; 3] = ["shared", "huge", "left"];

#[test]
fn by_madvise_what_is_large_is_marked_and_nothing_else() {
    if !has_ksm() {
        return skipped("this kernel has no KSM");
    }
    let Some(program) = compile("tests/c/kinds.c", &[]) else { return };
    let _lock = lock();
    for settings in [
        &[("KSMITH_METHOD", "madvise")][..],
        &[("KSMITH_THRESHOLD", "64K")],
        &[("KSMITH_METHOD", "madvise"), ("KSMITH_HUGE_HINT", "1")],
        &[("KSMITH_THRESHOLD", "128K"), ("KSMITH_INTERVAL", "1"), ("KSMITH_RANGES", "all")],
    ] {
        for kinds in marked(&program, &library_with_blocks(), settings) {
            assert_eq!(kinds.len(), 21, "{kinds:?}");
            for (kind, permille) in &kinds {
                let expected = match kind.as_str() {
                    "little" | "reserved" => 0..=0,
                    kind if NEVER.contains(&kind) => 0..=0,
                    // Marked in steps of a sixteenth.
                    "heap" => 930..=1000,
                    _ => 999..=1000,
                };
                assert!(expected.contains(permille), "{kind} by {settings:?}: {kinds:?}");
            }
        }
    }
}

#[test]
fn by_prctl_everything_is_marked_that_can_merge() {
    if !has_prctl() {
        return skipped("this kernel has no prctl for KSM, or can't say that it has");
    }
    let Some(program) = compile("tests/c/kinds.c", &[]) else { return };
    let _lock = lock();
    for settings in
        [&[][..], &[("KSMITH_METHOD", "prctl"), ("KSMITH_THRESHOLD", "1M")], &[("KSMITH_HUGE_HINT", "1")]]
    {
        for kinds in marked(&program, &library(), settings) {
            for (kind, permille) in &kinds {
                let expected = if NEVER.contains(&kind.as_str()) { 0 } else { 1000 };
                assert_eq!(*permille, expected, "{kind} by {settings:?}: {kinds:?}");
            }
        }
    }
}

#[test]
fn nothing_is_marked_when_nothing_is_asked_for() {
    let Some(program) = compile("tests/c/kinds.c", &[]) else { return };
    let _lock = lock();
    // Guided, by a daemon that is not there.
    for (library, ranges) in [(library(), "none"), (library_with_blocks(), "none"), (library(), "guided")] {
        for kinds in marked(&program, &library, &[("KSMITH_RANGES", ranges)]) {
            let expected = |kind: &str| if kind == "own_mark_of_huge" && has_ksm() { 1000 } else { 0 };
            assert!(kinds.iter().all(|(kind, permille)| *permille == expected(kind)), "{ranges}: {kinds:?}");
        }
    }
}

#[test]
fn huge_pages_are_offered_if_that_is_asked_for() {
    if !has_ksm() {
        return skipped("this kernel has no KSM");
    }
    let Some(program) = compile("tests/c/kinds.c", &[]) else { return };
    let _lock = lock();
    for method in ["madvise", "prctl"] {
        if method == "prctl" && !has_prctl() {
            continue;
        }
        let [kinds, _] = marked(&program, &library(), &[("KSMITH_METHOD", method), ("KSMITH_HUGE", "merge")]);
        assert_eq!(kinds["huge"], 1000, "{method}: {kinds:?}");
    }
}

#[test]
fn without_a_look_at_blocks_a_thread_finds_what_malloc_got() {
    if !has_ksm() {
        return skipped("this kernel has no KSM");
    }
    let Some(program) = compile("tests/c/kinds.c", &["-DWAIT=60"]) else { return };
    let _lock = lock();
    let settings = [("KSMITH_METHOD", "madvise"), ("KSMITH_INTERVAL", "1")];
    for kinds in marked(&program, &library(), &settings) {
        for kind in ["heap", "posix_memalign", "arena_last", "mmap", "mprotect"] {
            assert!(kinds[kind] > 990, "{kind}: {kinds:?}");
        }
        assert!(NEVER.iter().all(|kind| kinds[*kind] == 0), "{kinds:?}");
    }
}
