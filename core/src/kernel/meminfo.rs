//! `/proc/meminfo`: the host's memory.

use serde::{Deserialize, Serialize};

use super::keyed;
use crate::reading::Malformed;

/// The host's memory in bytes. `None`: this kernel does not show it.
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
    /// Parses the file.
    ///
    /// # Errors
    /// A known key has a value that is no number of kB, or no key is known.
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let mut memory = Self::default();
        for line in keyed::lines(text) {
            let field = match line.key {
                "MemTotal" => &mut memory.total,
                "MemFree" => &mut memory.free,
                "MemAvailable" => &mut memory.available,
                "Buffers" => &mut memory.buffers,
                "Cached" => &mut memory.cached,
                "AnonPages" => &mut memory.anonymous,
                "Shmem" => &mut memory.shmem,
                "SwapCached" => &mut memory.swap_cached,
                "Slab" => &mut memory.slab,
                "KernelStack" => &mut memory.kernel_stack,
                "PageTables" => &mut memory.page_tables,
                "SwapTotal" => &mut memory.swap_total,
                "SwapFree" => &mut memory.swap_free,
                _ => continue,
            };
            *field = Some(line.kib()?);
        }
        if memory == Self::default() {
            return Err(Malformed::new(1, "MemTotal and the like in kB", text));
        }
        Ok(memory)
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

    /// Returns the memory that can be obtained: `MemAvailable`, or on kernels before 3.14 free memory and caches.
    pub fn obtainable(&self) -> Option<u64> {
        self.available.or_else(|| {
            Some(self.free?.saturating_add(self.buffers.unwrap_or(0)).saturating_add(self.cached.unwrap_or(0)))
        })
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
    fn numbers_that_overflow_or_lack_a_unit_are_malformed() {
        assert!(Meminfo::parse("MemTotal: 18446744073709551615 kB\n").is_err());
        assert!(Meminfo::parse("MemTotal: 12\n").is_err());
        assert!(Meminfo::parse("MemTotal: -1 kB\n").is_err());
    }
}
