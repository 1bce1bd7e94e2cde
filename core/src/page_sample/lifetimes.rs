//! Expected lifetimes of contents.
//!
//! A page that is written to a few seconds after it was merged costs its guest a copy and saves little. A content that
//! stayed for a moment before is expected to do so again, unless it has been stable for longer by now.

use std::time::Duration;

use super::{PageFingerprint, SampleEntry};
use crate::sample::LASTING;

impl SampleEntry {
    /// Records since when the page holds its content, and for how long it held the one before. Must be called before
    /// [`SampleEntry::follow_frame`].
    pub(super) fn follow_content(&mut self, fingerprint: Option<PageFingerprint>, at: Duration) {
        let Some(PageFingerprint { content, frame, .. }) = fingerprint else {
            self.since = None;
            return;
        };
        // A content has ended with a write even if the page holds the same again.
        let has_left = self.is_merged() && !frame.is_merged();
        if self.last == Some(content) && !has_left {
            return;
        }
        // How long a content was there before the page was drawn is not known.
        if let Some(since) = self.since.filter(|_| self.is_merged() || self.recurring) {
            self.lived = Some(at.saturating_sub(since));
        }
        self.since = Some(at);
    }

    /// Returns the expected lifetime: the longer of the last one and the time that the content has been stable, at most
    /// [`LASTING`].
    ///
    /// [`LASTING`] where no content was seen to end.
    pub(super) fn lifetime(&self, at: Duration) -> Duration {
        let rested = self.since.map_or(LASTING, |since| at.saturating_sub(since));
        self.lived.map_or(LASTING, |lived| lived.max(rested).min(LASTING))
    }
}

/// Returns the mean lifetime, weighted by pages; `None` if there are none.
pub(super) fn mean(all: impl IntoIterator<Item = (f64, Duration)>) -> Option<Duration> {
    let (pages, seconds) = all
        .into_iter()
        .fold((0.0, 0.0), |(pages, sum), (part, lifetime)| (pages + part, sum + part * lifetime.as_secs_f64()));
    if pages > 0.0 { Duration::try_from_secs_f64(seconds / pages).ok() } else { None }
}
