//! Replacing a file whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `text` in the place of the file at `path`, whole or not at all, and waits until it is on disk.
///
/// # Errors
/// The new file can't be written, synced or renamed. The old one stays.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("json.new");
    let write = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().inspect_err(|_| {
        // Best effort: the error above is the one to report.
        let _ = fs::remove_file(&new);
    })?;
    path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
}
