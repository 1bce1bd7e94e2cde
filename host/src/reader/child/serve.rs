//! The child's work: it takes requests and answers them in their order.
//!
//! Answers to small requests are told together once no request is left, since each telling wakes the parent. How far the
//! child has come the parent sees by the requests that are unread.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, ioctl_fionread, pread, read, retry_on_intr};

use super::page::Pages;
use super::{FIXED, Form, HEAD, PIECE, REQUEST};

/// Answers requests until there are no more. Runs in the child: it must not allocate, lock or panic.
pub(super) fn serve(requests: BorrowedFd<'_>, answers: BorrowedFd<'_>, proc: BorrowedFd<'_>) {
    let mut request = [0; REQUEST];
    let mut said = Said { answers, buffer: [0; ROOM], length: 0 };
    let mut pages = Pages::default();
    loop {
        if ioctl_fionread(requests).unwrap_or(0) == 0 {
            // Once the answers are there, no file of another process is open here.
            pages = Pages::default();
            if said.tell().is_none() {
                return;
            }
        }
        if take(requests, &mut request).is_none() || answer(&mut said, proc, &request, &mut pages).is_none() {
            return;
        }
    }
}

/// Takes a whole request. `None`: there will be none.
fn take(requests: BorrowedFd<'_>, request: &mut [u8; REQUEST]) -> Option<()> {
    let mut got = 0;
    while let Some(rest) = request.get_mut(got..).filter(|rest| !rest.is_empty()) {
        got += retry_on_intr(|| read(requests, &mut *rest)).ok().filter(|count| *count > 0)?;
    }
    Some(())
}

/// Room for answers: a piece, and others in front of it.
const ROOM: usize = 2 * PIECE + HEAD + HEAD;

/// Answers that are not told yet.
struct Said<'a> {
    answers: BorrowedFd<'a>,
    buffer: [u8; ROOM],
    length: usize,
}

impl Said<'_> {
    /// Room for a piece of at most this length. `None`: the parent listens no more.
    fn room(&mut self, most: usize) -> Option<&mut [u8]> {
        // Behind the piece there may be the end of the answer.
        if self.length + HEAD + most + HEAD > ROOM {
            self.tell()?;
        }
        self.buffer.get_mut(self.length + HEAD..)?.get_mut(..most)
    }

    /// Says the piece that was put into its room.
    fn piece(&mut self, length: usize) -> Option<()> {
        if length > 0 {
            self.head(i32::try_from(length).ok()?)?;
            self.length += length;
        }
        Some(())
    }

    /// Says that an answer ends here.
    fn end(&mut self) -> Option<()> {
        self.head(0)
    }

    fn error(&mut self, error: Errno) -> Option<()> {
        self.room(0)?;
        self.head(-error.raw_os_error())
    }

    fn head(&mut self, head: i32) -> Option<()> {
        *self.buffer.get_mut(self.length..)?.first_chunk_mut()? = head.to_ne_bytes();
        self.length += HEAD;
        Some(())
    }

    /// Writes all of it. `None`: the parent listens no more.
    fn tell(&mut self) -> Option<()> {
        let mut rest = self.buffer.get(..self.length)?;
        while !rest.is_empty() {
            let count = retry_on_intr(|| rustix::io::write(self.answers, rest)).ok()?;
            rest = rest.get(count..)?;
        }
        self.length = 0;
        Some(())
    }
}

/// Answers one request. `None`: the parent listens no more.
fn answer(said: &mut Said<'_>, proc: BorrowedFd<'_>, request: &[u8; REQUEST], pages: &mut Pages) -> Option<()> {
    let word = |at: usize| request.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word));
    let (offset, most) = (word(0)?, word(8)?);
    let path = request.get(FIXED..).and_then(|path| CStr::from_bytes_until_nul(path).ok())?;
    let form = *request.get(16)?;
    if form == Form::Page as u8 {
        let room = said.room(PIECE)?;
        return match pages.read(proc, path, offset, room.get_mut(..usize::try_from(most).ok()?.min(PIECE))?) {
            Ok(None) => said.end(),
            Ok(Some(page)) => {
                let bytes = page.to_bytes();
                said.room(bytes.len())?.copy_from_slice(&bytes);
                said.piece(bytes.len())?;
                said.end()
            }
            Err(error) => said.error(error),
        };
    }
    match openat(proc, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
        Ok(file) => read_file(said, file.as_fd(), offset, most, form == Form::Record as u8),
        Err(error) => said.error(error),
    }
}

/// Reads a file. `None`: the parent listens no more.
fn read_file(
    said: &mut Said<'_>,
    file: BorrowedFd<'_>,
    mut offset: u64,
    mut left: u64,
    is_one_record: bool,
) -> Option<()> {
    loop {
        let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let room = said.room(wanted)?;
        let count = match retry_on_intr(|| pread(file, &mut *room, offset)) {
            Ok(count) => count,
            Err(error) => return said.error(error),
        };
        said.piece(count)?;
        offset = offset.saturating_add(count as u64);
        left = left.saturating_sub(count as u64);
        if count == 0 || left == 0 || is_one_record && count < wanted {
            return said.end();
        }
        if !is_one_record {
            said.tell()?;
        }
    }
}
