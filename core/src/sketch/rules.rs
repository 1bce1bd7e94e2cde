//! The number of frames that KSM keeps of a content, by the rules of `mm/ksm.c`.

/// The settings of KSM that decide how much merging saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeRules {
    /// `max_page_sharing`: the number of page table entries that one frame may serve, at least 2.
    pub max_page_sharing: u64,
    /// `use_zero_pages`: whether zero pages map the kernel's own zero page, so that none of their frames is kept.
    pub use_zero_pages: bool,
}

impl Default for MergeRules {
    /// The kernel's defaults.
    fn default() -> Self {
        Self { max_page_sharing: 256, use_zero_pages: false }
    }
}

impl MergeRules {
    /// Returns the frames kept of a content: `ceil(copies / max_page_sharing)`.
    #[inline]
    pub fn frames(&self, copies: u64) -> u64 {
        copies.div_ceil(self.max_page_sharing.max(2))
    }

    /// Returns the frames kept of `copies` zero pages.
    pub fn zero_frames(&self, copies: u64) -> u64 {
        if self.use_zero_pages { 0 } else { self.frames(copies) }
    }

    /// The least part of a content's surplus copies that merging saves, whatever the number of copies:
    /// ceil(c/m) - 1 <= (c-1)/m, so c - ceil(c/m) >= (c-1) (1 - 1/m).
    pub(super) fn least_share(&self) -> f64 {
        1.0 - 1.0 / self.max_page_sharing.max(2) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_serves_max_page_sharing_pages() {
        let rules = MergeRules::default();
        let frames = [0, 1, 2, 256, 257, 513].map(|copies| rules.frames(copies));
        assert_eq!(frames, [0, 1, 1, 1, 2, 3]);
        assert_eq!(rules.zero_frames(1000), 4);
        assert_eq!(MergeRules { use_zero_pages: true, ..rules }.zero_frames(1000), 0);
    }

    #[test]
    fn the_least_share_holds_for_every_number_of_copies() {
        for max_page_sharing in [2, 3, 256] {
            let rules = MergeRules { max_page_sharing, use_zero_pages: false };
            for copies in 1..3000 {
                let saved = (copies - rules.frames(copies)) as f64;
                assert!(saved >= (copies - 1) as f64 * rules.least_share() - 1e-9, "{copies}");
            }
        }
    }
}
