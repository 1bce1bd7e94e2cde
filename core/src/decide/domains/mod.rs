//! Trust domains: guests of different domains must not share pages.
//!
//! Sharing a page is a side channel: a write to a merged page takes longer than one to a page of one's own, so a
//! guest can tell whether a neighbour holds the same content (Suzaki et al., EuroSec 2011), and merging moves pages
//! to frames that an attacker may have prepared (Razavi et al., Flip Feng Shui, USENIX Security 2016). So either one
//! domain alone may merge, or each has memory that KSM does not compare with the others'.
//!
//! The decision is a guard and no policy: it says who must be switched off, and as long as anybody who may merge is
//! outside, or unknown, that ksmd must be parked. What is not known counts as outside.

mod assign;
mod budget;
mod config;
mod guard;
mod pace;
mod report;
mod sharing;
#[cfg(test)]
mod tests;

pub use assign::{BadRule, Rule};
pub use budget::PassBudget;
pub use config::{DomainMode, DomainsConfig, OnExit, Unswitchable};
pub use guard::{Domains, Ruling, Tenant};
pub use pace::{GUARD_LOOK, GUARD_SLEEP, GUARDED, paced, parked};
pub use report::{DomainFigures, DomainsReport};
pub use sharing::{DomainSharing, Held, PairSharing, Sharing};
