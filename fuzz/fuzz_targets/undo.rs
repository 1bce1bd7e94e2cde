//! The undo store's file, parsed as for a restore.
#![no_main]

use std::sync::LazyLock;

use ksmith_host::undo::{StateDir, UndoStore};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// A directory in memory if the host has one, since each execution writes a file.
static DIRECTORY: LazyLock<TempDir> =
    LazyLock::new(|| tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory"));

fuzz_target!(|bytes: &[u8]| {
    let directory = StateDir::at(DIRECTORY.path());
    std::fs::write(directory.undo(), bytes).expect("a file in the directory");
    let read = UndoStore::new(&directory).read();
    assert!(read.err().is_none_or(|fault| !fault.to_string().is_empty()));
});
