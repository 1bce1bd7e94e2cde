//! Memory in QEMU's migration stream (`migration/savevm.c`, `migration/ram.c`), up to the state of the devices.
//!
//! A page that changed while the stream was written comes again: its last content counts.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use ksmith_core::sketch::ZERO;

use super::error::ImageFault;
use super::{CHUNK, PAGE};
use crate::memory::salt::FingerprintSalt;

/// The version of the stream since QEMU 0.9.
const VERSION: u32 = 3;

/// The most memory that is believed of a guest, in bytes: 64 TiB.
const MOST_BYTES: u64 = 1 << 46;

/// Types of what follows.
mod part {
    pub const END: u8 = 0;
    pub const SECTION_START: u8 = 1;
    pub const SECTION_PART: u8 = 2;
    pub const SECTION_END: u8 = 3;
    pub const DEVICE: u8 = 4;
    pub const SUBSECTION: u8 = 5;
    pub const CONFIGURATION: u8 = 7;
    pub const COMMAND: u8 = 8;
    pub const FOOTER: u8 = 0x7e;
}

/// Flags in the lower bits of a page's address.
mod flag {
    pub const ZERO: u64 = 0x02;
    pub const SIZES: u64 = 0x04;
    pub const PAGE: u64 = 0x08;
    pub const END: u64 = 0x10;
    pub const SAME_BLOCK: u64 = 0x20;
}

/// A block of a guest's memory.
#[derive(Debug, Default)]
struct StreamBlock {
    /// Its length in pages. The stream may lack most of them: blocks of virtio-mem that are not plugged, and pages that
    /// the guest has reported as free.
    pages: u64,
    /// The number and the fingerprint of each page that was sent, in the order of the stream.
    sent: Vec<(u64, u64)>,
}

/// Reads the memory of a stream: the fingerprints of the pages of each block. What was not sent takes no part.
pub(super) fn read_pages(file: impl Read, salt: &FingerprintSalt) -> Result<Vec<Vec<u64>>, ImageFault> {
    let input = BufReader::with_capacity(CHUNK, file);
    let mut reader = StreamReader { input, blocks: BTreeMap::new(), block: String::new(), salt };
    reader.read_parts()?;
    let pieces: Vec<Vec<u64>> = reader.blocks.into_values().map(StreamBlock::last_contents).collect();
    if pieces.is_empty() {
        return Err(ImageFault::Damaged("it has no memory"));
    }
    Ok(pieces)
}

struct StreamReader<'a, F> {
    input: BufReader<F>,
    blocks: BTreeMap<String, StreamBlock>,
    /// The block that a page named last; the next ones may be of the same, in later sections too.
    block: String,
    salt: &'a FingerprintSalt,
}

impl<F: Read> StreamReader<'_, F> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], ImageFault> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u32, ImageFault> {
        self.bytes().map(u32::from_be_bytes)
    }

    /// Reads a name with its length before it.
    fn name(&mut self) -> Result<String, ImageFault> {
        let [length] = self.bytes()?;
        let mut name = vec![0; usize::from(length)];
        self.input.read_exact(&mut name)?;
        Ok(String::from_utf8_lossy(&name).into_owned())
    }

    fn skip(&mut self, bytes: u64) -> Result<(), ImageFault> {
        match std::io::copy(&mut (&mut self.input).take(bytes), &mut std::io::sink())? {
            skipped if skipped == bytes => Ok(()),
            _ => Err(ImageFault::Damaged("it ends too early")),
        }
    }

    fn read_parts(&mut self) -> Result<(), ImageFault> {
        let [_, version] = [self.number()?, self.number()?];
        if version != VERSION {
            return Err(ImageFault::Damaged("its version is unknown"));
        }
        let (mut memory, mut is_complete) = (None, false);
        loop {
            let [kind] = self.bytes()?;
            match kind {
                part::CONFIGURATION => {
                    let length = self.number()?;
                    self.skip(length.into())?;
                }
                part::COMMAND => {
                    let [_, _, high, low] = self.bytes()?;
                    self.skip(u16::from_be_bytes([high, low]).into())?;
                }
                part::FOOTER => {
                    self.number()?;
                }
                part::SECTION_START => {
                    let section = self.number()?;
                    let name = self.name()?;
                    self.skip(8)?;
                    if name != "ram" {
                        return Err(ImageFault::UnknownPart(name));
                    }
                    memory = Some(section);
                    self.read_records()?;
                }
                part::SECTION_PART | part::SECTION_END => {
                    if Some(self.number()?) != memory {
                        return Err(ImageFault::Damaged("a section has no beginning"));
                    }
                    self.read_records()?;
                    is_complete |= kind == part::SECTION_END;
                }
                // What follows the memory is of no interest.
                part::DEVICE | part::END if is_complete => return Ok(()),
                part::DEVICE => {
                    self.number()?;
                    return Err(ImageFault::UnknownPart(self.name()?));
                }
                part::SUBSECTION => return Err(ImageFault::UnknownPart(self.name()?)),
                _ => return Err(ImageFault::Damaged("it ends before the memory is complete")),
            }
        }
    }

    /// Reads records of memory until their end.
    fn read_records(&mut self) -> Result<(), ImageFault> {
        let mut page = [0; PAGE];
        loop {
            let word = u64::from_be_bytes(self.bytes()?);
            let (address, flags) = (word & !(PAGE as u64 - 1), word & (PAGE as u64 - 1));
            if flags & (flag::ZERO | flag::PAGE) != 0 && flags & flag::SAME_BLOCK == 0 {
                self.block = self.name()?;
            }
            match flags & !flag::SAME_BLOCK {
                flag::END => return Ok(()),
                flag::SIZES => self.read_sizes(address)?,
                flag::ZERO => {
                    let [byte] = self.bytes()?;
                    page.fill(byte);
                    let fingerprint = if byte == 0 { ZERO } else { self.salt.fingerprint(&page) };
                    self.record(address, fingerprint)?;
                }
                flag::PAGE => {
                    self.input.read_exact(&mut page)?;
                    self.record(address, self.salt.fingerprint(&page))?;
                }
                _ => return Err(ImageFault::UnknownPart(format!("page flags {flags:#x}"))),
            }
        }
    }

    /// Records a page of the block that was named last.
    fn record(&mut self, address: u64, fingerprint: u64) -> Result<(), ImageFault> {
        let page = address / PAGE as u64;
        let block = self.blocks.get_mut(&self.block).filter(|block| page < block.pages);
        block.ok_or(ImageFault::Damaged("a page is in no block"))?.sent.push((page, fingerprint));
        Ok(())
    }

    /// Reads the names and sizes of blocks, which sum to `total`.
    fn read_sizes(&mut self, total: u64) -> Result<(), ImageFault> {
        if total > MOST_BYTES {
            return Err(ImageFault::Damaged("it ends before the memory is complete"));
        }
        let mut left = total;
        while left > 0 {
            let name = self.name()?;
            let bytes = u64::from_be_bytes(self.bytes()?);
            left = left
                .checked_sub(bytes)
                .filter(|_| bytes > 0)
                .ok_or(ImageFault::Damaged("its sizes do not add up"))?;
            self.blocks.insert(name, StreamBlock { pages: bytes / PAGE as u64, sent: Vec::new() });
        }
        Ok(())
    }
}

impl StreamBlock {
    /// Returns the last content of each page that was sent.
    fn last_contents(mut self) -> Vec<u64> {
        // A stable sort: of the contents of a page the last one stays last.
        self.sent.sort_by_key(|(page, _)| *page);
        let of_page = self.sent.chunk_by(|(one, _), (other, _)| one == other);
        of_page.filter_map(|contents| contents.last()).map(|(_, fingerprint)| *fingerprint).collect()
    }
}
