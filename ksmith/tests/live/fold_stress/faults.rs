//! The checks themselves: a program that discards zero pages without care loses writes, and each kind of check finds it.

use super::attacks::ATTACKS;
use super::program::StressProgram;

#[test]
fn a_lost_write_is_found() {
    let Some(program) = StressProgram::compile() else { return };
    for what in [&["all"][..], &ATTACKS].concat() {
        // It ends with the first byte that differs.
        let difference = program.start(600, &[what, "broken"]).wait_for_difference();
        assert!(difference.is_some(), "{what}: nothing differed");
    }
}
