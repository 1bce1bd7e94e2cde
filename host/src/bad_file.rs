//! Files that an operator writes, and their errors.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The largest accepted file, in bytes. A device has no end, and would take all memory.
pub const LONGEST: u64 = 1 << 20;

/// Reads a file that an operator writes.
///
/// # Errors
/// It can't be read, is longer than [`LONGEST`], or is no text.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        let why = format!("it is longer than {} MiB, so it is none", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// An error in a file that an operator writes.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// The file can't be read.
    #[error("can't read the {what} {}: {source}", path.display())]
    Unreadable {
        /// Kind of the file, such as `configuration`.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The content is not valid. The message has line and column.
    #[error("{}: {message}", path.display())]
    Meaningless {
        /// Path of the file.
        path: PathBuf,
        /// The fault, with line and column.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_longest_and_only_if_it_is_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            read_text(file.path()).map_err(|error| error.to_string())
        };
        assert_eq!(read("ä\n".as_bytes()), Ok("ä\n".to_owned()));
        let longest = vec![b' '; LONGEST as usize];
        assert_eq!(read(&longest).map(|text| text.len()), Ok(longest.len()));
        assert_eq!(read(&[&longest[..], b" "].concat()), Err("it is longer than 1 MiB, so it is none".to_owned()));
        assert_eq!(read(b"\xff"), Err("it is no text in UTF-8".to_owned()));
        assert!(read_text(Path::new("/dev/zero")).is_err());
    }
}
