//! The beginning of a program's file: ELF of both widths and byte orders, scripts, and anything else.
#![no_main]

use ksmith_core::job::ProgramKind;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = ProgramKind::recognise(bytes);
});
