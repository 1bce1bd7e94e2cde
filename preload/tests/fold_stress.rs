//! Folding under everything at once, for as long as wanted: `make stress STRESS_SECONDS=3600`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use support::{Compiled, compile_linked, has, lock, plain, skipped};

/// Runs the program for so many seconds. It ends in time, with no byte lost.
fn stress(program: &Compiled, seconds: u64) -> Option<String> {
    let directory = program.path().parent().unwrap().to_owned();
    let mut command = program.command();
    command.arg(seconds.to_string()).current_dir(directory).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    let limit = Duration::from_secs(seconds + 300);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() > limit => {
                child.kill().unwrap();
                panic!("it hangs");
            }
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    if said.starts_with("code ") {
        skipped("this kernel, or this user's rights, have no full userfaultfd that moves pages (Linux 6.8)");
        return None;
    }
    assert!(said.ends_with("ok\n"), "{said}");
    Some(said)
}

#[test]
fn no_byte_is_lost_under_everything_at_once() {
    let Some(program) = compile_linked("tests/c/fold_stress.c") else { return };
    let _lock = lock();
    stress(&program, 5);
}

#[test]
#[ignore = "for make stress: as long as STRESS_SECONDS says"]
fn no_byte_is_lost_for_long() {
    let seconds = std::env::var("STRESS_SECONDS").map_or(3600, |seconds| seconds.parse().unwrap());
    let Some(program) = compile_linked("tests/c/fold_stress.c") else { return };
    let _lock = lock();
    if let Some(said) = stress(&program, seconds) {
        println!("{said}");
    }
}

/// The calls that name their memory, and the promise that nothing writes: valgrind knows no userfaultfd, and no move.
#[test]
fn valgrind_finds_no_fault_in_explicit_calls() {
    let Some(program) = compile_linked("tests/c/fold.c") else { return };
    if !has("valgrind") {
        return skipped("there is no valgrind");
    }
    let _lock = lock();
    let mut command = plain("valgrind".as_ref());
    command.args(["--quiet", "--error-exitcode=9"]).arg(program.path()).args(["contents", "0x100"]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.ends_with("ok\n"), "{said} {why}");
}
