//! The part that a pass merges of the pages that the pass before had left in no tree.
//!
//! It tells what another pass is worth: pages that were found changed, or were visited once, merge on their next visit
//! at best. Memory that is written to all the time is left to each pass, and none merges it.

use super::KsmdState;

/// The outcome of the whole passes of a scan, one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct MarginalYield {
    /// The part that the last whole pass merged of the pages that were left to it, 0 to 1.
    merged_part: f64,
    /// Pages that the last pass has left to the next. `None` before the first end.
    left_pages: Option<u64>,
    saved_bytes: u64,
}

impl MarginalYield {
    /// Begins a scan with so many bytes saved. Its first pass is expected to leave pages that all merge.
    pub(super) fn begin(saved_bytes: u64) -> Self {
        Self { merged_part: 1.0, left_pages: None, saved_bytes }
    }

    /// Records the end of a pass that leaves so many pages to the next. One that has not visited every page teaches
    /// nothing.
    pub(super) fn record_end(&mut self, left_pages: u64, is_whole: bool, now: &KsmdState) {
        let saved_bytes = std::mem::replace(&mut self.saved_bytes, now.saved_bytes);
        let merged_pages = now.saved_bytes.saturating_sub(saved_bytes) / now.page_size.max(1);
        if let Some(before) = self.left_pages.replace(left_pages).filter(|before| is_whole && *before > 0) {
            self.merged_part = (merged_pages as f64 / before as f64).min(1.0);
        }
    }

    /// Returns the part that the next pass is expected to merge of the pages that are left to it, 0 to 1.
    pub(super) fn merged_part(&self) -> f64 {
        self.merged_part
    }
}
