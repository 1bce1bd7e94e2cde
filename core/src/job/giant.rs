//! Sparse giants: processes that reserve far more address space than they use. Before Linux 6.18 ksmd walks over each
//! absent page.

use crate::field::KernelVersion;

/// The first kernel in which ksmd jumps over holes in a mapping instead of asking for each of their pages
/// (`scan_get_next_rmap_item` in `mm/ksm.c`).
pub const JUMPS_OVER_HOLES: KernelVersion = KernelVersion::new(6, 18);

/// The unused address space of a giant: at about 0.1 us for each absent page, 256 GiB take 7 s of each pass.
const GIANT_BYTES: u64 = 256 << 30;

/// Returns true if a process with this address space and RSS is a sparse giant on this kernel.
pub fn is_sparse_giant(kernel: Option<KernelVersion>, mapped_bytes: u64, rss_bytes: u64) -> bool {
    let is_cured = kernel.is_some_and(|version| version >= JUMPS_OVER_HOLES);
    !is_cured && mapped_bytes.saturating_sub(rss_bytes) >= GIANT_BYTES
}

/// Names the sanitizer of a program by the beginning of its file. Sanitizers map terabytes of shadow memory.
pub fn names_a_sanitizer(head: &[u8]) -> Option<&'static str> {
    const SIGNS: [(&str, &str); 4] = [
        ("__asan_init", "AddressSanitizer"),
        ("__tsan_init", "ThreadSanitizer"),
        ("__msan_init", "MemorySanitizer"),
        ("__hwasan_init", "HWAddressSanitizer"),
    ];
    let has = |sign: &str| head.windows(sign.len()).any(|window| window == sign.as_bytes());
    SIGNS.iter().find(|(sign, _)| has(sign)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_giant_is_one_only_before_the_cure_and_only_if_it_is_empty() {
        let old = Some(KernelVersion::new(6, 12));
        assert!(is_sparse_giant(old, 1 << 40, 1 << 30));
        assert!(is_sparse_giant(None, 1 << 40, 1 << 30), "an unknown kernel counts as an old one");
        assert!(!is_sparse_giant(old, 1 << 40, 1 << 40));
        assert!(!is_sparse_giant(old, 1 << 36, 0));
        assert!(!is_sparse_giant(Some(JUMPS_OVER_HOLES), 1 << 44, 0));
    }

    #[test]
    fn a_sanitizer_is_known_by_the_name_of_its_start() {
        assert_eq!(names_a_sanitizer(b"..\0__asan_init\0__asan_version"), Some("AddressSanitizer"));
        assert_eq!(names_a_sanitizer(b"main\0malloc"), None);
    }
}
