//! The faults of a configuration, each with its place.

use std::fmt;
use std::path::{Path, PathBuf};

/// One fault and its place. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigFault {
    /// Line of the fault.
    pub line: usize,
    /// Column of the fault.
    pub column: usize,
    /// The fault in a sentence.
    pub message: String,
}

impl ConfigFault {
    /// Makes the fault at a byte of the text.
    pub(super) fn at(text: &str, byte: usize, message: String) -> Self {
        let before = text.get(..byte).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let column = before.get(start..).map_or(0, |line| line.chars().count()) + 1;
        Self { line: before.matches('\n').count() + 1, column, message }
    }
}

/// All faults of one file, in its order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigFaults {
    /// Path of the file.
    pub path: PathBuf,
    /// The faults in the order of the file.
    pub faults: Vec<ConfigFault>,
}

impl ConfigFaults {
    /// Puts faults in the order of the file.
    pub(super) fn new(path: &Path, mut faults: Vec<ConfigFault>) -> Self {
        faults.sort();
        faults.dedup();
        Self { path: path.to_owned(), faults }
    }

    /// Refuses a file that has faults.
    pub(super) fn refuse(path: &Path, faults: Vec<ConfigFault>) -> Result<(), Self> {
        if faults.is_empty() { Ok(()) } else { Err(Self::new(path, faults)) }
    }
}

/// A line for each fault, or with `{:#}` all in one line, as a log needs it.
impl fmt::Display for ConfigFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let between = if f.alternate() { "; " } else { "\n" };
        for (index, ConfigFault { line, column, message }) in self.faults.iter().enumerate() {
            let before = if index == 0 { "" } else { between };
            write!(f, "{before}{}:{line}:{column}: {message}", self.path.display())?;
        }
        Ok(())
    }
}
