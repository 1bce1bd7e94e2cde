//! Requests for huge pages on behalf of an unmodified program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::{compile, library, library_with_blocks, lock, run, skipped};

#[test]
fn large_private_mappings_get_the_hint_and_no_others() {
    if !Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        return skipped("this kernel has no transparent huge pages");
    }
    let Some(program) = compile("tests/c/huge_hint.c", &[]) else { return };
    let _lock = lock();
    for library in [library(), library_with_blocks()] {
        for (hint, ranges) in [("1", "none"), ("1", "all"), ("1", "guided"), ("0", "all")] {
            let said =
                run(&mut program.preloaded(&library, &[("KSMITH_HUGE_HINT", hint), ("KSMITH_RANGES", ranges)]));
            let said: BTreeMap<&str, &str> = said.lines().filter_map(|line| line.split_once(' ')).collect();
            assert_eq!(said.len(), 11, "{said:?}");
            for (kind, has_hint) in &said {
                let expected = match *kind {
                    "large" | "least" | "unreserved" | "grown" => hint,
                    "refused" => "1",
                    _ => "0",
                };
                assert_eq!(*has_hint, expected, "{kind} by {ranges}: {said:?}");
            }
        }
    }
}
