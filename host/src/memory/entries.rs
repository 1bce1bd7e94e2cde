//! `/proc/PID/pagemap`, read in batches of some thousand pages.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use ksmith_core::kernel::PageEntry;

use super::under_way;

/// Pages looked up by one read.
const LOOKED_UP: u64 = 4096;

/// Calls `take` for each batch of pages of a process between the addresses `start` and `end`, with pages of `size`
/// bytes. Its arguments are the number of the batch's first page and the pagemap entries.
///
/// # Errors
/// The process is gone, or `take` failed.
pub fn each(
    pagemap: &File,
    pid: u32,
    [start, end, size]: [u64; 3],
    mut take: impl FnMut(u64, &[PageEntry]) -> io::Result<()>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    let (mut first, last) = (start / size, end / size);
    while first < last {
        let count = LOOKED_UP.min(last - first);
        bytes.resize(count as usize * 8, 0);
        let got = under_way::during(pid, || pagemap.read_at(&mut bytes, first * 8))? / 8;
        if got == 0 {
            break;
        }
        let entries: Vec<PageEntry> =
            bytes[..got * 8].as_chunks().0.iter().map(|word| PageEntry::from_bytes(*word)).collect();
        take(first, &entries)?;
        first += got as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn every_page_is_told_once_and_in_order() {
        let mut file = tempfile::tempfile().unwrap();
        for number in 0..10_000_u64 {
            file.write_all(&number.to_ne_bytes()).unwrap();
        }
        let mut told = Vec::new();
        each(&file, 1, [5 * 4096, 9_000 * 4096, 4096], |first, entries| {
            assert_eq!(first, entries[0].0);
            told.extend(entries.iter().map(|entry| entry.0));
            Ok(())
        })
        .unwrap();
        assert!(told.iter().copied().eq(5..9_000));
        let stops = each(&file, 1, [0, 9_000 * 4096, 4096], |_, _| Err(io::ErrorKind::Other.into()));
        assert!(stops.is_err());
        each(&file, 1, [20_000 * 4096, 30_000 * 4096, 4096], |_, _| panic!("there are none")).unwrap();
    }
}
