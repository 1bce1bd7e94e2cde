//! The salt of a run. Fingerprints mean nothing without it, and it is never stored.

use std::io;
use std::sync::Arc;

use ksmith_core::sketch::{ZERO, fingerprint, mix};
use rustix::rand::{GetRandomFlags, getrandom};
use twox_hash::XxHash3_64;

/// A hash under a key that outlives the run, so that fingerprints of several hosts can be compared.
pub trait PageHash: Send + Sync {
    /// Returns the hash of a page that is not all zeros.
    fn hash(&self, page: &[u8]) -> u64;
}

/// A random secret for XXH3, or a hash with a key of its own.
#[derive(Clone)]
pub struct FingerprintSalt {
    secret: [u8; Self::BYTES],
    seed: u64,
    keyed: Option<Arc<dyn PageHash>>,
}

impl FingerprintSalt {
    /// The length of XXH3's own secret.
    const BYTES: usize = 192;

    /// Creates a salt from the kernel's random numbers.
    ///
    /// # Errors
    /// The kernel has no random numbers (never since Linux 3.17).
    pub fn new() -> io::Result<Self> {
        let mut secret = [0; Self::BYTES];
        let mut filled = 0;
        while filled < secret.len() {
            filled += getrandom(&mut secret[filled..], GetRandomFlags::empty())?;
        }
        let mut seed = [0; 8];
        seed.copy_from_slice(&secret[..8]);
        Ok(Self { secret, seed: u64::from_ne_bytes(seed), keyed: None })
    }

    /// Creates a salt of another hash, which has a key of its own.
    pub fn keyed(hash: Arc<dyn PageHash>) -> Self {
        Self { keyed: Some(hash), ..Self::from_seed(0) }
    }

    /// Creates the salt of this seed, the same at each call: for tests and benchmarks that repeat their draws.
    pub fn from_seed(seed: u64) -> Self {
        let mut secret = [0; Self::BYTES];
        for (at, word) in (1_u64..).zip(secret.as_chunks_mut::<8>().0) {
            *word = mix(seed.wrapping_add(at)).to_le_bytes();
        }
        Self { secret, seed, keyed: None }
    }

    /// Returns a page's fingerprint, or [`ZERO`].
    #[inline]
    pub fn fingerprint(&self, page: &[u8]) -> u64 {
        if is_zero(page) {
            return ZERO;
        }
        if let Some(keyed) = &self.keyed {
            return fingerprint(keyed.hash(page));
        }
        match XxHash3_64::oneshot_with_seed_and_secret(self.seed, &self.secret, page) {
            Ok(hash) => fingerprint(hash),
            // The secret is longer than the least that XXH3 takes.
            Err(_) => fingerprint(0),
        }
    }

    /// Returns the seed for sampling pages.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns a tag that tells salts apart and reveals nothing: the fingerprint of a fixed text.
    pub fn tag(&self) -> u64 {
        self.fingerprint(b"ksmith content sketch")
    }
}

impl std::fmt::Debug for FingerprintSalt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

/// Returns true if a page is all zeros. Most other pages differ early, so few are compared whole.
fn is_zero(page: &[u8]) -> bool {
    let (first, rest) = page.split_at(page.len().min(32));
    first.iter().all(|&byte| byte == 0)
        && rest.chunks(256).all(|chunk| chunk.iter().fold(0, |all, &byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_pages_have_equal_fingerprints_under_one_salt_only() {
        let (one, other) = (FingerprintSalt::new().unwrap(), FingerprintSalt::new().unwrap());
        let page = [7_u8; 4096];
        assert_eq!(one.fingerprint(&page), one.fingerprint(&page));
        assert_ne!(one.fingerprint(&page), other.fingerprint(&page));
        assert_ne!(one.tag(), other.tag());
        assert_eq!(FingerprintSalt::from_seed(3).tag(), FingerprintSalt::from_seed(3).tag());
        assert_ne!(FingerprintSalt::from_seed(3).tag(), FingerprintSalt::from_seed(4).tag());
        assert_eq!(format!("{one:?}"), "Salt");
    }

    #[test]
    fn one_bit_anywhere_makes_a_page_not_zero() {
        let salt = FingerprintSalt::new().unwrap();
        let mut page = [0_u8; 4096];
        assert_eq!(salt.fingerprint(&page), ZERO);
        for at in [0, 7, 31, 32, 33, 287, 288, 2048, 4095] {
            page[at] = 0x80;
            assert_ne!(salt.fingerprint(&page), ZERO, "{at}");
            page[at] = 0;
        }
    }
}
