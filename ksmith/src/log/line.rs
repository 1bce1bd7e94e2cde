//! The log's lines on a standard error that may be a pipe or a socket which nobody reads, or slowly.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest line without its end. A pipe or a socket that is ready takes `PIPE_BUF` bytes at once.
const LONGEST: usize = rustix::pipe::PIPE_BUF - 1;

/// Lines for which there was no room.
static LOST: AtomicU64 = AtomicU64::new(0);

/// A writer of lines that never waits. A line for which there is no room is lost; the next one that is written tells
/// how many were.
pub(super) struct LogLines<W> {
    out: W,
    lost: &'static AtomicU64,
}

/// Returns a writer of lines to standard error, which is locked meanwhile: no other thread takes the room.
pub(super) fn lock_stderr() -> LogLines<io::StderrLock<'static>> {
    LogLines { out: io::stderr().lock(), lost: &LOST }
}

impl<W: Write + AsFd> LogLines<W> {
    fn has_room(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A file that can't be polled is no pipe.
        poll(&mut [PollFd::new(&self.out, PollFlags::OUT)], Some(&now)) != Ok(0)
    }

    fn tell_lost(&mut self) -> io::Result<()> {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            lost => {
                let told = format!(" WARN {lost} lines of the log were lost, since it was not read\n");
                self.out.write_all(told.as_bytes())
            }
        }
    }
}

impl<W: Write + AsFd> Write for LogLines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.has_room() {
            self.tell_lost()?;
        }
        if !self.has_room() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(line.len());
        }
        match line.get(..LONGEST) {
            // It would wait for the rest.
            Some(begin) if line.len() > LONGEST => self.out.write_all(&[begin, b"\n"].concat())?,
            _ => self.out.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Writes lines to what nobody reads until two are lost, and one more after `bytes` are read. Returns all that is
    /// read.
    fn read_late(ours: OwnedFd, mut theirs: impl Read, line: &str, bytes: usize) -> String {
        let lost: &'static AtomicU64 = Box::leak(Box::default());
        let mut lines = LogLines { out: File::from(ours), lost };
        let mut written = 0;
        while lost.load(Ordering::Relaxed) < 2 {
            assert!(written < 1 << 20, "a pipe without an end");
            lines.write_all(format!("{written} {line}\n").as_bytes()).unwrap();
            written += 1;
        }
        let mut first = vec![0; bytes];
        theirs.read_exact(&mut first).unwrap();
        lines.write_all(b"late\n").unwrap();
        drop(lines);
        let mut text = String::from_utf8(first).unwrap();
        theirs.read_to_string(&mut text).unwrap();
        assert!(text.starts_with(&format!("0 {}", &line[..10])), "{text}");
        text
    }

    fn last_two(text: &str) -> [&str; 2] {
        let mut lines = text.lines().rev();
        let last = lines.next().unwrap();
        [lines.next().unwrap(), last]
    }

    /// Half of a pipe.
    const HALF: usize = 32 << 10;

    const TOLD: &str = " WARN 2 lines of the log were lost, since it was not read";

    #[test]
    fn lines_that_nobody_reads_are_counted_and_hold_up_nothing() {
        let (theirs, ours) = rustix::pipe::pipe().unwrap();
        assert_eq!(last_two(&read_late(ours, File::from(theirs), "a line of the log", HALF)), [TOLD, "late"]);
        // Of a socket each line takes the room of several.
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert_eq!(last_two(&read_late(ours.into(), theirs, "a line of the log", 512)), [TOLD, "late"]);
    }

    #[test]
    fn a_line_that_a_pipe_takes_only_in_parts_is_cut() {
        let (theirs, ours) = rustix::pipe::pipe().unwrap();
        let text = read_late(ours, File::from(theirs), &"x".repeat(3 * LONGEST), HALF);
        assert!(text.lines().all(|line| line.len() <= LONGEST) && last_two(&text) == [TOLD, "late"], "{text}");
    }

    #[test]
    fn a_file_takes_every_line() {
        let mut file = tempfile::tempfile().unwrap();
        let lost: &'static AtomicU64 = Box::leak(Box::default());
        LogLines { out: file.try_clone().unwrap(), lost }.write_all(b"a line\n").unwrap();
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), lost.load(Ordering::Relaxed)), ("a line\n", 0));
    }
}
