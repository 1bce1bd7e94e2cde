//! Who finds a merged page, or another page, to merge with when it comes back.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::ages::mean;
use super::{Entry, Frame, Ledger, Print};

/// Of the familiar pages, how many find whom, and for how long; as in [`super::Witnesses`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Seats {
    pub(super) seated: u32,
    pub(super) paired: u32,
    pub(super) mutual: u32,
    pub(super) lasts: Option<Duration>,
}

impl Ledger {
    /// Of the familiar pages, those that find a merged one, those that may meet one that is not, and of these those that can
    /// only meet each other.
    ///
    /// A page that leaves those that it shared with leaves room behind, and when it comes back there is room for
    /// it; but room that nobody comes back to stays, so that only a part of it counts. If all have left, those that
    /// come back can only meet each other: the copies that one guest has of its own are too few to count on.
    pub(super) fn seats(&self, at: Duration) -> Seats {
        let is_always = |entry: &&Entry| entry.last.is_some_and(|content| self.always.contains(&content));
        let others = || self.entries.iter().filter(|entry| !is_always(entry));
        let merged: FxHashSet<u64> =
            others().filter(|entry| entry.is_merged()).filter_map(|entry| entry.last).collect();
        let is_at_home =
            |entry: &&Entry| is_always(entry) || entry.last.is_some_and(|content| merged.contains(&content));
        let familiar = || self.entries.iter().filter(|entry| entry.familiar);
        let at_home = familiar().filter(is_at_home).count() as u32;

        let away = || familiar().filter(|entry| !is_at_home(entry));
        let all = away().count();
        let left = others().filter(|entry| entry.has_left).count().max(all).max(1);
        let room: f64 = others().map(Entry::room).sum();
        let seated = all as f64 * (room / left as f64).min(1.0);

        // By guest: who is away, and who holds alone what was merged, in all and without those who are away.
        let mut guests = FxHashMap::<u32, [f64; 3]>::default();
        let mut count = |entry: &Entry, place: usize| guests.entry(entry.guest).or_default()[place] += 1.0;
        away().for_each(|entry| count(entry, 0));
        let holds_alone = |entry: &&Entry| {
            entry.frame == Some(Frame::Own) && entry.last.is_some_and(|content| self.merged.contains(&content))
        };
        for entry in others().filter(holds_alone) {
            count(entry, 1);
            if !entry.familiar {
                count(entry, 2);
            }
        }
        let of_all = |place: usize| guests.values().map(|of| of[place]).sum::<f64>();
        let (alone, settled) = (of_all(1), of_all(2));
        let part = 1.0 - seated / all.max(1) as f64;
        let (mut paired, mut mutual) = (0.0, 0.0);
        for [away, own_alone, own_settled] in guests.values() {
            let meet = (away * part).min(alone - own_alone);
            paired += meet;
            mutual += (meet - (settled - own_settled)).max(0.0);
        }
        // Which of those away will find somebody is not known: each counts for the part that does.
        let finding = ((seated + paired) / all.max(1) as f64).min(1.0);
        let home = familiar().filter(is_at_home).map(|entry| (1.0, entry.lasts(at)));
        let lasts = mean(home.chain(away().map(|entry| (finding, entry.lasts(at)))));
        let [seated, paired, mutual] = [seated, paired, mutual].map(|pages| pages.round() as u32);
        Seats { seated: at_home.saturating_add(seated), paired, mutual, lasts }
    }
}

impl Entry {
    /// Takes in where the page lies; before what it holds is taken for what it held last.
    pub(super) fn lies(&mut self, print: Option<Print>) {
        let Some(Print { guest, content, frame }) = print else {
            self.frame = None;
            return;
        };
        self.has_left = frame == Frame::Own && (self.has_left || self.is_merged());
        let mappings = if let Frame::Merged { mappings } = frame { mappings } else { 0 };
        let before = if self.last == Some(content) { self.most } else { 0 };
        (self.guest, self.frame, self.most) = (guest, Some(frame), before.max(mappings));
    }

    pub(super) fn is_merged(&self) -> bool {
        self.frame.is_some_and(Frame::is_merged)
    }

    /// For how many pages there is room in the frame that it lies in, seen from one of those that map it.
    pub(super) fn room(&self) -> f64 {
        match self.frame {
            Some(Frame::Merged { mappings }) => {
                // A merged page that nobody shares any more has been shared.
                let most = self.most.max(2);
                f64::from(most.saturating_sub(mappings)) / f64::from(mappings.max(1))
            }
            // Nobody can say.
            Some(Frame::Shared) => f64::INFINITY,
            Some(Frame::Own) | None => 0.0,
        }
    }
}
