//! How long what comes back may stay.
//!
//! Memory that changes again a few seconds after it was merged was merged in vain, and the guest pays for the copies.
//! Nobody knows the future; but what lasted for a moment before will do so again, unless it rests for longer by now.

use std::time::Duration;

use super::{Entry, Ledger, Print};

/// What is merged for so long is taken to stay.
pub const LASTING: Duration = Duration::from_secs(45);

impl Ledger {
    /// How long the familiar pages may stay as they are, on average, up to [`LASTING`], which it is too where there are
    /// none.
    pub(super) fn lasts(&self, at: Duration) -> Duration {
        let familiar = || self.entries.iter().filter(|entry| entry.familiar);
        let sum: Duration = familiar().map(|entry| entry.lasts(at)).sum();
        match u32::try_from(familiar().count()) {
            Ok(0) | Err(_) => LASTING,
            Ok(pages) => sum / pages,
        }
    }
}

impl Entry {
    /// Takes in since when the page holds what it holds, and for how long it was merged; before what it holds and where
    /// it lies are taken in.
    pub(super) fn ages(&mut self, print: Option<Print>, at: Duration) {
        let Some(Print { content, frame, .. }) = print else {
            (self.merged_at, self.lived) = (None, None);
            return;
        };
        let is_other = self.last != Some(content);
        if is_other {
            self.since = at;
        }
        let has_ended = self.is_merged() && (is_other || !frame.is_merged());
        if let Some(merged_at) = self.merged_at.filter(|_| has_ended) {
            self.lived = Some(at.saturating_sub(merged_at));
            self.merged_at = None;
        }
        if frame.is_merged() && (has_ended || !self.is_merged()) {
            self.merged_at = Some(at);
        }
    }

    /// At least as long as it lasted before, or as it has rested: of what was never seen to leave nothing is known.
    fn lasts(&self, at: Duration) -> Duration {
        self.lived.map_or(LASTING, |lived| lived.max(at.saturating_sub(self.since)).min(LASTING))
    }
}
