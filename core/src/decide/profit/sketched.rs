//! Estimates by sketches of the memory that scans are considered for: of guests that ksmd has not visited, and of
//! guests for which it has skipped old memory.

use rustc_hash::FxHashMap;

use super::constants::{KNOWN_PART, KNOWN_PART_OF_OTHERS};
use super::guests::GuestMarks;
use super::situation::{HostSituation, ProcessHolding};
use crate::sample::{ByteEstimate, ProcessId, SketchMatches};

/// Guests that ksmd has not visited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArrivingGuests {
    /// Bytes that merge: with merged contents, with each other, and with unmerged pages of others.
    pub merging: ByteEstimate,
    /// Bytes that they hold.
    pub bytes: f64,
}

/// The estimate for arriving guests by the newest sketches.
#[derive(Debug, Clone, Default)]
pub struct ArrivalEstimate {
    /// The key of the estimate: the guests, the number of their sketches, and the passes of ksmd. Other guests'
    /// sketches that are renewed meanwhile say little else.
    of: (u64, usize, u64),
    arriving: Option<ArrivingGuests>,
}

impl ArrivalEstimate {
    /// Updates the estimate from the newest sketches.
    pub fn follow(&mut self, guests: &GuestMarks, now: &HostSituation) {
        let Some(sketches) = &now.sketches else {
            *self = Self::default();
            return;
        };
        let number = |id: ProcessId| u64::from(id.pid) << 32 ^ id.start_ticks;
        let arriving = now.processes.iter().filter(|holding| !guests.has_visited(holding.id));
        let arriving = arriving.map(|holding| number(holding.id)).fold(0, u64::wrapping_add);
        let sketched = sketches.guests.iter().filter(|guest| !guests.has_visited(guest.id)).count();
        let of = (arriving, sketched, sketches.full_scans);
        if of != self.of {
            let found = matches(now, |holding| !guests.has_visited(holding.id), |_| true);
            self.arriving = found.map(|(found, _)| ArrivingGuests { merging: found.all(), bytes: found.new_bytes });
            self.of = of;
        }
    }

    /// Returns the estimate for guests that ksmd has not visited.
    pub fn arriving(&self) -> Option<ArrivingGuests> {
        self.arriving
    }
}

/// Estimates what visited guests hold that only a clean pass merges; `None` if sketches do not say. `met`: bytes of
/// each guest when such a pass last visited it.
pub fn unmet(guests: &GuestMarks, met: &FxHashMap<ProcessId, u64>, now: &HostSituation) -> Option<ByteEstimate> {
    now.sketches.as_ref().filter(|sketches| sketches.full_scans == now.ksmd.full_scans)?;
    let is_met = |holding: &ProcessHolding| {
        met.get(&holding.id).is_some_and(|bytes| *bytes as f64 >= holding.bytes as f64 * KNOWN_PART)
    };
    let is_visited = |holding: &ProcessHolding| guests.has_visited(holding.id);
    let (found, scale) = matches(now, |holding| is_visited(holding) && !is_met(holding), is_visited)?;
    Some(ByteEstimate {
        bytes: found.unmerged.bytes * scale + found.new.bytes,
        error: (found.unmerged.error * scale).hypot(found.new.error),
    })
}

/// Estimates what new guests have in common with others, with the factor from the sketched ones of these to all; `None`
/// if too few have a sketch.
fn matches(
    now: &HostSituation,
    is_new: impl Fn(&ProcessHolding) -> bool,
    is_other: impl Fn(&ProcessHolding) -> bool,
) -> Option<(SketchMatches, f64)> {
    let sketches = now.sketches.as_ref()?;
    let kind =
        |holding: &ProcessHolding| is_new(holding).then_some(true).or_else(|| is_other(holding).then_some(false));
    let kinds: FxHashMap<ProcessId, bool> =
        now.processes.iter().filter_map(|holding| Some((holding.id, kind(holding)?))).collect();
    let bytes = |kind: bool| {
        let held = now.processes.iter().filter(|holding| kinds.get(&holding.id) == Some(&kind));
        held.map(|holding| holding.bytes as f64).sum::<f64>()
    };
    let (new, others) = (bytes(true), bytes(false));
    if new <= 0.0 {
        return None;
    }
    let found = sketches.matches(|id| kinds.get(&id) == Some(&true), |id| kinds.contains_key(&id));
    let is_known = found.new_bytes >= new * KNOWN_PART && found.other_bytes >= others * KNOWN_PART_OF_OTHERS;
    is_known.then_some((found, (others / found.other_bytes.max(1.0)).max(1.0)))
}
