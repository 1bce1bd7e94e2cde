//! The `ksmith` command: one file per subcommand, their output, and the log.

#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod cli;
pub mod exit;
pub mod log;
pub mod manual;
pub mod report;
pub mod setup;
pub mod show;
pub mod top;
