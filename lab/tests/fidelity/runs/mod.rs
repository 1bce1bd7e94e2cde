//! Live runs of the lab's scenarios against the same runs simulated: what was recorded, and how far the two are apart.

mod difference;
pub mod trace;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use difference::RunDifference;
pub use trace::RecordedTrace;

/// Writes a copy of the scenario at `path` into `directory`, with a short form of this many seconds. Returns the copy's
/// path.
///
/// # Errors
/// A file can't be read or written, or is no scenario with a short form.
pub fn scaled(path: &Path, seconds: f64, directory: &Path) -> io::Result<PathBuf> {
    let refuse = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
    let mut table: toml::Table =
        fs::read_to_string(path)?.parse().map_err(|why: toml::de::Error| refuse(why.to_string()))?;
    let short = table.get_mut("short").and_then(toml::Value::as_table_mut);
    short.ok_or_else(|| refuse("no short form".to_owned()))?.insert("seconds".to_owned(), seconds.into());
    let name = path.file_name().ok_or_else(|| refuse("no name of a file".to_owned()))?;
    let copy = directory.join(name);
    fs::write(&copy, table.to_string())?;
    Ok(copy)
}
