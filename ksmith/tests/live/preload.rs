//! libksmith.so on the live kernel: unmodified programs have their equal pages merged. Every byte stays as it was
//! written, also while ksmd goes over it as fast as it can.

use crate::preload_library;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::preload_library::{CompiledProgram, FilledProgram, compile, library, library_with_blocks, run, skipped};
use crate::support::{KernelLock, clean_passes, guest, number, passes_until, write};
use ksmith_lab::MemoryPart;

type Way = (PathBuf, &'static [(&'static str, &'static str)]);

/// MiB of each kind of memory that are equal, and as many that are not.
const MIB: u64 = 4;

/// The program with the library, set in this way.
fn filled(program: &CompiledProgram, (library, settings): &Way) -> FilledProgram {
    FilledProgram::start(program.preloaded(library, settings).arg(MIB.to_string()))
}

/// Returns the library's ways of opting in here: by the kernel's own switch, if there is one, and by marking ranges.
fn ways() -> Vec<Way> {
    let mut ways: Vec<Way> =
        vec![(library_with_blocks(), &[("KSMITH_METHOD", "madvise"), ("KSMITH_THRESHOLD", "256K")])];
    if preload_library::has_prctl() {
        ways.push((library(), &[("KSMITH_METHOD", "prctl")]));
    }
    ways
}

#[test]
fn a_program_that_knows_nothing_has_its_equal_pages_merged() {
    let Some(program) = compile("tests/c/equal.c", &["-O2"]) else { return };
    let ways = ways();
    let Some(_lock) = KernelLock::acquire() else { return };
    for way in &ways {
        let before = number("pages_sharing");
        let programs = [filled(&program, way), filled(&program, way)];
        // The pages of three kinds, each content once for two; at the edges of a block up to two pages may be left.
        let expected = 3 * MIB * 256;
        passes_until(&format!("{expected} pages are merged by {way:?}"), || {
            number("pages_sharing") - before + 3 * 2 >= expected
        });
        programs.into_iter().for_each(FilledProgram::check);
        write("run", "2");
    }
}

#[test]
fn without_the_library_nothing_is_merged() {
    let Some(program) = compile("tests/c/equal.c", &["-O2"]) else { return };
    let none: Way = (library_with_blocks(), &[("KSMITH_RANGES", "none")]);
    let Some(_lock) = KernelLock::acquire() else { return };
    let programs = [filled(&program, &none), filled(&program, &none)];
    // Without any mergeable memory ksmd makes no passes.
    let _bait = guest(&[MemoryPart::Unique { pages: 1 }]);
    clean_passes(2);
    assert_eq!(number("pages_sharing"), 0);
    programs.into_iter().for_each(FilledProgram::check);
}

#[test]
fn memory_that_is_merged_under_stress_stays_what_it_was() {
    let Some(program) = compile("tests/c/stress.c", &[]) else { return };
    let ways = ways();
    let Some(_lock) = KernelLock::acquire() else { return };
    write("smart_scan", "0");
    write("pages_to_scan", "5000");
    write("sleep_millisecs", "1");
    write("run", "1");
    let merged = || number("pages_sharing") + number("pages_shared");
    for (library, settings) in &ways {
        let running = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(program.preloaded(library, settings).args(["3", "4"])));
            let mut most = 0;
            while !running.is_finished() {
                most = most.max(merged());
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            assert!(running.join().unwrap().starts_with("turns "));
            most
        });
        assert!(running > 0, "nothing was merged meanwhile by {settings:?}");
    }
    write("run", "0");
}

/// Runs the example in Python, if there is one with NumPy.
#[test]
fn an_array_of_numpy_is_marked_and_merged() {
    let python = ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let mut command = Command::new(python);
        command.args(["-c", "import numpy"]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    });
    let Some(python) = python else { return skipped("there is no Python with NumPy") };
    let library = library();
    let Some(_lock) = KernelLock::acquire() else { return };
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/python/example_numpy.py");
    let mut command = preload_library::plain(Path::new(python));
    command.arg(example).arg("--wait").env("KSMITH_LIBRARY", library).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("marked ") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended early");
    }
    let pages: u64 = line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 4096;
    clean_passes(3);
    // Half of it is ones, the other half the same ramp again and again: two contents.
    assert!(number("pages_sharing") * 10 >= pages * 9, "{} of {pages}", number("pages_sharing"));
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("unchanged") && rest.contains("the kernel"), "{rest}");
}
