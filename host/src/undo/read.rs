//! Reading a file whole, up to a limit.

use std::fs::File;
use std::io;
use std::path::Path;

use super::UndoError;
use crate::proc_file::read_within;

/// The longest file that is read, in bytes: some 50,000 entries.
const LONGEST: u64 = 16 << 20;

/// Returns the text of a file; `None` if there is no such file.
pub(super) fn text_of(path: &Path) -> Result<Option<Vec<u8>>, UndoError> {
    let read = match File::open(path) {
        Ok(file) => read_within(file, LONGEST),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => Err(error),
    };
    match read {
        Ok(Some(text)) => Ok(Some(text)),
        Ok(None) => Err(UndoError::Damaged { path: path.to_owned(), why: format!("longer than {LONGEST} bytes") }),
        Err(source) => Err(UndoError::Read { path: path.to_owned(), source }),
    }
}
