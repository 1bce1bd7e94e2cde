//! Files that an operator writes, and their errors.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::proc_file::lossy;

/// The largest accepted file, in bytes. A device has no end, and would take all memory.
pub const LONGEST: u64 = 1 << 20;

/// Reads a file that an operator writes. It waits for no writer: the daemon reads its configuration again at a signal.
///
/// # Errors
/// It can't be read, is longer than [`LONGEST`], is no text, or is a FIFO or a socket.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read_bytes(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
}

/// Reads a file of another program's that an operator writes. Its comments may be in any encoding: what is no UTF-8 is
/// replaced. A byte order mark is left out.
///
/// # Errors
/// It can't be read, or is longer than [`LONGEST`].
pub fn read_any_text(path: &Path) -> io::Result<String> {
    let text = lossy(read_bytes(path)?);
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, which can't be read again"));
    }
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        let why = format!("it is longer than {} MiB, so it is none", LONGEST >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
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
        assert_eq!(read(b"\xff"), Err("it is not UTF-8 text".to_owned()));
        assert!(read_text(Path::new("/dev/zero")).is_err());
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
    }

    #[test]
    fn a_fifo_is_refused_at_once_with_and_without_a_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let _writer = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        assert_eq!(read_text(&path).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn another_programs_file_is_read_whatever_the_encoding_of_its_comments() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // A comment in KOI8-R behind a byte order mark.
        std::fs::write(file.path(), b"\xef\xbb\xbf# \xd0\xcf\xd2\xcf\xc7\nKSM_THRES_COEF=30\n").unwrap();
        let text = read_any_text(file.path()).unwrap();
        assert!(text.starts_with("# ") && text.ends_with("\nKSM_THRES_COEF=30\n"), "{text:?}");
        assert!(read_any_text(Path::new("/dev/zero")).is_err());
    }
}
