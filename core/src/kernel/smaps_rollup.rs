//! `/proc/PID/smaps_rollup` (4.14): the memory of one process, summed over its mappings.

use super::keyed;
use crate::reading::Malformed;

/// Bytes of one process's memory by kind. `None`: this kernel does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SmapsRollup {
    /// Resident, merged pages counted in full.
    pub rss: Option<u64>,
    /// Resident, each page divided by the number of mappings of it: merged pages too.
    pub pss: Option<u64>,
    /// The part of `pss` that is anonymous (5.4). Zero pages are not in it.
    pub pss_anon: Option<u64>,
    /// In pages that no other mapping has, clean and dirty.
    pub private: Option<u64>,
    /// Anonymous and resident, zero pages not included.
    pub anonymous: Option<u64>,
    /// Merged by KSM, the zero pages that KSM placed included (6.7).
    pub ksm: Option<u64>,
    /// In huge pages, which ksmd splits before it merges.
    pub anon_huge: Option<u64>,
    /// Bytes in swap.
    pub swap: Option<u64>,
}

impl SmapsRollup {
    /// Parses the file; its first line, an address range, has no key of ours.
    ///
    /// # Errors
    /// A known key has a value that is no number of kB, or no key is known.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut sums = Self::default();
        for line in keyed::lines(text) {
            if let "Private_Clean" | "Private_Dirty" = line.key {
                sums.private = Some(sums.private.unwrap_or(0).saturating_add(line.kib()?));
                continue;
            }
            let field = match line.key {
                "Rss" => &mut sums.rss,
                "Pss" => &mut sums.pss,
                "Pss_Anon" => &mut sums.pss_anon,
                "Anonymous" => &mut sums.anonymous,
                "KSM" => &mut sums.ksm,
                "AnonHugePages" => &mut sums.anon_huge,
                "Swap" => &mut sums.swap,
                _ => continue,
            };
            *field = Some(line.kib()?);
        }
        if sums == Self::default() {
            return Err(Malformed::new(1, "Rss and the like in kB", text));
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heading_is_skipped_and_kib_become_bytes() {
        let text = "55d0-7ffe ---p 00000000 00:00 0      [rollup]\nRss:     884 kB\nPss:  123 kB\nKSM:   4 kB\n\
                    Private_Clean:  8 kB\nPrivate_Dirty: 100 kB\n";
        let sums = SmapsRollup::parse(text).unwrap();
        assert_eq!((sums.rss, sums.pss, sums.ksm), (Some(884 * 1024), Some(123 * 1024), Some(4096)));
        assert_eq!((sums.swap, sums.private), (None, Some(108 * 1024)));
    }
}
