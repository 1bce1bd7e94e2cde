//! Lines of `/proc/PID/maps`.

use crate::file;
use crate::sys::Errno;
use crate::text::{hexadecimal, words};

/// Maximum length of a line: a path has at most 4095 bytes.
const LINE: usize = 4608;

/// One mapping of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapsEntry {
    /// Address of the first byte.
    pub start: usize,
    /// Address after the last byte.
    pub end: usize,
    /// Kind of the mapping.
    pub kind: MapsEntryKind,
}

/// The kind of a mapping, as far as merging depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapsEntryKind {
    /// Private anonymous memory that is readable and writable.
    Data,
    /// The heap of brk(2), which is treated as `Data`.
    Heap,
    /// Private anonymous memory without access yet.
    Reserved,
    /// Any other mapping: of a file, shared, a stack, code.
    Other,
}

impl MapsEntry {
    /// Parses a line of `maps`.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut words = words(line);
        let range = words.next()?;
        let dash = range.iter().position(|&byte| byte == b'-')?;
        let (start, end) = (range.get(..dash)?, range.get(dash.checked_add(1)?..)?);
        let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
        let access = words.next()?;
        let inode = words.nth(2)?;
        let name = words.next().unwrap_or_default();
        let is_anonymous = inode == b"0" && (name.is_empty() || name.starts_with(b"[anon:"));
        let kind = match access {
            b"rw-p" if name == b"[heap]" => MapsEntryKind::Heap,
            b"rw-p" if is_anonymous => MapsEntryKind::Data,
            b"---p" if is_anonymous => MapsEntryKind::Reserved,
            _ => MapsEntryKind::Other,
        };
        Some(Self { start, end, kind })
    }

    /// Returns true if the mapping holds data of the program.
    pub fn is_data(&self) -> bool {
        matches!(self.kind, MapsEntryKind::Data | MapsEntryKind::Heap)
    }

    /// Returns the length in bytes.
    pub fn length(&self) -> usize {
        self.end.saturating_sub(self.start)
    }
}

/// Passes each mapping of this process to `each`, until that returns `false`.
pub fn each(mut each: impl FnMut(&MapsEntry) -> bool) -> Result<(), Errno> {
    let mut buffer = [0_u8; LINE];
    file::lines(c"/proc/self/maps", &mut buffer, |line| MapsEntry::parse(line).is_none_or(|mapping| each(&mapping)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn data_is_private_anonymous_and_writable() {
        let kind = |line: &str| MapsEntry::parse(line.as_bytes()).unwrap().kind;
        assert_eq!(
            kind("55d1c0000000-55d1c0021000 rw-p 00000000 00:00 0                          [heap]"),
            MapsEntryKind::Heap
        );
        assert_eq!(kind("7f0000000000-7f0000100000 rw-p 00000000 00:00 0 "), MapsEntryKind::Data);
        assert_eq!(
            kind("7f0000000000-7f0000100000 rw-p 00000000 00:00 0 [anon:glibc: malloc]"),
            MapsEntryKind::Data
        );
        assert_eq!(kind("7f0000000000-7f0000100000 ---p 00000000 00:00 0 "), MapsEntryKind::Reserved);
        for other in [
            "7ffc0000f000-7ffc00030000 rw-p 00000000 00:00 0                          [stack]",
            "7f0000000000-7f0000100000 rw-s 00000000 00:01 1024                       /dev/zero (deleted)",
            "7f0000000000-7f0000100000 rw-p 00001000 fe:00 9                          /usr/lib/libc.so.6",
            "7f0000000000-7f0000100000 rwxp 00000000 00:00 0 ",
            "7f0000000000-7f0000100000 r--p 00000000 00:00 0                          [vvar]",
        ] {
            assert_eq!(kind(other), MapsEntryKind::Other, "{other}");
        }
        let mapping = MapsEntry::parse(b"1000-3000 rw-p 00000000 00:00 0").unwrap();
        assert_eq!((mapping.start, mapping.end, mapping.length()), (0x1000, 0x3000, 0x2000));
    }

    #[test]
    fn the_maps_of_this_process_are_read_whole() {
        let text = std::fs::read("/proc/self/maps").unwrap();
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let mappings: Vec<MapsEntry> = lines.clone().filter_map(MapsEntry::parse).collect();
        assert_eq!(mappings.len(), lines.count());
        let here = std::ptr::from_ref(&Box::new(1)) as usize;
        assert!(mappings.iter().any(|mapping| (mapping.start..mapping.end).contains(&here)));
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_fault(line in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = MapsEntry::parse(&line);
        }
    }
}
