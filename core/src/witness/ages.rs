//! How long what comes back may stay.
//!
//! What is written to again a few seconds after it was merged was merged in vain, and the guest pays for the copies.
//! Nobody knows the future; but what stayed for a moment before will do so again, unless it rests for longer by now.

use std::time::Duration;

use super::{Entry, Print};

/// What stays for so long counts in full.
pub const LASTING: Duration = Duration::from_secs(45);

impl Entry {
    /// Takes in since when the page holds what it holds, and how long it held what was worth merging; before what it
    /// holds and where it lies are taken in.
    pub(super) fn ages(&mut self, print: Option<Print>, at: Duration) {
        let Some(Print { content, frame, .. }) = print else {
            self.since = None;
            return;
        };
        // Written to, it has ended even if it holds the same again.
        let has_left = self.is_merged() && !frame.is_merged();
        if self.last == Some(content) && !has_left {
            return;
        }
        // Of what was there when the page was drawn nobody knows how long it had been.
        if let Some(since) = self.since.filter(|_| self.is_merged() || self.familiar) {
            self.lived = Some(at.saturating_sub(since));
        }
        self.since = Some(at);
    }

    /// At least as long as what was worth merging stayed before, or as what there is has rested. [`LASTING`] where nobody
    /// has seen it leave.
    pub(super) fn lasts(&self, at: Duration) -> Duration {
        let rested = self.since.map_or(LASTING, |since| at.saturating_sub(since));
        self.lived.map_or(LASTING, |lived| lived.max(rested).min(LASTING))
    }
}

/// The mean of so long for so many pages each. `None` where there are none.
pub(super) fn mean(all: impl IntoIterator<Item = (f64, Duration)>) -> Option<Duration> {
    let (pages, seconds) = all
        .into_iter()
        .fold((0.0, 0.0), |(pages, sum), (part, lasts)| (pages + part, sum + part * lasts.as_secs_f64()));
    if pages > 0.0 { Duration::try_from_secs_f64(seconds / pages).ok() } else { None }
}
