//! The pace of ksmd while domains are kept apart, and the decision to park it.
//!
//! A page merges on its second visit, in the pass after its first. ksmd makes at most one pass between two sleeps
//! (`ksm_do_scan` returns at the end of a pass). With `sleep_millisecs` at [`GUARD_SLEEP`], at least that long lies
//! between the two visits, and a guard that decides every [`GUARD_LOOK`] sees a new guest several times in between. The
//! value must not change, since a write of another one wakes ksmd at once. Batches of seconds are made in parts, and
//! ksmd sleeps after the last part and at the end of a pass all the same ([`crate::lease`]).

use std::time::Duration;

use crate::decide::{DecisionReason, PolicyDecision};
use crate::knobs::Knob;

/// The state of a daemon that keeps ksmd parked because a guest outside may merge.
pub const GUARDED: &str = "guarded";

/// The sleep of ksmd between two batches.
pub const GUARD_SLEEP: Duration = Duration::from_millis(500);

/// The longest time between two looks while ksmd may scan.
pub const GUARD_LOOK: Duration = Duration::from_millis(125);

/// A decision at the guard's pace: longer sleeps and larger batches, for the same work per second.
#[must_use]
pub fn paced(mut decision: PolicyDecision) -> PolicyDecision {
    let guarded = GUARD_SLEEP.as_millis() as u64;
    let knobs = &mut decision.knobs;
    if let (Some(pages), Some(sleep)) = (knobs.get(Knob::PagesToScan), knobs.get(Knob::SleepMillisecs)) {
        let larger = u128::from(pages) * u128::from(guarded) / u128::from(sleep.max(1));
        // A policy that pauses ksmd by 0 pages means it; one that wants few shall have some.
        let least = u128::from(pages > 0);
        knobs.set(Knob::PagesToScan, u64::try_from(larger.max(least)).unwrap_or(u64::MAX).min(u64::from(u32::MAX)));
    }
    knobs.set(Knob::SleepMillisecs, guarded);
    decision.check_after = decision.check_after.min(GUARD_LOOK);
    decision
}

/// The decision to park ksmd instead of what a policy wanted.
#[must_use]
pub fn parked(
    mut decision: PolicyDecision,
    state: &'static str,
    why: String,
    look_again: Duration,
) -> PolicyDecision {
    decision.knobs.set(Knob::Run, 0);
    decision.reason = DecisionReason::new(state, why);
    decision.check_after = decision.check_after.min(look_again);
    decision
}
