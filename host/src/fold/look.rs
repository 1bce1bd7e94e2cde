//! Counting the zero pages within a huge page.
//!
//! The page is read through `/proc/PID/mem`, which pins nothing. It was in memory a moment ago, so nothing is faulted
//! in unless the program has just freed it.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::memory::error::UnreadableProcess;
use crate::memory::under_way;

/// Bytes of one read: they fit the second-level cache until they are compared.
const READ: usize = 128 << 10;

/// One page in so many is read first. Each costs a system call, which is as much as reading three pages of a long run.
const STRIDE: usize = 8;

/// The factor by which the sample must say more than enough for the rest not to be read.
const MARGIN: usize = 2;

/// The extent of counting in a huge page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountUntil {
    /// Counts all zero pages.
    End,
    /// Counts until there are enough; the rest of the huge page is not read. A sample of the pages that says twice as much as enough
    /// will do: a split that frees less than it should costs a third of a millisecond, reading everything costs more in all.
    Enough,
}

/// A reader of huge pages with its buffer.
#[derive(Debug)]
pub(super) struct ZeroCounter {
    buffer: Vec<u8>,
    page_size: usize,
    huge_size: usize,
    /// The least zero pages of a huge page that is worth splitting.
    enough: usize,
}

impl ZeroCounter {
    /// Creates a counter for pages and huge pages of these sizes in bytes.
    pub(super) fn new(page_size: usize, huge_size: usize, enough: usize) -> Self {
        Self { buffer: vec![0; READ.min(huge_size)], page_size, huge_size, enough }
    }

    /// Returns the zero pages of a huge page if there are enough, else `None`. A huge page that goes away meanwhile has none.
    ///
    /// # Errors
    /// The process has ended.
    pub(super) fn count(
        &mut self,
        mem: &File,
        pid: u32,
        huge_page: u64,
        until: CountUntil,
    ) -> Result<Option<usize>, UnreadableProcess> {
        if until == CountUntil::Enough
            && let Some(zeros) = self.sample(mem, pid, huge_page)?
        {
            return Ok(Some(zeros));
        }
        let mut zeros = 0;
        let mut offset = 0;
        while offset < self.huge_size {
            let read = READ.min(self.huge_size - offset);
            let buffer = &mut self.buffer[..read];
            if !read_memory(mem, pid, buffer, huge_page + offset as u64)? {
                return Ok(None);
            }
            zeros += buffer.chunks_exact(self.page_size).filter(|page| is_zero(page)).count();
            offset += read;
            if zeros >= self.enough && until == CountUntil::Enough {
                break;
            }
            let left = (self.huge_size - offset) / self.page_size;
            if zeros + left < self.enough {
                return Ok(None);
            }
        }
        Ok((zeros >= self.enough).then_some(zeros))
    }

    /// Returns the zero pages that a sample stands for, if it leaves no doubt that there are enough.
    fn sample(&mut self, mem: &File, pid: u32, huge_page: u64) -> Result<Option<usize>, UnreadableProcess> {
        let wanted = (self.enough * MARGIN).div_ceil(STRIDE).max(MARGIN);
        let step = self.page_size * STRIDE;
        let mut zeros = 0;
        let mut left = self.huge_size / step;
        for offset in (0..self.huge_size).step_by(step) {
            if zeros + left < wanted {
                break;
            }
            left -= 1;
            let Some(buffer) = self.buffer.get_mut(..self.page_size) else { break };
            if !read_memory(mem, pid, buffer, huge_page + offset as u64)? {
                break;
            }
            zeros += usize::from(is_zero(buffer));
            if zeros >= wanted {
                return Ok(Some(zeros * STRIDE));
            }
        }
        Ok(None)
    }
}

/// Reads memory of a process. Returns false if it was unmapped meanwhile.
fn read_memory(mem: &File, pid: u32, buffer: &mut [u8], address: u64) -> Result<bool, UnreadableProcess> {
    match under_way::during(pid, || mem.read_at(buffer, address)) {
        Ok(0) => Err(UnreadableProcess::Exited),
        Ok(got) => Ok(got == buffer.len()),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Err(UnreadableProcess::Exited),
        Err(_) => Ok(false),
    }
}

/// Returns true if all bytes are zero. Stops at the first cache line with another.
pub(super) fn is_zero(page: &[u8]) -> bool {
    let (lines, rest) = page.as_chunks::<64>();
    lines.iter().all(|line| line.iter().fold(0, |all, byte| all | byte) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PAGE: usize = 4096;

    fn count(huge: &[u8], enough: usize, until: CountUntil) -> Option<usize> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(huge, 0).unwrap();
        ZeroCounter::new(PAGE, huge.len(), enough).count(&file, 1, 0, until).unwrap()
    }

    #[test]
    fn memory_that_ends_belongs_to_a_process_that_has_ended() {
        let empty = tempfile::tempfile().unwrap();
        let outcome = ZeroCounter::new(PAGE, 2 << 20, 64).count(&empty, 1, 0, CountUntil::End);
        assert_eq!(outcome, Err(UnreadableProcess::Exited));
    }

    #[test]
    fn a_huge_page_that_is_cut_short_counts_for_nothing() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[0; PAGE], 0).unwrap();
        assert_eq!(ZeroCounter::new(PAGE, 2 << 20, 1).count(&file, 1, 0, CountUntil::End), Ok(None));
    }

    proptest! {
        #[test]
        fn one_byte_anywhere_is_no_zero_page(at in 0..PAGE, byte in 1_u8..) {
            let mut page = vec![0; PAGE];
            prop_assert!(is_zero(&page));
            page[at] = byte;
            prop_assert!(!is_zero(&page));
        }

        #[test]
        fn counts_are_exact_to_the_end_and_enough_where_that_suffices(
            zeros in prop::collection::vec(any::<bool>(), 128..=128),
            enough in 1_usize..128,
        ) {
            let pages = zeros.iter().map(|is_zero| [u8::from(!is_zero); PAGE]);
            let huge: Vec<u8> = pages.flatten().collect();
            let all = zeros.iter().filter(|is_zero| **is_zero).count();
            prop_assert_eq!(count(&huge, enough, CountUntil::End), (all >= enough).then_some(all));
            let sampled = STRIDE * zeros.iter().step_by(STRIDE).filter(|is_zero| **is_zero).count();
            let is_sure = sampled >= enough * MARGIN && sampled >= STRIDE * MARGIN;
            prop_assert_eq!(count(&huge, enough, CountUntil::Enough).is_some(), is_sure || all >= enough);
        }
    }
}
