//! The functions that `ksmith.h` declares.

mod types;

use core::ffi::{c_char, c_int, c_uint, c_void};

pub use types::{GuidedCounts, ProcessSavings};

use crate::client::{self, RequestDeadline};
use crate::errors::code;
use crate::fold::{self, FoldCounts};
use crate::sys::Errno;
use crate::text::{decimal, signed, value};
use crate::{constructor, errors, guided, marks, stats};

/// The version of the interface, as `KSMITH_VERSION`.
const VERSION: c_int = 2;

/// Limit of passes in one request, which is the daemon's limit.
const MOST_PASSES: c_uint = 16;

/// Timeout for the savings from the daemon, in milliseconds.
const PATIENCE: c_int = 2000;

/// Returns the version of the interface.
#[unsafe(no_mangle)]
pub extern "C" fn ksmith_version() -> c_int {
    VERSION
}

/// Returns the mode of the library in this process, as a word.
#[unsafe(no_mangle)]
pub extern "C" fn ksmith_method() -> *const c_char {
    constructor::method().as_ptr()
}

/// Offers the whole pages in a range to KSM.
#[unsafe(no_mangle)]
pub extern "C" fn ksmith_mark(start: *mut c_void, length: usize) -> c_int {
    code(marks::mark(start as usize, length))
}

/// Withdraws the pages with any byte of a range from KSM.
#[unsafe(no_mangle)]
pub extern "C" fn ksmith_unmark(start: *mut c_void, length: usize) -> c_int {
    code(marks::unmark(start as usize, length))
}

/// Requests clean passes from the daemon and waits for their end.
#[unsafe(no_mangle)]
pub extern "C" fn ksmith_scan(passes: c_uint, milliseconds: c_int) -> c_int {
    if !(1..=MOST_PASSES).contains(&passes) {
        return code(Err(libc::EINVAL));
    }
    let request = crate::text::LineBuffer::<32>::new().add(b"scan ").add_number(u64::from(passes));
    let deadline = RequestDeadline::in_milliseconds(milliseconds);
    code(client::send_request(request.bytes(), deadline, |_| (), |_| Some(())))
}

/// Reads the savings of this process.
///
/// # Safety
/// `savings` is null or points to a `struct ksmith_savings`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ksmith_saves(savings: *mut ProcessSavings) -> c_int {
    // SAFETY: as promised by the caller.
    let Some(savings) = (unsafe { savings.as_mut() }) else { return code(Err(libc::EINVAL)) };
    match saves() {
        Ok(found) => {
            *savings = found;
            0
        }
        Err(errno) => code(Err(errno)),
    }
}

fn saves() -> Result<ProcessSavings, Errno> {
    let told = client::send_request(b"saves", RequestDeadline::in_milliseconds(PATIENCE), |_| (), told);
    // The daemon's figures are better. The kernel's stand in where the daemon does not answer.
    told.or_else(|_| stats::own().map(ProcessSavings::from).ok_or(libc::ENODATA))
}

/// Parses a line `ok rss_bytes= …`.
fn told(line: &[u8]) -> Option<ProcessSavings> {
    let bytes = |key: &[u8]| value(line, key).and_then(decimal);
    Some(ProcessSavings {
        source: types::FROM_DAEMON,
        rss_bytes: bytes(b"rss_bytes")?,
        merged_bytes: bytes(b"merged_bytes")?,
        saved_bytes: bytes(b"saved_bytes")?,
        profit_bytes: value(line, b"profit_bytes").and_then(signed)?,
        zero_bytes: bytes(b"zero_bytes")?,
        reserved: [0; 2],
    })
}

/// Marks only the ranges that the daemon considers worth merging.
///
/// # Safety
/// `result` is null or points to a `struct ksmith_guided`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ksmith_guided(milliseconds: c_int, result: *mut GuidedCounts) -> c_int {
    match guided::follow(RequestDeadline::in_milliseconds(milliseconds)) {
        Ok(found) => {
            // SAFETY: as promised by the caller.
            if let Some(result) = unsafe { result.as_mut() } {
                *result = GuidedCounts { ranges: found.ranges, bytes: found.bytes };
            }
            0
        }
        Err(errno) => code(Err(errno)),
    }
}

/// Mask of the number of threads in the flags of `ksmith_fold`.
const FOLD_THREADS: c_uint = 0xff;

/// Returns the zero pages of a range to the kernel.
///
/// # Safety
/// `result` is null or points to a `struct ksmith_folded`. Until this returns the range stays mapped, no thread writes
/// to it, and no I/O into it is in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ksmith_fold(
    start: *mut c_void,
    length: usize,
    flags: c_uint,
    result: *mut FoldCounts,
) -> c_int {
    if flags & !FOLD_THREADS != 0 {
        return code(Err(libc::EINVAL));
    }
    // SAFETY: as promised by the caller.
    match unsafe { fold::fold(start as usize, length, flags as usize) } {
        Ok(folded) => {
            // SAFETY: as promised by the caller.
            if let Some(result) = unsafe { result.as_mut() } {
                *result = folded;
            }
            0
        }
        Err(errno) => code(Err(errno)),
    }
}

/// Returns the meaning of a code.
#[unsafe(no_mangle)]
pub extern "C" fn ksmith_strerror(error: c_int) -> *const c_char {
    errors::meaning(error).as_ptr()
}

/// Copies the reason of the daemon's latest refusal, terminated by a zero byte. Returns the length of the whole reason.
///
/// # Safety
/// `buffer` has space for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ksmith_reason(buffer: *mut c_char, size: usize) -> usize {
    let reason = client::reason();
    let bytes = reason.bytes();
    if let Some(room) = size.checked_sub(1)
        && !buffer.is_null()
    {
        let count = room.min(bytes.len());
        // SAFETY: `count` + 1 is at most `size`, and our text does not overlap the caller's buffer.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), buffer, count);
            *buffer.add(count) = 0;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_figures_are_read_in_any_order() {
        let line = b"ok zero_bytes=5 rss_bytes=1 merged_bytes=2 profit_bytes=-4 saved_bytes=3";
        let savings = told(line).unwrap();
        assert_eq!((savings.rss_bytes, savings.merged_bytes, savings.saved_bytes), (1, 2, 3));
        assert_eq!((savings.profit_bytes, savings.zero_bytes, savings.source), (-4, 5, 1));
        assert!(told(b"ok rss_bytes=1").is_none());
    }
}
