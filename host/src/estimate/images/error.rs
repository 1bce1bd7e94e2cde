//! Errors of images.

use std::io;
use std::path::Path;

/// An error of an estimate over images.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// A file can't be read.
    #[error("can't read {path}: {why}")]
    Unreadable {
        /// The path.
        path: String,
        /// The reason.
        why: String,
    },
    /// A file is no image of memory in which pages lie whole.
    #[error("{path} {why}")]
    NoImage {
        /// The path.
        path: String,
        /// The reason, with the remedy.
        why: String,
    },
    /// A file is named twice, and would count as two guests with the same memory.
    #[error("{path} and {other} are one file: name the memory of each guest once")]
    NamedTwice {
        /// The path.
        path: String,
        /// The path under which it was named before.
        other: String,
    },
    /// The kernel has no random numbers.
    #[error("can't get random numbers: {0}")]
    NoRandomNumbers(String),
}

/// A fault of one image.
#[derive(Debug, thiserror::Error)]
pub(super) enum ImageFault {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else: the rest of a sentence that begins with its path.
    #[error("{0}")]
    Other(&'static str),
    /// It breaks off, or contradicts itself.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// The stream of a monitor has a part that can't be skipped.
    #[error("is a QEMU state with {0:?}, which can't be read: take a dump with `virsh dump --memory-only`")]
    UnknownPart(String),
}

impl ImageFault {
    /// Returns the error with the path of the file.
    pub fn of_file(self, path: &Path) -> ImageError {
        let path = path.display().to_string();
        match self {
            Self::Io(why) if why.kind() == io::ErrorKind::UnexpectedEof => {
                ImageError::NoImage { path, why: "is damaged: it ends too early".to_owned() }
            }
            Self::Io(why) => ImageError::Unreadable { path, why: why.to_string() },
            other => ImageError::NoImage { path, why: other.to_string() },
        }
    }
}
