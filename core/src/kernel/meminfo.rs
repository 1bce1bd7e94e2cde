//! `/proc/meminfo`: the host's memory.

use serde::{Deserialize, Serialize};

use super::keyed;
use crate::reading::Malformed;

/// The host's memory in bytes. `None`: this kernel does not show it, or the value is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Meminfo {
    /// All usable memory.
    pub total: Option<u64>,
    /// Memory that is not in use.
    pub free: Option<u64>,
    /// Memory available without swapping, by the kernel's own estimate (3.14).
    pub available: Option<u64>,
    /// Block device buffers.
    pub buffers: Option<u64>,
    /// Page cache, which includes shared memory.
    pub cached: Option<u64>,
    /// Anonymous memory that is mapped.
    pub anonymous: Option<u64>,
    /// Anonymous memory in transparent huge pages.
    #[serde(default)]
    pub anonymous_huge: Option<u64>,
    /// Memory of tmpfs and shared memory.
    pub shmem: Option<u64>,
    /// Pages that are in swap and in memory both.
    pub swap_cached: Option<u64>,
    /// The kernel's own objects.
    pub slab: Option<u64>,
    /// The kernel's stacks.
    pub kernel_stack: Option<u64>,
    /// The lowest level of page tables.
    pub page_tables: Option<u64>,
    /// Swap space in all.
    pub swap_total: Option<u64>,
    /// Swap space that is free.
    pub swap_free: Option<u64>,
}

impl Meminfo {
    /// Parses the file, each line by itself: one that is impossible is unknown, and the others keep their meaning.
    ///
    /// # Errors
    /// No key has a possible value.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let memory = Self::parse_lines(text).0;
        if memory == Self::default() {
            return Err(Malformed::new(1, "MemTotal and the like in kB", text));
        }
        Ok(memory)
    }

    /// Returns the lines whose value is impossible: no number of kB, more than any host has, or more than the total.
    pub fn impossible_lines(text: &str) -> Vec<Malformed> {
        Self::parse_lines(text).1
    }

    fn parse_lines(text: &str) -> (Self, Vec<Malformed>) {
        let (mut memory, mut faults) = (Self::default(), Vec::new());
        for is_total in [true, false] {
            for line in keyed::lines(text) {
                let (memory_total, swap_total) = (memory.total, memory.swap_total);
                let (field, bound) = match line.key {
                    "MemTotal" => (&mut memory.total, None),
                    "SwapTotal" => (&mut memory.swap_total, None),
                    "SwapFree" => (&mut memory.swap_free, swap_total),
                    "MemFree" => (&mut memory.free, memory_total),
                    "MemAvailable" => (&mut memory.available, memory_total),
                    "Buffers" => (&mut memory.buffers, memory_total),
                    "Cached" => (&mut memory.cached, memory_total),
                    "AnonPages" => (&mut memory.anonymous, memory_total),
                    "AnonHugePages" => (&mut memory.anonymous_huge, memory_total),
                    "Shmem" => (&mut memory.shmem, memory_total),
                    "SwapCached" => (&mut memory.swap_cached, memory_total),
                    "Slab" => (&mut memory.slab, memory_total),
                    "KernelStack" => (&mut memory.kernel_stack, memory_total),
                    "PageTables" => (&mut memory.page_tables, memory_total),
                    _ => continue,
                };
                if is_total != line.key.ends_with("Total") {
                    continue;
                }
                match line.kib() {
                    Ok(bytes) if bound.is_none_or(|bound| bytes <= bound) => *field = Some(bytes),
                    Ok(_) => faults.push(line.malformed("a part of the total")),
                    Err(why) => faults.push(why),
                }
            }
        }
        (memory, faults)
    }

    /// Returns the memory that no line accounts for: pages that a driver has allocated for itself, such as a balloon's,
    /// and memory that user-mode Linux gave back to its host. `None` without the lines that matter most.
    pub fn unaccounted(&self) -> Option<u64> {
        let minor = [self.buffers, self.swap_cached, self.slab, self.kernel_stack, self.page_tables];
        let minor: u64 = minor.into_iter().flatten().fold(0, u64::saturating_add);
        let accounted =
            self.free?.saturating_add(self.cached?).saturating_add(self.anonymous?).saturating_add(minor);
        Some(self.total?.saturating_sub(accounted))
    }

    /// Returns the memory that can be obtained: `MemAvailable`, or on kernels before 3.14 free memory and caches. At most
    /// the total, and `None` where that is unknown.
    pub fn obtainable(&self) -> Option<u64> {
        let caches =
            || Some(self.free?.saturating_add(self.buffers.unwrap_or(0)).saturating_add(self.cached.unwrap_or(0)));
        let total = self.total?;
        Some(self.available.or_else(caches)?.min(total))
    }

    /// Returns the memory that the host has for pages that come back: obtainable memory and free swap. Free swap of
    /// unknown size counts as none. `None` where the obtainable memory is unknown.
    pub fn headroom(&self) -> Option<u64> {
        Some(self.obtainable()?.saturating_add(self.swap_free.unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kilobytes_become_bytes() {
        let memory =
            Meminfo::parse("MemTotal:       24689308 kB\nMemFree:  1 kB\nHugePages_Total:       0\n").unwrap();
        assert_eq!(memory.total, Some(24_689_308 * 1024));
        assert_eq!(memory.available, None);
        assert_eq!(memory.obtainable(), Some(1024));
    }

    #[test]
    fn memory_of_drivers_is_the_unaccounted_rest() {
        let text = "MemTotal: 100 kB\nMemFree: 20 kB\nBuffers: 1 kB\nCached: 30 kB\nAnonPages: 9 kB\nSlab: 5 kB\n\
                    KernelStack: 2 kB\nPageTables: 1 kB\n";
        assert_eq!(Meminfo::parse(text).unwrap().unaccounted(), Some(32 << 10));
        assert_eq!(Meminfo::parse("MemTotal: 100 kB\n").unwrap().unaccounted(), None);
    }

    #[test]
    fn a_file_without_a_possible_number_is_malformed() {
        assert!(Meminfo::parse("MemTotal: 18446744073709551615 kB\n").is_err());
        assert!(Meminfo::parse("MemTotal: 12\n").is_err());
        assert!(Meminfo::parse("MemTotal: -1 kB\n").is_err());
    }

    #[test]
    fn one_impossible_line_is_unknown_and_the_others_keep_their_meaning() {
        // SwapFree as Ubuntu 24.04 showed it.
        let text = "MemTotal: 100 kB\nMemFree: 20 kB\nMemAvailable: 60 kB\nSwapTotal: 50 kB\n\
                    SwapFree: 18446744073708600176 kB\n";
        let memory = Meminfo::parse(text).unwrap();
        assert_eq!((memory.swap_total, memory.swap_free), (Some(50 << 10), None));
        assert_eq!(memory.headroom(), Some(60 << 10));
        let faults = Meminfo::impossible_lines(text);
        assert_eq!((faults.len(), faults[0].line), (1, 5));
        let more_than_there_is = text.replace("18446744073708600176", "51");
        assert_eq!(Meminfo::parse(&more_than_there_is).unwrap().swap_free, None);
    }

    #[test]
    fn headroom_is_never_larger_than_the_host_and_unknown_without_its_size() {
        let headroom = |text: &str| Meminfo::parse(text).ok().and_then(|memory| memory.headroom());
        assert_eq!(
            headroom("MemTotal: 100 kB\nMemFree: 9 kB\nMemAvailable: 18014398509481900 kB\n"),
            Some(9 << 10)
        );
        assert_eq!(headroom("MemTotal: 100 kB\nMemAvailable: 101 kB\n"), None);
        assert_eq!(headroom("MemTotal: 100 kB\nMemFree: 90 kB\nCached: 90 kB\n"), Some(100 << 10));
        assert_eq!(headroom("MemTotal: 0 kB\nMemAvailable: 50 kB\n"), None);
        assert_eq!(headroom("MemAvailable: 50 kB\n"), None);
        assert_eq!(headroom("MemAvailable: 50 kB\nMemTotal: 100 kB\n"), Some(50 << 10));
    }
}
