//! Deciding: history goes in, settings with a reason come out.

mod advisor;
pub(crate) mod bounds;
pub mod domains;
mod duty;
mod fixed;
mod ground;
mod history;
mod ksmtuned;
mod limits;
mod on_demand;
mod profit;
mod prune;
mod round;
mod score;
mod settings;
#[cfg(test)]
pub(crate) mod testing;

pub use advisor::{Advisor, AdvisorConfig};
pub use fixed::{Fixed, FixedConfig, Preset, UnknownPreset};
pub use history::{History, Pass};
pub use ksmtuned::{BadConf, Ksmtuned, KsmtunedConfig};
pub use limits::{Limits, Share};
pub use on_demand::OnDemand;
pub use profit::{Profit, ProfitConfig};
pub use prune::{Prunable, Prune, PruneLimits, PruneOrder};
pub use score::{Score, ScoreConfig};

use std::fmt;
use std::time::Duration;

use crate::knobs::Knobs;
use crate::sample::Sample;

/// A way of controlling KSM.
///
/// An implementation is a pure function of the views it was shown: no clock, no files, no randomness. It may
/// keep state between calls, and the same views always lead to the same decisions.
pub trait Policy: fmt::Debug + Send {
    /// The name in the configuration: `[policy] kind = "…"`.
    fn name(&self) -> &'static str;

    /// What to do now.
    fn decide(&mut self, view: &View<'_>) -> Decision;

    /// Whether it wants [`Sample::witnesses`]: reading guests' memory is not for nothing.
    fn wants_witnesses(&self) -> bool {
        false
    }
}

/// What a policy may look at.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The newest sample.
    pub now: &'a Sample,
    /// What the samples so far amount to, the newest included.
    pub history: &'a History,
    /// The bounds that the decision will be held to.
    pub limits: &'a Limits,
}

/// What to do, why, and when to ask again.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The settings to bring about; those not named stay.
    pub knobs: Knobs,
    /// Why, for a person.
    pub reason: Reason,
    /// When the policy wants to look again at the latest. Events may come earlier.
    pub check_after: Duration,
}

/// Why a decision was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What the policy is doing, in one word: `burst`, `parked`, `boost`. Stable, for machines and columns.
    pub state: &'static str,
    /// The sentence: `last pass saved 1.2 MiB/CPU-s, price 8; next probe in 4 min`.
    pub text: String,
}

impl Reason {
    /// A reason with its state and sentence.
    pub fn new(state: &'static str, text: impl Into<String>) -> Self {
        Self { state, text: text.into() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.state, self.text)
    }
}
