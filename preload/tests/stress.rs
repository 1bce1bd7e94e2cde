//! Stress tests of a program under the library: threads, forks, exec, mremap, huge pages and signal handlers at once,
//! with every byte checked. They also run under valgrind and the compilers' sanitizers, and under seccomp.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{CompiledProgram, assert_ended_well, compile, has, library, library_with_blocks, lock, run, skipped};

/// A library with its settings.
type Way = (PathBuf, &'static [(&'static str, &'static str)]);

fn ways() -> [Way; 5] {
    [
        (library(), &[("KSMITH_METHOD", "prctl")]),
        (library(), &[("KSMITH_METHOD", "madvise"), ("KSMITH_INTERVAL", "1")]),
        (library_with_blocks(), &[("KSMITH_METHOD", "madvise"), ("KSMITH_THRESHOLD", "16K")]),
        (
            library_with_blocks(),
            &[
                ("KSMITH_METHOD", "madvise"),
                ("KSMITH_INTERVAL", "1"),
                ("KSMITH_HUGE", "merge"),
                ("KSMITH_HUGE_HINT", "1"),
            ],
        ),
        (library_with_blocks(), &[("KSMITH_RANGES", "none")]),
    ]
}

/// Runs `body` for each variant, all at once: the library's thread acts once a second, whatever else runs.
fn in_each_way(body: impl Fn(&Path, &[(&str, &str)]) + Sync) {
    let ways = ways();
    std::thread::scope(|scope| {
        for (library, settings) in &ways {
            scope.spawn(|| body(library, settings));
        }
    });
}

fn stress(command: &mut Command, seconds: &str) {
    let said = run(command.args([seconds, "4"]));
    let turns: u64 = said.trim().strip_prefix("turns ").unwrap().parse().unwrap();
    assert!(turns > 0);
}

#[test]
fn every_byte_stays_as_it_was_written() {
    let Some(program) = compile("tests/c/stress.c", &[]) else { return };
    let _lock = lock();
    stress(&mut program.command(), "0.3");
    in_each_way(|library, settings| stress(&mut program.preloaded(library, settings), "2.5"));
}

/// The library's thread marks ranges that it read earlier. If another mapping has replaced one, the mark divides it.
#[test]
fn a_mapping_that_was_divided_is_moved_all_the_same() {
    let Some(program) = compile("tests/c/divided.c", &[]) else { return };
    let _lock = lock();
    let alone = program.command().output().unwrap();
    assert_eq!(String::from_utf8_lossy(&alone.stderr), "mremap: Bad address\n", "the kernel itself refuses");
    for ranges in ["guided", "all"] {
        let settings = [("KSMITH_RANGES", ranges), ("KSMITH_THRESHOLD", "64K")];
        for arguments in [&[][..], &["left out"]] {
            let mut command = program.preloaded(&library(), &settings);
            assert_eq!(run(command.args(arguments)), "moved\n", "{ranges} {arguments:?}");
        }
    }
}

/// Starts a daemon that replies with all of the memory and with none of it in turn.
fn fickle_daemon() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("user")).unwrap();
    std::thread::spawn(move || {
        for (turn, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let answer = if turn % 2 == 0 {
                "range 1000 7ffffffff000 900\nok ranges=1 bytes=1\n"
            } else {
                "ok ranges=0 bytes=0\n"
            };
            // The program that asked may have ended meanwhile.
            for reply in ["ok ksmith 1\n", answer] {
                let mut line = String::new();
                if stream.read_line(&mut line).is_err() || stream.get_mut().write_all(reply.as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    directory
}

#[test]
fn nor_does_a_daemon_that_changes_its_mind_harm_a_byte() {
    let Some(program) = compile("tests/c/stress.c", &[]) else { return };
    let _lock = lock();
    let daemon = fickle_daemon();
    std::thread::scope(|scope| {
        for library in [library(), library_with_blocks()] {
            let settings = [("KSMITH_RANGES", "guided"), ("KSMITH_INTERVAL", "1"), ("KSMITH_THRESHOLD", "64K")];
            let mut command = program.preloaded(&library, &settings);
            command.env("KSMITH_SOCKET", daemon.path().join("user"));
            scope.spawn(move || stress(&mut command, "4.5"));
        }
    });
}

#[test]
fn valgrind_finds_nothing() {
    if !has("valgrind") {
        return skipped("there is no valgrind");
    }
    let Some(program) = compile("tests/c/stress.c", &[]) else { return };
    let _lock = lock();
    in_each_way(|library, settings| {
        let mut command = support::plain(Path::new("valgrind"));
        command.args(["--quiet", "--error-exitcode=9", "--leak-check=full"]);
        // The stack of a thread that is there until the program ends is "possibly lost" to it.
        command.args(["--show-leak-kinds=definite", "--errors-for-leak-kinds=definite"]).arg(program.path());
        stress(command.env("LD_PRELOAD", library).envs(settings.iter().copied()), "3");
    });
}

fn under_sanitizer(options: &[&str], environment: (&str, &str), wrapper: &[&str]) {
    let Some(program) = compile("tests/c/stress.c", options) else { return };
    if !starts(&program, environment, wrapper) {
        return skipped(&format!("a program with {options:?} does not start here"));
    }
    let _lock = lock();
    in_each_way(|library, settings| {
        let mut command = wrapped(&program, wrapper);
        command.env("LD_PRELOAD", library).envs(settings.iter().copied()).env(environment.0, environment.1);
        stress(&mut command, "2.5");
    });
}

fn wrapped(program: &CompiledProgram, wrapper: &[&str]) -> Command {
    let Some((first, rest)) = wrapper.split_first() else { return program.command() };
    let mut command = support::plain(Path::new(first));
    command.args(rest).arg(program.path());
    command
}

fn starts(program: &CompiledProgram, environment: (&str, &str), wrapper: &[&str]) -> bool {
    let mut command = wrapped(program, wrapper);
    command.args(["0.01", "2"]).env(environment.0, environment.1);
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    under_sanitizer(&["-fsanitize=address", "-static-libasan"], ("ASAN_OPTIONS", "abort_on_error=1"), &[]);
}

#[test]
fn the_thread_sanitizer_finds_nothing() {
    // It needs addresses where it expects them, and children that start threads.
    let (options, environment) = (["-fsanitize=thread", "-static-libtsan"], ("TSAN_OPTIONS", "die_after_fork=0"));
    under_sanitizer(&options, environment, &["setarch", "-R"]);
}

#[test]
fn a_program_that_shuts_itself_in_is_left_alone() {
    let Some(program) = compile("tests/c/sandbox.c", &[]) else { return };
    let _lock = lock();
    if program.command().status().unwrap().code() == Some(77) {
        return skipped("there is no seccomp here");
    }
    assert_eq!(run(&mut program.command()), "well\n");
    for (library, settings) in ways() {
        assert_eq!(run(&mut program.preloaded(&library, settings)), "well\n");
    }
}

/// A filter that is set in all threads would end the program for what the library's thread does.
#[test]
fn the_librarys_thread_has_ended_when_a_program_filters_system_calls() {
    let Some(program) = compile("tests/c/filter.c", &[]) else { return };
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !is_root {
        return skipped("only root filters system calls without PR_SET_NO_NEW_PRIVS, and may become another user");
    }
    let _lock = lock();
    let sweeps: &[(&str, &str)] = &[("KSMITH_METHOD", "madvise"), ("KSMITH_INTERVAL", "1")];
    let ways = [
        (library(), &[("KSMITH_METHOD", "prctl"), ("KSMITH_INTERVAL", "1")][..], "1"),
        (library(), sweeps, "2"),
        (library_with_blocks(), sweeps, "2"),
        (library(), &[("KSMITH_RANGES", "guided"), ("KSMITH_INTERVAL", "1"), ("KSMITH_HUGE_HINT", "1")], "2"),
    ];
    std::thread::scope(|scope| {
        for (library, settings, threads) in &ways {
            for words in [&["syscall"][..], &["prctl"], &["syscall", "user"], &["prctl", "user"]] {
                let mut command = program.preloaded(library, settings);
                command.arg(words[0]).arg(threads).args(&words[1..]);
                scope.spawn(move || assert_eq!(run(&mut command), "well\n"));
            }
        }
    });
}

#[test]
fn system_calls_by_their_numbers_are_passed_on() {
    let Some(program) = compile("tests/c/raw_calls.c", &[]) else { return };
    let _lock = lock();
    for (library, settings) in ways() {
        assert_eq!(run(&mut program.preloaded(&library, settings)), "well\n");
    }
}

/// libc changes the user in each thread, and ends a program in which that succeeds in some threads only.
#[test]
fn a_program_that_may_not_change_its_user_any_more_goes_on() {
    let Some(program) = compile("tests/c/credentials.c", &[]) else { return };
    let _lock = lock();
    if program.command().output().unwrap().status.code() == Some(77) {
        return skipped("this user may not become another");
    }
    let settings = [("KSMITH_METHOD", "madvise"), ("KSMITH_INTERVAL", "1")];
    for library in [library(), library_with_blocks()] {
        assert_eq!(run(program.preloaded(&library, &settings).arg("2")), "well\n");
    }
}

#[test]
fn a_program_ends_with_the_last_of_its_own_threads() {
    let Some(program) = compile("tests/c/last_thread.c", &[]) else { return };
    let _lock = lock();
    let settings = [("KSMITH_METHOD", "madvise"), ("KSMITH_INTERVAL", "3600")];
    for library in [library(), library_with_blocks()] {
        let mut command = support::plain(Path::new("timeout"));
        command.arg("60").arg(program.path()).env("LD_PRELOAD", &library).envs(settings);
        let output = command.output().unwrap();
        assert_ended_well(&command, &output);
        assert_eq!(output.stdout, b"the last one\n");
    }
}

#[test]
fn it_says_what_it_does_if_asked_to() {
    let Some(program) = compile("tests/c/sandbox.c", &[]) else { return };
    let _lock = lock();
    let said = |settings: &[(&str, &str)]| {
        let output = program.preloaded(&library(), settings).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(said(&[("KSMITH_RANGES", "none")]), "");
    let verbose = said(&[("KSMITH_RANGES", "none"), ("KSMITH_VERBOSE", "1")]);
    assert!(verbose.starts_with("ksmith: process ") && verbose.ends_with(" offers memory by: none\n"), "{verbose}");
}
