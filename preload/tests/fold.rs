//! Folding by a program in C, while everything that may write to the memory does: no byte is lost, and what can't be folded is
//! left alone and named.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use support::{Compiled, compile_linked, library, lock, plain, run, skipped};

/// The program, on a kernel that can move pages out, with the right to a full userfaultfd. `None`, said loudly, elsewhere.
fn program() -> Option<&'static Compiled> {
    static PROGRAM: OnceLock<Option<Compiled>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| compile_linked("tests/c/fold.c")).as_ref()?;
    let probe = program.command().arg("probe").output().unwrap();
    let said = String::from_utf8_lossy(&probe.stdout).into_owned();
    if said.contains("code -1\n") || said.contains("code -38\n") {
        skipped("this kernel, or this user's rights, have no full userfaultfd that moves pages (Linux 6.8)");
        return None;
    }
    Some(program)
}

fn program_directory(program: &Compiled) -> std::path::PathBuf {
    program.path().parent().map(Path::to_owned).unwrap()
}

/// Runs one test of the program. Its files are written beside it.
fn folds(program: &Compiled, words: &[&str]) -> String {
    let mut command = program.command();
    let said = run(command.args(words).current_dir(program_directory(program)).stderr(Stdio::piped()));
    assert!(said.ends_with("ok\n"), "{words:?}: {said}");
    said
}

#[test]
fn contents_stay_and_each_zero_page_is_given_back() {
    let Some(program) = program() else { return };
    let _lock = lock();
    assert!(folds(program, &["contents", "0"]).contains("method 1 threads 1"));
    assert!(folds(program, &["contents", "2"]).contains("method 1 threads 2"));
    assert!(folds(program, &["contents", "0x100"]).contains("method 3"), "by the promise that nothing writes");
}

#[test]
fn no_write_of_another_thread_is_lost() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["writers", "300"]);
}

#[test]
fn no_write_of_a_system_call_or_a_device_is_lost() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["reads", "200"]);
    if folds(program, &["direct", "200"]).contains("no O_DIRECT") {
        skipped("this file system has no O_DIRECT");
    }
}

#[test]
fn what_can_not_be_folded_is_left_alone_and_named() {
    let Some(program) = program() else { return };
    let _lock = lock();
    let said = folds(program, &["kinds"]);
    if said.contains("no mlock") {
        skipped("this user may not lock memory");
    }
    if said.contains("no hugetlb") {
        skipped("no pages are set aside for hugetlb");
    }
}

#[test]
fn what_is_pinned_stays_where_the_device_writes_to() {
    let Some(program) = program() else { return };
    let _lock = lock();
    if folds(program, &["pinned"]).contains(" here: ") {
        skipped("there is no io_uring with registered buffers here");
    }
}

#[test]
fn a_whole_program_is_folded_while_threads_change_mappings_fork_and_take_signals() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["all", "200"]);
    folds(program, &["forks", "200"]);
}

#[test]
fn mappings_grow_and_move_as_if_nothing_was_folded() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["pieces"]);
    folds(program, &["remaps", "1000"]);
}

#[test]
fn threads_on_folded_stacks_end_and_are_joined() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["threads-end", "2000"]);
    folds(program, &["robust", "2000"]);
    folds(program, &["discards", "200"]);
}

#[test]
fn a_program_that_pins_memory_at_that_moment_loses_nothing() {
    let Some(program) = program() else { return };
    let _lock = lock();
    if folds(program, &["pins", "100"]).contains(" here\n") {
        skipped("there is no io_uring with registered buffers here");
    }
}

#[test]
fn memory_of_a_machine_of_kvm_is_folded_while_it_counts() {
    let Some(program) = program() else { return };
    let _lock = lock();
    if folds(program, &["kvm", "50"]).contains("no KVM here") {
        skipped("there is no KVM");
    }
}

#[test]
fn a_program_that_changes_its_user_or_is_replaced_is_folded_meanwhile() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["users", "300"]);
    folds(program, &["replaced", "30"]);
}

#[test]
fn the_device_gives_the_right_to_fold() {
    let Some(program) = program() else { return };
    let _lock = lock();
    if folds(program, &["by-device"]).contains("no such device here") {
        skipped("there is no /dev/userfaultfd that root may open");
    }
}

#[test]
fn no_child_inherits_a_descriptor_of_folding() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["inherits", "100"]);
}

#[test]
fn an_array_of_numpy_is_folded() {
    let python = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", "import numpy"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    let Some(python) = python else { return skipped("there is no Python with NumPy") };
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = plain(Path::new(python));
    command.arg(here.join("tests/fold.py")).env("KSMITH_LIBRARY", library()).env("PYTHONPATH", here.join("python"));
    assert_eq!(run(&mut command), "ok\n");
}

#[test]
fn without_rights_a_promise_is_needed() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["unprivileged"]);
    folds(program, &["sandboxed"]);
}

#[test]
fn a_kernel_that_moves_no_pages_folds_by_the_promise_that_nothing_writes() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["old-kernel"]);
}

#[test]
fn an_array_of_fortran_is_folded() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let libraries = library().parent().map(Path::to_owned).unwrap();
    if !support::has("gfortran") {
        return skipped("there is no gfortran");
    }
    let mut compiler = Command::new("gfortran");
    compiler
        .args(["-std=f2018", "-Wall", "-Wextra", "-Werror", "-J"])
        .arg(directory.path())
        .args([here.join("fortran/ksmith.f90"), here.join("tests/fold.f90")])
        .arg("-o")
        .arg(directory.path().join("program"))
        .arg("-L")
        .arg(&libraries)
        .args(["-lksmith", &format!("-Wl,-rpath,{}", libraries.display())]);
    run(&mut compiler);
    assert_eq!(run(&mut plain(&directory.path().join("program"))), "ok\n");
}
