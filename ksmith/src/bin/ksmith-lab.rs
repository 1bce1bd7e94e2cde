//! Laboratory, simulator and demo: the commands `ksmith lab`, `ksmith sim` and `ksmith demo`.

use std::process::ExitCode;

use ksmith::cli::{self, LabProgramCommand, SiblingCli};

fn main() -> ExitCode {
    cli::main::<SiblingCli<LabProgramCommand>>()
}
