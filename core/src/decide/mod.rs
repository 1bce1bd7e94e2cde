//! Policies: they turn the history of samples into settings with a reason.

#[macro_use]
mod registry;

mod bound;
pub(crate) mod bounds;
pub mod domains;
mod ground;
mod pause;
mod prune;
mod reason;
mod settings;
#[cfg(test)]
pub(crate) mod testing;

pub use advisor::AdvisorPolicy;
pub use fixed::{FixedPolicy, FixedPreset, UnknownPreset};
pub use ground::decide;
pub use ksmtuned::{BadConf, ConfProblem, KsmtunedConfig, KsmtunedPolicy};
pub use pause::PausePolicy;
pub use profit::{MemoryShortage, ProfitPolicy, SHORT_PERCENT};
pub use prune::{GuestPruner, PrunableGuest, PruneCircumstances, PruneGround, PruneLimits, PruneOrder};
pub use reason::DecisionReason;
pub(crate) use reason::ReasonSentences;
pub use registry::{Made, PolicyEntry, PolicyFileError, PolicyKind, PolicySettings, ReadFile};
pub use scan::OnDemandPolicy;
pub use score::ScorePolicy;

use std::fmt;
use std::time::Duration;

pub use crate::history::{PassHistory, ScanPass};
use crate::knobs::KnobSettings;
pub use crate::limits::{CpuShare, PolicyLimits};
use crate::sample::Sample;

policies! {
    profit: ProfitConfig,
    score: ScoreConfig,
    ksmtuned: KsmtunedFile,
    advisor: AdvisorConfig,
    fixed: FixedConfig,
    scan: ScanConfig,
    off: OffConfig,
}

/// A way of controlling KSM.
///
/// An implementation is a pure function of the views it was shown: no clock, no files, no randomness. It may
/// keep state between calls, and the same views always lead to the same decisions.
pub trait Policy: fmt::Debug + Send {
    /// The name in the configuration: `[policy] kind = "…"`.
    fn name(&self) -> &'static str;

    /// Decides what to do now. Only called where KSM can be controlled: see [`decide()`].
    fn decide(&mut self, view: &PolicyView<'_>) -> PolicyDecision;

    /// Returns true if the policy uses [`Sample::page_samples`], which cost reading guests' memory.
    fn wants_page_samples(&self) -> bool {
        false
    }

    /// Returns true if the next sample is to have a new forecast ([`Sample::merge_forecast`]), of memory in small pages
    /// too.
    fn wants_forecast(&self) -> bool {
        false
    }
}

/// The input of a policy's decision.
#[derive(Debug, Clone, Copy)]
pub struct PolicyView<'a> {
    /// The newest sample.
    pub now: &'a Sample,
    /// The history of all samples, the newest included.
    pub history: &'a PassHistory,
    /// The bounds that the decision will be held to.
    pub limits: &'a PolicyLimits,
}

/// A decision: what to do, why, and when to ask again.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyDecision {
    /// The settings to bring about; those not named stay.
    pub knobs: KnobSettings,
    /// The reason, for people.
    pub reason: DecisionReason,
    /// The longest time until the policy is asked again. Events may come earlier.
    pub check_after: Duration,
    /// Passes that ksmd will have completed when it is to rest until the policy is asked again. A host may not have it
    /// rest ([`BoundaryPause`](crate::sample::BoundaryPause)).
    pub rest_after: Option<u64>,
}

impl PolicyDecision {
    /// A decision that has ksmd rest nowhere.
    pub fn new(knobs: KnobSettings, reason: DecisionReason, check_after: Duration) -> Self {
        Self { knobs, reason, check_after, rest_after: None }
    }
}
