//! The files of an experiment: its results, and the report on them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{ReportError, page};
use crate::results::LabResults;

/// An error of writing the report's files.
#[derive(Debug, thiserror::Error)]
pub enum ReportWriteError {
    /// A plot can't be drawn.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The results are no JSON.
    #[error("can't write the results as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A file can't be written.
    #[error("can't write {}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// Writes `results.json` and `report.html` into a directory.
///
/// # Errors
/// A plot can't be drawn, or a file can't be written.
pub fn write(results: &LabResults, directory: &Path) -> Result<(), ReportWriteError> {
    let page = page(results)?;
    let write = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|source| ReportWriteError::File { path, source })
    };
    write("results.json", serde_json::to_string(results)?)?;
    write("report.html", page)
}
