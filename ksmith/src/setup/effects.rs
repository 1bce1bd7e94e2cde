//! All effects of a setup on a host.

use std::io;
use std::path::{Path, PathBuf};

/// A failure to do or undo a step.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A file can't be read, written or removed.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A program can't be started.
    #[error("{program} can't be started: {source}; is it installed and in PATH?")]
    Start {
        /// Name of the program.
        program: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A program reports an error.
    #[error("`{program} {}` failed ({status}): {said}", .arguments.join(" "))]
    Failed {
        /// Name of the program.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
        /// Its exit status.
        status: String,
        /// The last line that it wrote on standard error.
        said: String,
    },
    /// The notes of an earlier setup make no sense.
    #[error("the notes of an earlier setup, {}, make no sense: {why}; move the file away, and undo by hand what it names", path.display())]
    Notes {
        /// Path of the notes.
        path: PathBuf,
        /// The error in them.
        why: String,
    },
}

/// The access of a setup to a host. Paths begin at the root of the host, with or without a slash.
pub trait SetupEffects {
    /// Returns the text of a file; `None` if there is no such file.
    ///
    /// # Errors
    /// The file can't be read.
    fn text(&self, path: &Path) -> Result<Option<String>, SetupError>;

    /// Returns true if a file or a link is there.
    fn exists(&self, path: &Path) -> bool;

    /// Replaces a file atomically and durably. Makes its directory.
    ///
    /// # Errors
    /// The file can't be written; the old one stays.
    fn write(&mut self, path: &Path, text: &str, mode: u32) -> Result<(), SetupError>;

    /// Removes a file or a link if it is there. Also removes its directory if that is then empty, and one of drop-ins
    /// or of a profile of ksmith's.
    ///
    /// # Errors
    /// The file can't be removed.
    fn remove(&mut self, path: &Path) -> Result<(), SetupError>;

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// The link can't be made.
    fn link(&mut self, path: &Path, target: &Path) -> Result<(), SetupError>;

    /// Runs a program and waits for its end.
    ///
    /// # Errors
    /// The program can't be started, or ends with another code than 0.
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<(), SetupError>;
}
