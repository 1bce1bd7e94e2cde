//! The edit that makes comments of the lines of a file that write to KSM, and its reverse.

/// An edit by sed. A second run changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEdit {
    /// The lines become comments with a mark.
    CommentOut,
    /// Marked comments become lines again.
    CommentBack,
}

impl LineEdit {
    /// Returns the script of sed.
    pub const fn script(self) -> &'static str {
        match self {
            // A path of systemd-tmpfiles may be a pattern: `/sys/kernel/mm/*/run`.
            Self::CommentOut => r"/^[[:space:]]*[#;]/!s|^.*mm/[k*?[].*$|#ksmith# &|",
            Self::CommentBack => "s|^#ksmith# ||",
        }
    }

    /// Returns the command for a shell that edits a file.
    pub fn command(self, file: &str) -> String {
        format!("sed -i '{}' '{}'", self.script(), file.replace('\'', r"'\''"))
    }
}
