//! `/proc/PID/smaps_rollup` (4.14): the memory of one process, summed over its mappings.

use super::keyed;
use crate::reading::Malformed;

/// Bytes of one process's memory by kind. `None`: this kernel does not show it, or the
/// value is impossible.
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
    /// In pages of hugetlbfs, private and shared. No other figure here counts them.
    pub hugetlb: Option<u64>,
    /// Bytes in swap.
    pub swap: Option<u64>,
}

impl SmapsRollup {
    /// Parses the file, each line by itself: one that is impossible is unknown, and the others keep their meaning. The
    /// first line, an address range, has no key of ours.
    ///
    /// # Errors
    /// No key has a possible value.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut sums = Self::default();
        let (mut private, mut hugetlb) = (KeySum::default(), KeySum::default());
        for line in keyed::lines(text) {
            let sum = match line.key {
                "Private_Clean" | "Private_Dirty" => Some(&mut private),
                "Private_Hugetlb" | "Shared_Hugetlb" => Some(&mut hugetlb),
                _ => None,
            };
            if let Some(sum) = sum {
                sum.add(line.kib().ok());
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
            *field = line.kib().ok();
        }
        (sums.private, sums.hugetlb) = (private.bytes(), hugetlb.bytes());
        if sums == Self::default() {
            return Err(Malformed::new(1, "Rss and the like in kB", text));
        }
        Ok(sums)
    }
}

/// The sum of several keys: unknown if one of them is impossible, or if there is none.
#[derive(Debug, Default)]
struct KeySum {
    sum: u64,
    has_key: bool,
    is_impossible: bool,
}

impl KeySum {
    fn add(&mut self, bytes: Option<u64>) {
        self.has_key = true;
        self.is_impossible |= bytes.is_none();
        self.sum = self.sum.saturating_add(bytes.unwrap_or(0));
    }

    fn bytes(&self) -> Option<u64> {
        (self.has_key && !self.is_impossible).then_some(self.sum)
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
        assert_eq!((sums.swap, sums.private, sums.hugetlb), (None, Some(108 * 1024), None));
    }

    #[test]
    fn pages_of_hugetlbfs_are_summed_and_one_impossible_line_makes_them_unknown() {
        let text = "Rss: 4 kB\nShared_Hugetlb: 2048 kB\nPrivate_Hugetlb: 4096 kB\n";
        assert_eq!(SmapsRollup::parse(text).unwrap().hugetlb, Some(6 << 20));
        let text = "Rss: 4 kB\nShared_Hugetlb: much\nPrivate_Hugetlb: 4096 kB\n";
        assert_eq!(SmapsRollup::parse(text).unwrap().hugetlb, None);
    }
}
