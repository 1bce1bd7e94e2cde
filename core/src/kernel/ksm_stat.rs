//! `/proc/PID/ksm_stat` (6.1 and later): KSM's figures for one process.

use serde::{Deserialize, Serialize};

use super::keyed;
use crate::reading::Malformed;

/// KSM's figures for one process. `None`: this kernel does not show it (the file grew over time), or the value is
/// impossible.
///
/// Source: `proc_pid_ksm_stat` in `fs/proc/base.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KsmStat {
    /// Pages of this process that ksmd tracks (each costs [`super::RMAP_ITEM_BYTES`]).
    pub rmap_items: Option<u64>,
    /// Pages of this process that map the kernel's zero page through KSM (6.6).
    pub zero_pages: Option<u64>,
    /// Pages of this process that are merged, the ones that count as `pages_shared` included (6.4 here; since
    /// 5.19 in `/proc/PID/ksm_merging_pages`).
    pub merging_pages: Option<u64>,
    /// Bytes: (merging + zero) pages less metadata, as the kernel computes it (6.4). Summed over processes
    /// it overstates the host by `pages_shared` pages.
    pub process_profit: Option<i64>,
    /// True if the process opted in as a whole by prctl (6.14).
    pub merge_any: Option<bool>,
    /// True if any of its memory is mergeable (6.14).
    pub mergeable: Option<bool>,
}

impl KsmStat {
    /// Parses the file, each line by itself: one that is impossible is unknown, and the others keep their meaning. It is
    /// empty for a task without memory of its own: a kernel thread or a zombie.
    ///
    /// # Errors
    /// Text in which no key has a possible value.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut stat = Self::default();
        for line in keyed::lines(text) {
            match line.key {
                "ksm_rmap_items" => stat.rmap_items = line.pages().ok(),
                // Below zero in a child that was forked: see `Ksm::zero_pages`.
                "ksm_zero_pages" => stat.zero_pages = line.pages_or_below().ok(),
                "ksm_merging_pages" => stat.merging_pages = line.pages().ok(),
                "ksm_process_profit" => stat.process_profit = line.signed_bytes().ok(),
                "ksm_merge_any" => stat.merge_any = line.yes().ok(),
                "ksm_mergeable" => stat.mergeable = line.yes().ok(),
                _ => {}
            }
        }
        if stat == Self::default() && !text.is_empty() {
            return Err(Malformed::new(1, "lines of ksm_ names and values", text));
        }
        Ok(stat)
    }

    /// Returns true if KSM tracks, has merged or may merge pages of this process.
    pub fn is_involved(&self) -> bool {
        self.tracks_pages() || self.mergeable == Some(true) || self.merge_any == Some(true)
    }

    /// Returns true if KSM tracks or has merged pages of this process.
    pub fn tracks_pages(&self) -> bool {
        [self.rmap_items, self.zero_pages, self.merging_pages].into_iter().flatten().any(|pages| pages > 0)
    }
}

/// Parses `/proc/PID/ksm_merging_pages` (5.19), the only figure of its kind before 6.4. Like `ksm_stat` it is
/// empty for a task without memory of its own, which has no merged pages.
///
/// # Errors
/// Anything but one number of pages that a host can have.
pub fn merging_pages(text: &str) -> Result<u64, Malformed> {
    match super::number(text) {
        _ if text.is_empty() => Ok(0),
        Ok(pages) if pages > super::MOST_PAGES => Err(Malformed::new(1, "a number of pages", text)),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_6_18_parses() {
        let text = "ksm_rmap_items 76800\nksm_zero_pages 0\nksm_merging_pages 76800\n\
                    ksm_process_profit -309657600\nksm_merge_any: no\nksm_mergeable: yes\n";
        let stat = KsmStat::parse(text).unwrap();
        assert_eq!(stat.process_profit, Some(-309_657_600));
        assert_eq!(stat.mergeable, Some(true));
        assert_eq!(stat.merge_any, Some(false));
    }

    #[test]
    fn the_file_of_6_1_has_one_line() {
        let stat = KsmStat::parse("ksm_rmap_items 12\n").unwrap();
        assert_eq!(stat, KsmStat { rmap_items: Some(12), ..KsmStat::default() });
        assert!(stat.is_involved());
    }

    #[test]
    fn a_kernel_threads_files_are_empty_and_junk_is_not() {
        assert_eq!(KsmStat::parse(""), Ok(KsmStat::default()));
        assert_eq!(merging_pages(""), Ok(0));
        assert!(KsmStat::parse("\u{1}\u{fffd}\n").is_err());
        assert!(KsmStat::parse("ksm_rmap_items\n").is_err());
        assert!(merging_pages("\n").is_err());
    }

    #[test]
    fn an_impossible_value_is_unknown_and_the_others_count() {
        let stat = KsmStat::parse("ksm_rmap_items 1\nksm_merging_pages -1\nksm_mergeable: maybe\n").unwrap();
        assert_eq!(stat, KsmStat { rmap_items: Some(1), ..KsmStat::default() });
        assert!(KsmStat::parse("ksm_rmap_items 18446744073709551608\n").is_err());
        assert!(merging_pages("18446744073709551608\n").is_err());
        assert_eq!(KsmStat::parse("ksm_rmap_items 1\nksm_zero_pages -1\n").unwrap().zero_pages, Some(0));
    }
}
