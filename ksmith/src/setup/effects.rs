//! All effects of a setup on a host.

use std::io;
use std::path::{Path, PathBuf};

/// Why a step could not be done or undone.
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
    #[error("`{command}` failed ({status}): {said}")]
    Failed {
        /// The whole command.
        command: String,
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
        /// What is wrong with them.
        why: String,
    },
}

/// What a setup reads and changes. Paths begin at the root of the host, with or without a slash.
pub trait Effects {
    /// The text of a file. `None` if there is no such file.
    ///
    /// # Errors
    /// The file can't be read.
    fn text(&self, path: &Path) -> Result<Option<String>, SetupError>;

    /// Whether a file or a link is there.
    fn exists(&self, path: &Path) -> bool;

    /// Puts a text in the place of a file, whole or not at all, on disk before this returns. Makes its directory.
    ///
    /// # Errors
    /// The file can't be written; the old one stays.
    fn write(&mut self, path: &Path, text: &str, mode: u32) -> Result<(), SetupError>;

    /// Removes a file or a link if it is there, and its directory if that is one of drop-ins or of a profile of ksmith's, and
    /// empty then.
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
