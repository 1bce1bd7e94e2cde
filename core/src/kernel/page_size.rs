//! The base page size of a host, as its files tell it.

use super::keyed;
use crate::reading::Malformed;

/// Keys of `/proc/meminfo`, in kB, and of `/proc/vmstat`, in pages, that show the same memory.
const SAME_MEMORY: [(&str, &str); 8] = [
    ("MemFree", "nr_free_pages"),
    ("AnonPages", "nr_anon_pages"),
    ("Mapped", "nr_mapped"),
    ("Shmem", "nr_shmem"),
    ("SReclaimable", "nr_slab_reclaimable"),
    ("SUnreclaim", "nr_slab_unreclaimable"),
    ("Active(anon)", "nr_active_anon"),
    ("Active(file)", "nr_active_file"),
];

/// Keys of `/proc/PID/status`, in kB, in the order of the words of `/proc/PID/statm`, in pages.
const SAME_PROCESS: [&str; 2] = ["VmSize", "VmRSS"];

/// Sizes of the kernels that have KSM, in bytes.
const SIZES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// The entry of the auxiliary vector that holds the page size (`AT_PAGESZ` in `include/uapi/linux/auxvec.h`).
const AT_PAGESZ: u64 = 6;

/// Evidence of the base page size: figures of one amount in kB and in pages. The two are read at different moments, so
/// that they may disagree: the size that most pairs show counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageSizeEvidence {
    votes: [u32; SIZES.len()],
    has_pair: bool,
}

impl PageSizeEvidence {
    /// Adds `/proc/meminfo` and `/proc/vmstat`.
    pub fn add_host(&mut self, meminfo: &str, vmstat: &str) {
        for (in_kib, in_pages) in SAME_MEMORY {
            self.add_pair(value_of(meminfo, in_kib), value_of(vmstat, in_pages));
        }
    }

    /// Adds `/proc/PID/status` and `/proc/PID/statm` of one process.
    pub fn add_process(&mut self, status: &str, statm: &str) {
        for (in_kib, pages) in SAME_PROCESS.into_iter().zip(statm.split_ascii_whitespace()) {
            self.add_pair(value_of(status, in_kib), super::unsigned(pages));
        }
    }

    fn add_pair(&mut self, kib: Option<u64>, pages: Option<u64>) {
        let (Some(kib), Some(pages)) = (kib, pages.filter(|pages| *pages > 0)) else { return };
        self.has_pair = true;
        let measured = kib as f64 * 1024.0 / pages as f64;
        let is_near = |size: u64| (measured / size as f64 - 1.0).abs() < 0.05;
        if let Some(index) = SIZES.iter().position(|size| is_near(*size)) {
            self.votes[index] += 1;
        }
    }

    /// Returns the page size in bytes; `None` without any pair.
    ///
    /// # Errors
    /// There are pairs, and none of them shows a page size, or as many show another.
    pub fn size(&self) -> Result<Option<u64>, Malformed> {
        let most = self.votes.into_iter().max().filter(|most| *most > 0);
        let mut leading = SIZES.iter().zip(self.votes).filter(|(_, votes)| Some(*votes) == most);
        match (leading.next(), leading.next()) {
            (Some((size, _)), None) => Ok(Some(*size)),
            _ if self.has_pair => Err(Malformed::new(1, "figures in kB and in pages of one page size", "others")),
            _ => Ok(None),
        }
    }
}

/// Returns the page size of `/proc/PID/smaps`: the least of its mappings, since those of hugetlbfs have larger pages.
pub fn page_size_of_smaps(text: &str) -> Option<u64> {
    let sizes = keyed::lines(text).filter(|line| ["KernelPageSize", "MMUPageSize"].contains(&line.key));
    sizes.filter_map(|line| line.kib().ok()).min().filter(|size| SIZES.contains(size))
}

/// Returns the page size of `/proc/PID/auxv`, in the byte order of this machine or the other, of 64 bits.
pub fn page_size_of_auxv(bytes: &[u8]) -> Option<u64> {
    let word = |bytes: &[u8], parse: fn([u8; 8]) -> u64| bytes.try_into().ok().map(parse);
    let find = |parse: fn([u8; 8]) -> u64| {
        let mut entries = bytes.chunks_exact(16);
        entries.find_map(|entry| {
            let (key, value) = entry.split_at(8);
            (word(key, parse) == Some(AT_PAGESZ)).then(|| word(value, parse)).flatten()
        })
    };
    [u64::from_le_bytes as fn([u8; 8]) -> u64, u64::from_be_bytes]
        .into_iter()
        .find_map(|parse| find(parse).filter(|size| SIZES.contains(size)))
}

/// Returns the page size of a processor that has only one: `/proc/cpuinfo` of x86 and s390x, and of no other, has a line
/// `vendor_id`.
pub fn page_size_of_cpuinfo(text: &str) -> Option<u64> {
    text.lines().any(|line| line.starts_with("vendor_id")).then_some(4 << 10)
}

/// Returns the usual size of a transparent huge page in bytes: the memory that one page of a page table maps with entries of
/// 8 bytes. It is 2 MiB with pages of 4 KiB, and 512 MiB with those of 64 KiB.
pub const fn usual_huge_page_bytes(page_size: u64) -> u64 {
    (page_size / 8).saturating_mul(page_size)
}

/// Returns the number behind a key of lines that may end with `kB`.
fn value_of(text: &str, key: &str) -> Option<u64> {
    let line = keyed::lines(text).find(|line| line.key == key)?;
    super::unsigned(line.rest.trim_end_matches("kB").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_size(meminfo: &str, vmstat: &str) -> Result<Option<u64>, Malformed> {
        let mut evidence = PageSizeEvidence::default();
        evidence.add_host(meminfo, vmstat);
        evidence.size()
    }

    #[test]
    fn free_memory_in_both_units_shows_the_page_size() {
        for size in SIZES {
            let meminfo = format!("MemTotal: 9 kB\nMemFree:  {} kB\n", 1000 * size / 1024);
            assert_eq!(page_size(&meminfo, "nr_free_pages 1000\n"), Ok(Some(size)));
        }
        assert_eq!(page_size("MemFree: 4100 kB\n", "nr_free_pages 1000\n"), Ok(Some(4096)), "a moment later");
    }

    #[test]
    fn most_pairs_count_since_free_memory_moves() {
        let meminfo = "MemFree: 23099960 kB\nAnonPages: 400 kB\nMapped: 800 kB\nShmem: 0 kB\n";
        let vmstat = "nr_free_pages 1920833\nnr_anon_pages 100\nnr_mapped 200\nnr_shmem 0\n";
        assert_eq!(page_size(meminfo, vmstat), Ok(Some(4096)));
    }

    #[test]
    fn files_that_disagree_show_none_and_missing_lines_say_nothing() {
        assert!(page_size("MemFree: 12000 kB\n", "nr_free_pages 1000\n").is_err());
        assert_eq!(page_size("MemTotal: 12 kB\n", "nr_free_pages 1000\n"), Ok(None));
        let two = ("MemFree: 8000 kB\nAnonPages: 400 kB\n", "nr_free_pages 1000\nnr_anon_pages 100\n");
        assert!(page_size(two.0, two.1).is_err(), "one pair for each of two sizes");
        assert_eq!(page_size("", ""), Ok(None));
        assert_eq!(page_size("MemFree: 0 kB\n", "nr_free_pages 0\n"), Ok(None));
    }

    #[test]
    fn a_process_shows_the_page_size_in_several_files() {
        let mut evidence = PageSizeEvidence::default();
        evidence.add_process(
            "Name:\ta\nVmPeak:\t99 kB\nVmSize:\t  640000 kB\nVmRSS:\t   6400 kB\n",
            "10000 100 3 1 0 5 0\n",
        );
        assert_eq!(evidence.size(), Ok(Some(64 << 10)));
        evidence.add_process("Name:\tkthread\n", "0 0 0 0 0 0 0\n");
        assert_eq!(evidence.size(), Ok(Some(64 << 10)));
        let smaps = "1-2 rw-p\nKernelPageSize:     2048 kB\n3-4 rw-p\nKernelPageSize:       16 kB\nMMUPageSize:       16 kB\n";
        assert_eq!(
            (page_size_of_smaps(smaps), page_size_of_smaps("KernelPageSize: 2048 kB\n")),
            (Some(16 << 10), None)
        );
        let entries =
            |word: fn(u64) -> [u8; 8]| [33, 9, 6, 65_536, 0, 0].into_iter().flat_map(word).collect::<Vec<u8>>();
        for bytes in [entries(u64::to_le_bytes), entries(u64::to_be_bytes)] {
            assert_eq!(page_size_of_auxv(&bytes), Some(65_536));
        }
        assert_eq!((page_size_of_auxv(&[6, 0, 0]), page_size_of_auxv(&[6; 160])), (None, None));
    }

    #[test]
    fn a_huge_page_is_what_one_page_of_a_page_table_maps() {
        let sizes = [4, 16, 64].map(|kib| usual_huge_page_bytes(kib << 10) >> 20);
        assert_eq!((sizes, usual_huge_page_bytes(u64::MAX)), ([2, 32, 512], u64::MAX));
    }

    #[test]
    fn only_processors_with_one_page_size_show_it() {
        assert_eq!(page_size_of_cpuinfo("processor\t: 0\nvendor_id\t: AuthenticAMD\n"), Some(4096));
        assert_eq!(page_size_of_cpuinfo("vendor_id       : IBM/S390\n"), Some(4096));
        assert_eq!(page_size_of_cpuinfo("processor\t: 0\nCPU implementer\t: 0x41\n"), None);
    }
}
