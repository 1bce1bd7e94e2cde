//! Matches of recurring pages: the pages that find another one to merge with.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::lifetimes::mean;
use super::{FrameKind, PageFingerprint, PageSampler, SampleEntry};

/// The recurring pages by what they match, and their lifetime, as in [`super::PageSamples`].
#[derive(Debug, Clone, Copy)]
pub(super) struct RecurringMatches {
    pub(super) matches_merged: u32,
    pub(super) matches_unmerged: u32,
    pub(super) mutual: u32,
    pub(super) lifetime: Option<Duration>,
}

impl PageSampler {
    /// Counts the recurring pages that match a merged page, those that match an unmerged page, and of these the pages
    /// that can only merge with each other.
    ///
    /// A page that leaves a shared frame leaves a free partner behind and can return to it. Some pages never return, so
    /// only a part counts: `matched = away * min(1, free_partners / left)`. If all have left, those that return can
    /// only merge with each other. Copies within one guest are too few to count on.
    pub(super) fn slots(&self, at: Duration) -> RecurringMatches {
        let is_always = |entry: &&SampleEntry| entry.last.is_some_and(|content| self.always.contains(&content));
        let others = || self.entries.iter().filter(|entry| !is_always(entry));
        let merged: FxHashSet<u64> =
            others().filter(|entry| entry.is_merged()).filter_map(|entry| entry.last).collect();
        let matches_merged_frame =
            |entry: &&SampleEntry| is_always(entry) || entry.last.is_some_and(|content| merged.contains(&content));
        let recurring = || self.entries.iter().filter(|entry| entry.recurring);
        let in_place = recurring().filter(matches_merged_frame).count() as u32;

        let away = || recurring().filter(|entry| !matches_merged_frame(entry));
        let all = away().count();
        let left = others().filter(|entry| entry.has_left).count().max(all).max(1);
        let free_partners: f64 = others().map(SampleEntry::free_partners).sum();
        let matches_merged = all as f64 * (free_partners / left as f64).min(1.0);

        // By guest: pages that are away, pages that hold a merged content alone, and these without those that are away.
        let mut guests = FxHashMap::<u32, [f64; 3]>::default();
        let mut count = |entry: &SampleEntry, place: usize| guests.entry(entry.guest).or_default()[place] += 1.0;
        away().for_each(|entry| count(entry, 0));
        let holds_alone = |entry: &&SampleEntry| {
            entry.frame == Some(FrameKind::Own) && entry.last.is_some_and(|content| self.merged.contains(&content))
        };
        for entry in others().filter(holds_alone) {
            count(entry, 1);
            if !entry.recurring {
                count(entry, 2);
            }
        }
        let of_all = |place: usize| guests.values().map(|of| of[place]).sum::<f64>();
        let (alone, settled) = (of_all(1), of_all(2));
        let part = 1.0 - matches_merged / all.max(1) as f64;
        let (mut matches_unmerged, mut mutual) = (0.0, 0.0);
        for [away, own_alone, own_settled] in guests.values() {
            let meet = (away * part).min(alone - own_alone);
            matches_unmerged += meet;
            mutual += (meet - (settled - own_settled)).max(0.0);
        }
        // Which of those away will find a match is not known: each counts for the part that does.
        let finding = ((matches_merged + matches_unmerged) / all.max(1) as f64).min(1.0);
        let in_place_lifetimes = recurring().filter(matches_merged_frame).map(|entry| (1.0, entry.lifetime(at)));
        let lifetime = mean(in_place_lifetimes.chain(away().map(|entry| (finding, entry.lifetime(at)))));
        let [matches_merged, matches_unmerged, mutual] =
            [matches_merged, matches_unmerged, mutual].map(|pages| pages.round() as u32);
        RecurringMatches {
            matches_merged: in_place.saturating_add(matches_merged),
            matches_unmerged,
            mutual,
            lifetime,
        }
    }
}

impl SampleEntry {
    /// Records the frame that the page lies in. Must be called before its content is recorded.
    pub(super) fn follow_frame(&mut self, fingerprint: Option<PageFingerprint>) {
        let Some(PageFingerprint { guest, content, frame }) = fingerprint else {
            self.frame = None;
            return;
        };
        self.has_left = frame == FrameKind::Own && (self.has_left || self.is_merged());
        let mappings = if let FrameKind::Merged { mappings } = frame { mappings } else { 0 };
        let before = if self.last == Some(content) { self.most } else { 0 };
        (self.guest, self.frame, self.most) = (guest, Some(frame), before.max(mappings));
    }

    pub(super) fn is_merged(&self) -> bool {
        self.frame.is_some_and(FrameKind::is_merged)
    }

    /// Returns the free partners of its frame, per page that maps it: pages that shared the frame and have left it.
    pub(super) fn free_partners(&self) -> f64 {
        match self.frame {
            Some(FrameKind::Merged { mappings }) => {
                // A merged page that no other shares any more has been shared.
                let most = self.most.max(2);
                f64::from(most.saturating_sub(mappings)) / f64::from(mappings.max(1))
            }
            // The number of mappings is not known.
            Some(FrameKind::Shared) => f64::INFINITY,
            Some(FrameKind::Own) | None => 0.0,
        }
    }
}
