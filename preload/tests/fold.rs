//! Folding by programs in C, Python and Fortran: contents stay, zero pages are returned, and other memory is unchanged.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test ends by panicking")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use support::{CompiledProgram, compile_linked, has, library, lock, plain, run, skipped};

fn program() -> Option<&'static CompiledProgram> {
    static PROGRAM: OnceLock<Option<CompiledProgram>> = OnceLock::new();
    PROGRAM.get_or_init(|| compile_linked("tests/c/fold.c")).as_ref()
}

/// Runs one test of the program.
fn folds(program: &CompiledProgram, words: &[&str]) -> String {
    let said = run(program.command().args(words).stderr(Stdio::piped()));
    assert!(said.ends_with("ok\n"), "{words:?}: {said}");
    said
}

#[test]
fn contents_stay_and_each_zero_page_is_given_back() {
    let Some(program) = program() else { return };
    let _lock = lock();
    for threads in ["1", "2", "5"] {
        folds(program, &["contents", threads]);
    }
}

#[test]
fn huge_pages_give_their_zero_part_back_at_once() {
    let Some(program) = program() else { return };
    let _lock = lock();
    if folds(program, &["huge"]).contains("no huge pages") {
        skipped("there are no huge pages");
    }
}

#[test]
fn other_kinds_of_memory_are_left_alone_and_counted() {
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
fn threads_fold_their_own_ranges_side_by_side() {
    let Some(program) = program() else { return };
    let _lock = lock();
    folds(program, &["beside"]);
}

#[test]
fn a_program_that_has_sandboxed_itself_is_refused() {
    let Some(program) = program() else { return };
    folds(program, &["sandboxed"]);
}

/// While the kernel moves a page its entry in the page table looks as if it were swapped out.
#[test]
fn pages_that_the_kernel_moves_are_folded_too() {
    let Some(program) = program() else { return };
    let compact = || fs::write("/proc/sys/vm/compact_memory", "1");
    if compact().is_err() {
        return skipped("this user may not compact memory");
    }
    let _lock = lock();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                compact().unwrap();
            }
        });
        let runs = std::panic::catch_unwind(|| (0..4).for_each(|_| drop(folds(program, &["contents", "2"]))));
        has_ended.store(true, Ordering::Relaxed);
        runs.unwrap();
    });
}

/// valgrind has no advice for many ranges at once: each is discarded by its own call, as on kernels before 6.14.
#[test]
fn valgrind_finds_no_fault() {
    let Some(program) = program() else { return };
    if !has("valgrind") {
        return skipped("there is no valgrind");
    }
    let _lock = lock();
    let mut command = plain("valgrind".as_ref());
    command.args(["--quiet", "--error-exitcode=9"]).arg(program.path()).args(["contents", "2"]);
    assert!(run(&mut command).ends_with("ok\n"));
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
fn an_array_of_fortran_is_folded() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let libraries = library().parent().map(Path::to_owned).unwrap();
    if !has("gfortran") {
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
