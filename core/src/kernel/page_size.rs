//! The base page size of a host, as two of its files tell it.

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

/// Sizes of the kernels that have KSM, in bytes.
const SIZES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];

/// Finds the base page size in bytes at which `/proc/meminfo` and `/proc/vmstat` agree. The two are read at different
/// moments, so that a pair of lines may disagree: the size that most pairs show counts. `None` if no pair is there.
///
/// # Errors
/// There are pairs, and none of them shows a page size, or as many show another.
pub fn page_size(meminfo: &str, vmstat: &str) -> Result<Option<u64>, Malformed> {
    let value_of = |text: &str, key: &str| {
        keyed::lines(text)
            .find(|line| line.key == key)
            .map(|line| line.rest.trim_end_matches("kB").trim_end().to_owned())
    };
    let mut votes = [0; SIZES.len()];
    let mut is_any_pair = false;
    for (in_kib, in_pages) in SAME_MEMORY {
        let kib = value_of(meminfo, in_kib).and_then(|kib| super::unsigned(&kib));
        let pages = value_of(vmstat, in_pages).and_then(|pages| super::unsigned(&pages));
        let (Some(kib), Some(pages)) = (kib, pages.filter(|pages| *pages > 0)) else { continue };
        is_any_pair = true;
        let measured = kib as f64 * 1024.0 / pages as f64;
        let is_near = |size: u64| (measured / size as f64 - 1.0).abs() < 0.05;
        if let Some(index) = SIZES.iter().position(|size| is_near(*size)) {
            votes[index] += 1;
        }
    }
    let most = votes.into_iter().max().filter(|most| *most > 0);
    let mut leading = SIZES.iter().zip(votes).filter(|(_, votes)| Some(*votes) == most);
    match (leading.next(), leading.next()) {
        (Some((size, _)), None) => Ok(Some(*size)),
        _ if is_any_pair => Err(Malformed::new(1, "MemFree and nr_free_pages of one page size", meminfo)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
