//! Comparison of pages with zero.

/// Bytes that are read before the next decision.
const BLOCK_BYTES: usize = 256;

/// Words of a block.
const BLOCK_WORDS: usize = BLOCK_BYTES / size_of::<u64>();

/// Returns true if a page is zero. Most pages that are not show it in their first block.
///
/// # Safety
/// A whole page of `bytes` bytes can be read there, to which nothing writes meanwhile.
pub unsafe fn is_zero(page: *const u64, bytes: usize) -> bool {
    // SAFETY: as promised by the caller; a page is aligned to more than a word.
    let words = unsafe { core::slice::from_raw_parts(page, bytes / size_of::<u64>()) };
    words.chunks_exact(BLOCK_WORDS).all(|block| block.iter().fold(0, |any, word| any | word) == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_byte_anywhere_is_seen(at in 0_usize..4096, value in 1_u8..) {
            // SAFETY: a page of this test's own.
            let is_zero = |page: &[u64; 512]| unsafe { super::is_zero(page.as_ptr(), 4096) };
            let mut page = [0_u64; 512];
            prop_assert!(is_zero(&page));
            page[at / 8] |= u64::from(value) << (at % 8 * 8);
            prop_assert!(!is_zero(&page));
        }
    }
}
