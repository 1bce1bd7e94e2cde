//! The `ksmith` command: one file per subcommand, what they show, and the log.

pub mod cli;
pub mod log;
pub mod show;
