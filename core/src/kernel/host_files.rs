//! The files of `/proc` that describe the host: a row of `host_files!` in `kernel/mod.rs` for each, from which the readings,
//! their parsers and their outcomes are made.

/// The way in which the kernel marks the end of a file's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEnd {
    /// A short read: files with one record (sysfs, most of /proc) and regular files.
    ShortRead,
    /// An empty read: a file of many records, which the kernel returns page by page (`/proc/vmstat`).
    EmptyRead,
    /// This marker, after which the text is not needed. Each piece is searched by itself, so a marker across two pieces
    /// is missed and more is read than needed.
    Before(&'static str),
}

impl TextEnd {
    /// Returns true if the marker is in a piece of the text.
    pub fn is_in(self, piece: &[u8]) -> bool {
        match self {
            Self::ShortRead | Self::EmptyRead => false,
            Self::Before(text) => piece.windows(text.len()).any(|window| window == text.as_bytes()),
        }
    }
}

/// A file of `/proc` that describes the host.
#[derive(Debug, Clone, Copy)]
pub struct HostFile {
    /// Its path.
    pub path: &'static str,
    /// The end of its text.
    pub end: TextEnd,
}

/// Declares `HostReadings` and `HOST_FILES`, from a row for each file: the name and the type of its reading, its path and
/// the end of its text.
macro_rules! host_files {
    ($($(#[$about:meta])* $name:ident: $type:ty, $path:literal, $end:expr;)*) => {
        /// The files of `/proc` that describe the host, as read at one moment.
        #[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct HostReadings {
            $($(#[$about])* pub $name: Reading<$type>,)*
        }

        /// The files, in the order of the fields of [`HostReadings`].
        pub const HOST_FILES: &[HostFile] = &[$(HostFile { path: $path, end: $end },)*];

        impl HostReadings {
            /// Reads and parses every file.
            pub fn read(files: &mut impl KernelFileSource) -> Self {
                Self { $($name: files.text($path).and_then(<$type>::parse),)* }
            }

            /// Returns the outcome of each file, without its value.
            pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, Reading<()>)> {
                [$(($path, self.$name.as_ref().map(|_| ())),)*].into_iter()
            }
        }
    };
}

pub(super) use host_files;
