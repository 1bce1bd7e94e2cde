//! The cost of a write to a merged page: a fault, a new page and a copy.

use std::io;
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Number of pages copied for the measurement, which takes some milliseconds.
const PAGES: usize = 1024;

/// Measures the time of one copy on this host. It maps pages of a file privately, and reads and then writes them. The
/// kernel runs the same code as for a merged page (`do_wp_page`, a new page, a copy).
///
/// # Errors
/// The memory can't be mapped.
#[allow(unsafe_code, reason = "memory must be mapped and touched page by page")]
pub fn nanoseconds_per_copy() -> io::Result<f64> {
    let page = rustix::param::page_size();
    let length = PAGES * page;
    let file = memfd_create("ksmith-copies", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, length as u64)?;
    rustix::io::pwrite(&file, &vec![1; length], 0)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, which no other code knows.
    let start = unsafe { mmap(std::ptr::null_mut(), length, protection, MapFlags::PRIVATE, &file, 0) }?;
    let address = |index: usize| start.cast::<u8>().wrapping_add(index * page);
    for index in 0..PAGES {
        // SAFETY: within the mapping, which is readable and as long as the file.
        std::hint::black_box(unsafe { address(index).read_volatile() });
    }
    let begin = Instant::now();
    for index in 0..PAGES {
        // SAFETY: within the mapping, which is writable and private.
        unsafe { address(index).write_volatile(2) };
    }
    let taken = begin.elapsed();
    // SAFETY: the mapping made above, which is not used any more.
    unsafe { munmap(start, length) }?;
    Ok(taken.as_nanos() as f64 / PAGES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_costs_more_than_nothing_and_less_than_a_disk() {
        let cost = nanoseconds_per_copy().unwrap();
        assert!((50.0..5_000_000.0).contains(&cost), "{cost}");
    }
}
