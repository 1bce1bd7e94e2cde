//! A program with the library's thread may still create a user namespace, and enter namespaces.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::os::unix::net::UnixListener;

use support::{compile, library, library_with_blocks, lock, run, skipped};

#[test]
fn the_librarys_thread_keeps_no_program_from_its_namespaces() {
    let Some(program) = compile("tests/c/namespace.c", &[]) else { return };
    let plain = program.command().arg("plain").output().unwrap();
    if !plain.status.success() {
        return skipped(&format!("no namespace can be had here: {}", String::from_utf8_lossy(&plain.stdout)));
    }
    let _lock = lock();
    let settings = [("KSMITH_METHOD", "madvise"), ("KSMITH_INTERVAL", "1")];
    for library in [library(), library_with_blocks()] {
        for _ in 0..5 {
            assert_eq!(run(program.preloaded(&library, &settings).arg("/dev/null")), "well\n");
        }
    }
}

#[test]
fn neither_does_a_thread_that_waits_for_a_daemon() {
    let Some(program) = compile("tests/c/namespace.c", &[]) else { return };
    if !program.command().arg("plain").output().unwrap().status.success() {
        return skipped("no namespace can be had here");
    }
    let _lock = lock();
    let directory = tempfile::tempdir().unwrap();
    let (socket, asked) = (directory.path().join("user"), directory.path().join("asked"));
    // A daemon that says nothing.
    let listener = UnixListener::bind(&socket).unwrap();
    let there = asked.clone();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for peer in listener.incoming() {
            kept.push(peer.unwrap());
            std::fs::write(&there, "").unwrap();
        }
    });
    let mut command = program.preloaded(&library(), &[("KSMITH_RANGES", "guided")]);
    command.env("KSMITH_SOCKET", &socket).arg(&asked);
    assert_eq!(run(&mut command), "well\n");
}
