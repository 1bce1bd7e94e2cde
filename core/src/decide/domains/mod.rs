//! Trust domains: guests of different domains must not share pages.
//!
//! Sharing a page is a side channel: a write to a merged page takes longer than one to an unshared page. A guest can
//! time it and so learn whether another guest holds the same page (Suzaki et al., EuroSec 2011). Merging also moves
//! pages to frames that an attacker may have prepared (Razavi et al., Flip Feng Shui, USENIX Security 2016). So either
//! one domain alone may merge, or each has memory that KSM does not compare with the others'.
//!
//! The decision is a guard and no policy: it names the guests to switch off, and parks ksmd as long as a guest that may
//! merge is outside the admitted domain. An unknown guest counts as outside.

mod assign;
mod budget;
mod config;
mod guard;
mod pace;
mod report;
mod sharing;
#[cfg(test)]
mod tests;

pub use assign::{BadRule, DomainRule};
pub use budget::PassBudget;
pub use config::{DomainMode, DomainsConfig, MERGES_ON_SECOND_VISIT, OnExit, UnswitchableMode};
pub use guard::{DomainGuest, GuardRuling, TrustDomainGuard};
pub use pace::{GUARD_LOOK, GUARD_SLEEP, GUARDED, paced, parked};
pub use report::{DomainFigures, DomainsReport};
pub use sharing::{CrossDomainSharing, DomainSharing, FrameMapping, PairSharing};
