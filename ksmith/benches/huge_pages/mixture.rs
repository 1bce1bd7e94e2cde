//! The mixtures of equal, empty and own pages that guests hold.

/// A mixture: the per cent of pages of a kind, and the pages that lie together.
#[derive(Debug, Clone, Copy)]
pub struct MemoryMixture {
    pub kind: &'static str,
    pub percent: usize,
    pub run: usize,
}

/// The content of a page.
pub enum PageContent {
    Zeros,
    /// The number that tells the page from others.
    Marked(u64),
}

const fn mixture(kind: &'static str, percent: usize, run: usize) -> MemoryMixture {
    MemoryMixture { kind, percent, run }
}

/// Scattered page by page, and in runs of four huge pages.
pub const MIXTURES: [MemoryMixture; 10] = [
    mixture("equal", 1, 1),
    mixture("equal", 1, 2048),
    mixture("equal", 5, 1),
    mixture("equal", 5, 2048),
    mixture("equal", 20, 1),
    mixture("equal", 20, 2048),
    mixture("equal", 50, 1),
    mixture("equal", 50, 2048),
    mixture("zero", 30, 1),
    mixture("zero", 30, 2048),
];

impl MemoryMixture {
    /// Returns the content of page `number` of the guest that `own` tells from others.
    pub fn page_content(&self, number: usize, own: u64) -> PageContent {
        // Of a hundred stretches so many are of the kind, spread evenly.
        let is_of_kind = (number / self.run * self.percent) % 100 < self.percent;
        match (is_of_kind, self.kind) {
            (true, "zero") => PageContent::Zeros,
            (true, _) => PageContent::Marked(number as u64 + 1),
            (false, _) => PageContent::Marked(own << 32 | number as u64),
        }
    }

    /// Returns the mixture in words.
    pub fn in_words(&self) -> String {
        let place = if self.run == 1 { "scattered" } else { "in runs" };
        format!("{} {} %, {place}", self.kind, self.percent)
    }
}

impl PageContent {
    /// Returns the first bytes of the page; zeros follow.
    pub fn first_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        if let Self::Marked(number) = self {
            bytes[..8].copy_from_slice(&number.to_ne_bytes());
            bytes[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_ne_bytes());
        }
        bytes
    }
}
