//! The fleet's key, and its fingerprint function.
//!
//! `fingerprint = BLAKE3(outer key, HighwayHash-128(inner key, page))`, cut to 64 bits. Keyed BLAKE3 is a pseudo-random
//! function, so a fingerprint reveals nothing without the key. For speed it hashes a digest of 16 bytes instead of a
//! page of 4096. HighwayHash's output never leaves this module: only its collisions are observable.

use std::sync::Arc;

use highway::{HighwayHash, HighwayHasher, Key};
use ksmith_host::memory::salt::{FingerprintSalt, PageHash};

/// The fleet's key: all subkeys that are derived from the secret.
#[derive(Clone)]
pub struct FleetKey {
    inner: [u64; 4],
    outer: [u8; 32],
    id: [u8; 16],
}

impl FleetKey {
    /// Derives the subkeys from a secret. Each use has its own subkey.
    pub fn from_secret(secret: &[u8]) -> Self {
        let inner = blake3::derive_key("ksmith sketch file 1: content", secret);
        let id = blake3::derive_key("ksmith sketch file 1: name of the key", secret);
        let mut words = [0; 4];
        for (word, bytes) in words.iter_mut().zip(inner.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let mut name = [0; 16];
        name.copy_from_slice(&id[..16]);
        let outer = blake3::derive_key("ksmith sketch file 1: fingerprint", secret);
        Self { inner: words, outer, id: name }
    }

    /// Returns the key's id, 32 hexadecimal digits that distinguish keys without revealing them.
    pub fn id(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the salt for fingerprints with this key.
    pub fn salt(&self) -> FingerprintSalt {
        FingerprintSalt::keyed(Arc::new(self.clone()))
    }
}

impl PageHash for FleetKey {
    fn hash(&self, page: &[u8]) -> u64 {
        let [low, high] = HighwayHasher::new(Key(self.inner)).hash128(page);
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&low.to_le_bytes());
        digest[8..].copy_from_slice(&high.to_le_bytes());
        let keyed = blake3::keyed_hash(&self.outer, &digest);
        keyed.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FleetKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of two versions are comparable only as long as this holds.
    #[test]
    fn fingerprints_are_those_of_format_1() {
        let key = FleetKey::from_secret(b"0123456789abcdef");
        let page: Vec<u8> = (0..4096_u32).map(|at| (at * 7) as u8).collect();
        assert_eq!(key.id(), "a47aeb53358d3455a50a3486edb19989");
        assert_eq!(format!("{:016x}", key.hash(&page)), "2074126dd6029a3f");
    }

    #[test]
    fn another_secret_gives_other_fingerprints_and_another_name() {
        let (one, other) = (FleetKey::from_secret(b"0123456789abcdef"), FleetKey::from_secret(b"0123456789abcdeg"));
        let page = [9_u8; 4096];
        assert_eq!(one.hash(&page), FleetKey::from_secret(b"0123456789abcdef").hash(&page));
        assert_ne!(one.hash(&page), other.hash(&page));
        assert_ne!(one.id(), other.id());
        assert_eq!(format!("{one:?}"), format!("FleetKey({})", one.id()), "the key itself is not shown");
    }

    #[test]
    fn each_bit_of_a_page_counts_and_moves_about_half_of_the_fingerprint() {
        let key = FleetKey::from_secret(b"0123456789abcdef");
        let mut page = vec![1_u8; 4096];
        let whole = key.hash(&page);
        let mut moved = 0;
        for at in 0..4096 {
            page[at] ^= 1 << (at % 8);
            moved += (key.hash(&page) ^ whole).count_ones();
            assert_ne!(key.hash(&page), whole, "{at}");
            page[at] ^= 1 << (at % 8);
        }
        // 4096 x 32 bits expected, with a standard deviation of 256.
        assert!((129_500..132_700).contains(&moved), "{moved}");
    }
}
