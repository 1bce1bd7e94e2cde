//! The kernel's figures on merging in this process.

use core::ffi::CStr;

use crate::lock::TryLock;
use crate::text::{decimal, signed, words};
use crate::{file, marks};

/// Figures of `/proc/self/ksm_stat` and `statm`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OwnProcessStats {
    /// Resident memory, with merged pages.
    pub resident: u64,
    /// Memory in merged pages, without zero pages.
    pub merged: u64,
    /// Memory in pages that became the kernel's zero page.
    pub zero: u64,
    /// The kernel's profit of this process: its merged bytes less the cost of the kernel's metadata. Each merged page
    /// counts as saved, including the one that is kept.
    pub profit: i64,
}

static BUFFER: TryLock<[u8; 1024]> = TryLock::new([0; 1024]);

/// Reads the figures of this process. `None` if the kernel has no such file (before 6.1; merged pages since
/// 6.4).
pub fn own() -> Option<OwnProcessStats> {
    let mut buffer = BUFFER.try_lock()?;
    let mut stats = OwnProcessStats::default();
    let mut has_merged = false;
    let page = marks::page() as u64;
    let mut each = |path: &CStr, line: &mut dyn FnMut(&[u8])| {
        file::lines(path, &mut *buffer, |text| {
            line(text);
            true
        })
    };
    each(c"/proc/self/ksm_stat", &mut |line| has_merged |= parse_stat_line(&mut stats, line, page)).ok()?;
    each(c"/proc/self/statm", &mut |line| {
        let resident = words(line).nth(1).and_then(decimal);
        stats.resident = resident.unwrap_or(0).saturating_mul(page);
    })
    .ok()?;
    has_merged.then_some(stats)
}

/// Parses a line of `ksm_stat`. Returns true if it is the line of the merged pages.
fn parse_stat_line(stats: &mut OwnProcessStats, line: &[u8], page: u64) -> bool {
    let mut parts = words(line);
    let (Some(name), Some(value)) = (parts.next(), parts.next()) else { return false };
    let bytes = decimal(value).map(|pages| pages.saturating_mul(page));
    match (name, bytes) {
        (b"ksm_merging_pages", Some(bytes)) => {
            stats.merged = bytes;
            return true;
        }
        (b"ksm_zero_pages", Some(bytes)) => stats.zero = bytes,
        (b"ksm_process_profit", _) => stats.profit = signed(value).unwrap_or(0),
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ksm_stat() {
        let mut stats = OwnProcessStats::default();
        let text = "ksm_rmap_items 10\nksm_zero_pages 2\nksm_merging_pages 7\nksm_process_profit -640\nx\n";
        let seen: Vec<bool> = text.lines().map(|line| parse_stat_line(&mut stats, line.as_bytes(), 4096)).collect();
        assert_eq!(seen, [false, false, true, false, false]);
        assert_eq!(stats, OwnProcessStats { resident: 0, merged: 7 * 4096, zero: 8192, profit: -640 });
    }
}
