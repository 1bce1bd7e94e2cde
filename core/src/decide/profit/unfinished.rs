//! What a round may have left: memory that was not visited as often as it takes to merge, and gives no reason to come back.

use std::time::Duration;

use super::errand::Errand;
use super::guests::{Changes, mergeable_bytes};
use super::{Profit, Trip, two_looks_seconds};
use crate::decide::View;
use crate::decide::round::Outcome;

/// Of what probes may cost, so much is for new memory that can't pay for itself.
const PART: f64 = 0.25;

/// Pages that a pass may leave without anything being amiss.
const FEW: u64 = 64;

/// Whether a clean round has left more than a few pages in no tree: some were changing. Where no witness is looked at
/// nobody asks.
fn leaves_some(trip: &Trip, view: &View<'_>) -> bool {
    trip.clean && view.now.witnesses.value().is_some() && trip.round.leaves(view.now) > FEW
}

impl Profit {
    /// Notes what a round that has ended may have left: what came after its count had begun was visited once at most, and
    /// what is new was not compared with all that is old if that was passed over. Returns the bytes that are still new.
    pub(super) fn note_unfinished(&mut self, trip: &Trip, paid: bool, changes: Changes, view: &View<'_>) -> u64 {
        if trip.merges_all() {
            self.unmet_bytes = 0;
        } else if trip.passes > 1 {
            self.unmet_bytes = self.unmet_bytes.saturating_add(trip.new_bytes);
        }
        if trip.passes > 1 {
            // What came to a few pages only may not show. Of guests that go on faulting a round says no more than this one.
            self.is_unfinished = trip.errand == Errand::Burst && changes.has_faulted;
        }
        // Pages that only had each other, one behind the place where ksmd set out and one before it, have not met.
        let may_part_pairs = trip.errand == Errand::Revisit && trip.round.ends_midway(view.now);
        // Pages that change while they are in the unstable tree put it out of order, so that equal ones miss each other, and
        // guests may fill pages after their first visit. How much of that there was nobody can tell: a look is due
        // some time. Without witnesses that is looked after anyway.
        self.is_unfinished |= trip.errand == Errand::Burst && leaves_some(trip, view) || may_part_pairs;
        if trip.errand == Errand::Burst && self.caution.doubts(paid, changes) {
            // What comes and goes is not waited for; what of it is there now is visited some time.
            self.guests.mark(view.now);
            return 0;
        }
        changes.grown_bytes
    }

    /// Whether a burst has likely missed what newcomers share with others. Pages that change while they are in the
    /// unstable tree put it out of order, and equal ones miss each other: above all where a guest is the second one of
    /// its kind, since what is merged already is looked up in another tree. Where less than half of the new memory merged,
    /// beside about as much that was there before, one more pass costs no more than the burst did, and is made; and
    /// again if it paid. Pages that have changed until then are not put into the tree.
    pub(super) fn may_have_missed(
        &self,
        trip: &Trip,
        outcome: &Outcome,
        paid: bool,
        changes: Changes,
        view: &View<'_>,
    ) -> bool {
        match trip.errand {
            _ if !leaves_some(trip, view) => false,
            Errand::Burst if self.caution.is_for_newcomers(changes) => {
                let new_bytes = trip.new_bytes.saturating_add(changes.grown_bytes);
                let old_bytes = mergeable_bytes(view.now).saturating_sub(new_bytes);
                let is_about_as_much = old_bytes >= new_bytes / 2 && old_bytes / 3 <= new_bytes / 2;
                let saved_bytes = u64::try_from(outcome.saved_bytes).unwrap_or(0);
                is_about_as_much && saved_bytes < new_bytes / 2
            }
            Errand::Retry => paid,
            _ => false,
        }
    }

    /// Whether there is memory that was not visited as often as it takes to merge.
    pub(super) fn has_new(&self, changes: Changes) -> bool {
        self.is_unfinished || changes.grown_bytes > 0 || self.unmet_bytes > 0
    }

    /// How long new memory that is too little to pay for two looks waits for them.
    pub(super) fn patience(&self, view: &View<'_>) -> Duration {
        let wait = two_looks_seconds(view) / (PART * self.config.probe_cpu_percent / 100.0);
        Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX).min(self.longest_interval())
    }
}
