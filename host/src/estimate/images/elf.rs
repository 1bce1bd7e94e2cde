//! Memory in an ELF core. Its segments need not begin at a multiple of a page's size in the file.

use std::io::{Read, Seek, SeekFrom};

use super::error::ImageFault;
use super::{CHUNK, PAGE, fill, push_pages};
use crate::memory::salt::FingerprintSalt;

/// Bytes of the header of a 64-bit file.
const HEADER: usize = 64;
/// Bytes of a program header.
const PROGRAM_HEADER: usize = 56;
/// The number of program headers if there are too many for its field.
const MANY: u64 = 0xffff;
/// The most program headers: a dump has one for each range of memory, or for each mapping of the guest.
const MOST_HEADERS: u64 = 1 << 20;

const CORE: u64 = 4;
const LOAD: u64 = 1;

/// A part of the file that holds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct MemorySegment {
    offset: u64,
    bytes: u64,
}

/// A record of the file, and the order of bytes in it.
struct ElfRecord<'a> {
    bytes: &'a [u8],
    is_little: bool,
}

impl ElfRecord<'_> {
    /// Returns the number of so many bytes at a place.
    fn number(&self, at: usize, length: usize) -> u64 {
        let bytes = self.bytes.get(at..at + length).unwrap_or_default();
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        match self.is_little {
            true => bytes.iter().rev().fold(0, add),
            false => bytes.iter().fold(0, add),
        }
    }
}

/// Reads the pages of all segments, each part of the file once: a dump with the guest's mappings names a part often.
pub(super) fn read_pages(
    mut file: impl Read + Seek,
    bytes: u64,
    salt: &FingerprintSalt,
) -> Result<Vec<Vec<u64>>, ImageFault> {
    let mut segments = read_segments(&mut file, bytes)?;
    segments.sort_unstable();
    let (mut pieces, mut done) = (Vec::new(), 0_u64);
    for MemorySegment { offset, bytes } in segments {
        let known = done.saturating_sub(offset).next_multiple_of(PAGE as u64);
        done = done.max(offset + bytes);
        if known < bytes {
            file.seek(SeekFrom::Start(offset + known))?;
            pieces.push(read_part(&mut file, bytes - known, salt)?);
        }
    }
    if pieces.is_empty() {
        return Err(ImageFault::Damaged("it has no memory"));
    }
    Ok(pieces)
}

fn read_part(file: &mut impl Read, mut left: u64, salt: &FingerprintSalt) -> Result<Vec<u64>, ImageFault> {
    let (mut pages, mut chunk) = (Vec::new(), vec![0; CHUNK]);
    while left > 0 {
        let wanted = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let Some(part) = chunk.get_mut(..wanted) else { break };
        if fill(file, part)? < wanted {
            return Err(ImageFault::Damaged("it ends too early"));
        }
        push_pages(part, salt, &mut pages);
        left -= wanted as u64;
    }
    Ok(pages)
}

fn read_segments(file: &mut (impl Read + Seek), bytes: u64) -> Result<Vec<MemorySegment>, ImageFault> {
    let mut header = [0; HEADER];
    file.read_exact(&mut header)?;
    let is_little = header[5] == 1;
    if header[4] != 2 || !(is_little || header[5] == 2) {
        return Err(ImageFault::Other("is not a core of a 64-bit machine"));
    }
    let record = ElfRecord { bytes: &header, is_little };
    if record.number(16, 2) != CORE {
        return Err(ImageFault::Other("is a program, not a core"));
    }
    let (start, size) = (record.number(32, 8), record.number(54, 2));
    let count = match record.number(56, 2) {
        MANY => {
            // The information of the first section has the number.
            file.seek(SeekFrom::Start(record.number(40, 8)))?;
            let mut section = [0; HEADER];
            file.read_exact(&mut section)?;
            ElfRecord { bytes: &section, is_little }.number(44, 4)
        }
        count => count,
    };
    if count > MOST_HEADERS || size < PROGRAM_HEADER as u64 {
        return Err(ImageFault::Damaged("its program headers make no sense"));
    }
    let mut segments = Vec::new();
    let mut header = vec![0; size as usize];
    file.seek(SeekFrom::Start(start))?;
    for _ in 0..count {
        file.read_exact(&mut header)?;
        let record = ElfRecord { bytes: &header, is_little };
        if record.number(0, 4) == LOAD {
            let segment = MemorySegment { offset: record.number(8, 8), bytes: record.number(32, 8) };
            if segment.offset.checked_add(segment.bytes).is_none_or(|end| end > bytes) {
                return Err(ImageFault::Damaged("it ends too early"));
            }
            segments.push(segment);
        }
    }
    Ok(segments)
}
