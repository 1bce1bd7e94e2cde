//! The programs that have some of the commands: `ksmith` becomes one of them for such a command.
//!
//! Each is called with the command line of `ksmith`, and knows its own commands only: what root's daemon does not run is not
//! in its program.

use std::env;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use super::CommandFailure;

/// A program that has some of the commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SiblingProgram {
    /// The daemon.
    Daemon,
    /// Laboratory, simulator and demo.
    Lab,
    /// The web server.
    Serve,
}

impl SiblingProgram {
    fn name(self) -> &'static str {
        match self {
            Self::Daemon => "ksmithd",
            Self::Lab => "ksmith-lab",
            Self::Serve => "ksmith-serve",
        }
    }

    /// Returns the program's path: beside this program, or in the package's directory of libraries.
    ///
    /// # Errors
    /// The program is in neither place.
    pub fn path(self) -> Result<PathBuf, CommandFailure> {
        let own = env::current_exe().unwrap_or_default();
        let beside = own.parent().unwrap_or(Path::new("/"));
        let places = [beside.to_owned(), beside.join("../lib/ksmith")];
        // Where others may create files, theirs is not run.
        let owner = fs::metadata(&own).ok().map(|own| own.uid());
        let is_ours = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.is_file() && Some(it.uid()) == owner);
        let found = places.iter().map(|place| place.join(self.name())).find(is_ours);
        found.ok_or_else(|| {
            let places = places.map(|place| place.display().to_string()).join(" nor in ");
            CommandFailure::with_code(
                crate::exit::FAILED,
                format!("{} is neither in {places}: install the whole package of ksmith", self.name()),
            )
        })
    }

    /// Replaces this process by the program, with the same command line.
    ///
    /// # Errors
    /// The program is missing, or can't be run.
    pub fn replace_this(self) -> anyhow::Result<ExitCode> {
        let path = self.path()?;
        let why = Command::new(&path).args(env::args_os().skip(1)).exec();
        let remedy = match why.kind() {
            ErrorKind::PermissionDenied => "chmod 755 it",
            _ => "install the whole package of ksmith",
        };
        let message = format!("{} can't be run ({why}): {remedy}", path.display());
        Err(CommandFailure::with_code(crate::exit::FAILED, message).into())
    }
}
