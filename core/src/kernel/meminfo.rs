//! `/proc/meminfo`: the host's memory.

use super::keyed;
use crate::reading::Malformed;

/// The host's memory in bytes. `None`: this kernel does not show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meminfo {
    /// All usable memory.
    pub total: Option<u64>,
    /// Memory that nobody uses.
    pub free: Option<u64>,
    /// What could be had without swapping, by the kernel's own estimate (3.14).
    pub available: Option<u64>,
    /// Block device buffers.
    pub buffers: Option<u64>,
    /// Page cache, which includes shared memory.
    pub cached: Option<u64>,
    /// Anonymous memory that is mapped.
    pub anonymous: Option<u64>,
    /// tmpfs and shared memory.
    pub shmem: Option<u64>,
    /// Swap space in all.
    pub swap_total: Option<u64>,
    /// Swap space that is free.
    pub swap_free: Option<u64>,
}

impl Meminfo {
    /// Parses the file.
    ///
    /// # Errors
    /// A known key whose value is not a number of kB, or no known key at all.
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

    /// Memory that can be had now: `MemAvailable`, or on kernels before 3.14 free memory and caches.
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
    fn numbers_that_overflow_or_lack_a_unit_are_malformed() {
        assert!(Meminfo::parse("MemTotal: 18446744073709551615 kB\n").is_err());
        assert!(Meminfo::parse("MemTotal: 12\n").is_err());
        assert!(Meminfo::parse("MemTotal: -1 kB\n").is_err());
    }
}
