//! The kernel's log since a moment, searched for faults of the kernel.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// Words that the kernel logs when its own state is wrong.
const FAULTS: [&str; 7] =
    ["BUG:", "kernel BUG", "Oops", "Bad page", "Bad rss-counter", "EXT4-fs error", "non-zero pgtables_bytes"];

/// A reader of `/dev/kmsg`.
pub struct KernelLog {
    file: Option<File>,
}

impl KernelLog {
    /// Reads from now on. Without the right to read the log it stays empty.
    pub fn from_now() -> Self {
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open("/dev/kmsg").ok();
        if let Some(file) = &mut file {
            let _ = file.seek(SeekFrom::End(0));
        }
        Self { file }
    }

    /// The lines since the last call that tell of a fault.
    pub fn faults(&mut self) -> Vec<String> {
        let Some(file) = &mut self.file else { return Vec::new() };
        let mut found = Vec::new();
        let mut record = [0; 8192];
        loop {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => {
                    let line = String::from_utf8_lossy(&record[..length]).into_owned();
                    if FAULTS.iter().any(|fault| line.contains(fault)) {
                        found.push(line);
                    }
                }
                // Records were overwritten before they were read.
                Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        found
    }
}
