//! The child's loop: it serves read requests. It must not allocate, lock or panic.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, openat, readlinkat_raw};
use rustix::io::{Errno, pread, retry_on_intr};

use super::file_status::FileStatus;
use super::namespace::NamespaceOwner;
use super::page::{self, ADDRESSES};
use super::same_memory::have_one_memory;
use super::zero_mapped::ZeroMappedCounter;
use super::{FIXED, HEAD, REQUEST, RequestForm};

/// The longest piece of a reply.
const PIECE: usize = 32 << 10;

/// Pages in one piece of a reply.
const PAGES_AT_A_TIME: usize = 8;

/// Bytes of the buffer for composing a reply.
pub(super) const ROOM: usize = HEAD + PIECE + HEAD;

/// Serves the requests of the first descriptor on the second until there are no more. The third is `/proc`. `page` is
/// as long as a page.
pub(super) fn requests([requests, answers, proc]: [BorrowedFd<'_>; 3], buffer: &mut [u8], page: &mut [u8]) {
    let mut request = [0; REQUEST];
    let mut addresses = [0; ADDRESSES * 8];
    while receive_bytes(requests, &mut request) {
        let form = request.get(16).copied();
        let [is_pages, is_zeros, is_same] =
            [RequestForm::Pages, RequestForm::ZeroMapped, RequestForm::SameMemory].map(|of| form == Some(of as u8));
        let listens = if is_pages || is_zeros || is_same {
            let count = usize::try_from(word(&request, 8)).unwrap_or(usize::MAX).saturating_mul(8);
            let Some(addresses) = addresses.get_mut(..count) else { return };
            receive_bytes(requests, addresses)
                && if is_pages {
                    tell_pages(answers, proc, &request, addresses, buffer, page)
                } else if is_same {
                    tell_same_memory(answers, &request, addresses, buffer)
                } else {
                    tell_zero_mapped(answers, proc, &request, addresses, buffer)
                }
        } else if form.is_some_and(|form| form <= RequestForm::Record as u8) {
            tell_file(answers, proc, &request, buffer)
        } else {
            tell_link(answers, proc, &request, buffer)
        };
        if !listens {
            return;
        }
    }
}

/// Fills `bytes` from the socket. Returns false on its end or an error.
fn receive_bytes(requests: BorrowedFd<'_>, bytes: &mut [u8]) -> bool {
    let mut got = 0;
    while let Some(rest) = bytes.get_mut(got..).filter(|rest| !rest.is_empty()) {
        match retry_on_intr(|| rustix::io::read(requests, &mut *rest)) {
            Ok(count) if count > 0 => got += count,
            _ => return false,
        }
    }
    true
}

fn word(request: &[u8; REQUEST], at: usize) -> u64 {
    request.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_ne_bytes(*word))
}

fn path(request: &[u8; REQUEST]) -> &CStr {
    request.get(FIXED..).and_then(|path| CStr::from_bytes_until_nul(path).ok()).unwrap_or(c"")
}

/// Answers a request for pages. Returns true if the parent still listens.
fn tell_pages(
    answers: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    request: &[u8; REQUEST],
    addresses: &[u8],
    buffer: &mut [u8],
    page: &mut [u8],
) -> bool {
    let fail = |error: Errno| say(answers, &(-error.raw_os_error()).to_ne_bytes());
    let files = match page::PageFiles::open(proc, path(request)) {
        Ok(files) => files,
        Err(error) => return fail(error),
    };
    // A process may make each read wait a little: the parent is to hear that it goes on.
    for addresses in addresses.chunks(PAGES_AT_A_TIME * 8) {
        let Some(records) = buffer.get_mut(HEAD..) else { return false };
        match files.read(addresses, records, page) {
            Ok(length) if say_piece(answers, buffer, length) => {}
            Ok(_) => return false,
            Err(error) => return fail(error),
        }
    }
    // Once the answer is there, no file of another process is open here.
    drop(files);
    say_last_piece(answers, buffer, 0)
}

/// Answers a request for zero-mapped bytes: a count of 8 bytes for each piece of the ranges. Returns true if the parent
/// still listens.
fn tell_zero_mapped(
    answers: BorrowedFd<'_>,
    proc: BorrowedFd<'_>,
    request: &[u8; REQUEST],
    ranges: &[u8],
    buffer: &mut [u8],
) -> bool {
    let fail = |error: Errno| say(answers, &(-error.raw_os_error()).to_ne_bytes());
    let mut counter = match ZeroMappedCounter::open(proc, path(request)) {
        Ok(counter) => counter,
        Err(error) => return fail(error),
    };
    for range in ranges.chunks_exact(16) {
        let [start, end] = [0, 8]
            .map(|at| range.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_ne_bytes(*word)));
        let counted = counter.count(start, end, |bytes| {
            let Some(piece) = buffer.get_mut(HEAD..HEAD + 8) else { return false };
            piece.copy_from_slice(&bytes.to_ne_bytes());
            say_piece(answers, buffer, 8)
        });
        match counted {
            Ok(true) => {}
            Ok(false) => return false,
            Err(error) => return fail(error),
        }
    }
    drop(counter);
    say_last_piece(answers, buffer, 0)
}

/// Answers a comparison of memory maps: a byte for each of these PIDs. Returns true if the parent still listens.
fn tell_same_memory(answers: BorrowedFd<'_>, request: &[u8; REQUEST], pids: &[u8], buffer: &mut [u8]) -> bool {
    let one = word(request, 0);
    let Some(places) = buffer.get_mut(HEAD..) else { return false };
    for (pid, place) in pids.as_chunks::<8>().0.iter().zip(places) {
        *place = u8::from(have_one_memory(one, u64::from_ne_bytes(*pid)));
    }
    say_last_piece(answers, buffer, pids.len() / 8)
}

/// Answers a request for a file. Returns true if the parent still listens.
fn tell_file(answers: BorrowedFd<'_>, proc: BorrowedFd<'_>, request: &[u8; REQUEST], buffer: &mut [u8]) -> bool {
    let (mut offset, mut left) = (word(request, 0), word(request, 8));
    let is_one_record = request.get(16) == Some(&(RequestForm::Record as u8));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match openat(proc, path(request), flags, Mode::empty()) {
        Ok(file) => file,
        Err(error) => return say(answers, &(-error.raw_os_error()).to_ne_bytes()),
    };
    loop {
        let wanted = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let Some(piece) = buffer.get_mut(HEAD..HEAD + wanted) else { return false };
        let count = match retry_on_intr(|| pread(&file, &mut *piece, offset)) {
            Ok(count) => count,
            Err(error) => return say(answers, &(-error.raw_os_error()).to_ne_bytes()),
        };
        offset = offset.saturating_add(count as u64);
        left = left.saturating_sub(count as u64);
        if count == 0 || left == 0 || is_one_record && count < wanted {
            // Once the answer is there, no file of another process is open here.
            drop(file);
            return say_last_piece(answers, buffer, count);
        }
        if !say_piece(answers, buffer, count) {
            return false;
        }
    }
}

/// Answers a request about a link, or the file behind it. Returns true if the parent still listens.
fn tell_link(answers: BorrowedFd<'_>, proc: BorrowedFd<'_>, request: &[u8; REQUEST], buffer: &mut [u8]) -> bool {
    let Some(piece) = buffer.get_mut(HEAD..HEAD + PIECE) else { return false };
    let path = path(request);
    let found = if request.get(16) == Some(&(RequestForm::Link as u8)) {
        readlinkat_raw(proc, path, piece)
    } else if request.get(16) == Some(&(RequestForm::Status as u8)) {
        FileStatus::read(proc, path).map(|status| put(piece, &status.to_bytes()))
    } else {
        NamespaceOwner::read(proc, path).map(|owner| owner.map_or(0, |owner| put(piece, &owner.to_bytes())))
    };
    match found {
        Ok(length) => say_last_piece(answers, buffer, length),
        Err(error) => say(answers, &(-error.raw_os_error()).to_ne_bytes()),
    }
}

/// Copies `bytes` to the beginning of a piece. Returns their number.
fn put(piece: &mut [u8], bytes: &[u8]) -> usize {
    piece.get_mut(..bytes.len()).map_or(0, |place| {
        place.copy_from_slice(bytes);
        bytes.len()
    })
}

/// Sends a piece from the buffer, which holds it behind the head.
fn say_piece(answers: BorrowedFd<'_>, buffer: &mut [u8], count: usize) -> bool {
    if let Some(head) = buffer.first_chunk_mut() {
        *head = (count as i32).to_ne_bytes();
    }
    buffer.get(..HEAD + count).is_some_and(|piece| say(answers, piece))
}

/// Sends the last piece from the buffer, if `count` is not 0, and the end of the reply.
fn say_last_piece(answers: BorrowedFd<'_>, buffer: &mut [u8], count: usize) -> bool {
    let end = if count > 0 { HEAD + count } else { 0 };
    if let Some(head) = buffer.first_chunk_mut() {
        *head = (count as i32).to_ne_bytes();
    }
    if let Some(end) = buffer.get_mut(end..end + HEAD) {
        end.fill(0);
    }
    buffer.get(..end + HEAD).is_some_and(|said| say(answers, said))
}

/// Writes all of `bytes`. Returns true on success.
fn say(answers: BorrowedFd<'_>, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match retry_on_intr(|| rustix::io::write(answers, bytes)) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(_) => return false,
        }
    }
    true
}
