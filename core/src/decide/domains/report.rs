//! The report of which domains may share pages, and of the consequences.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::config::{DomainMode, DomainsConfig};
use crate::guest::Guest;

/// The domains of a host at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainsReport {
    /// `report`, `one` or `node`.
    pub mode: DomainMode,
    /// Each domain with guests, and the guests of no domain.
    pub domains: Vec<DomainFigures>,
    /// True if pages of guests of different domains may be compared and merged.
    pub may_share_across: bool,
    /// The consequence of KSM's side channels on this host, in one sentence.
    pub meaning: String,
}

/// The figures of one domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainFigures {
    /// Its name; `None` for guests of no domain.
    pub domain: Option<String>,
    /// The number of its guests.
    pub guests: u64,
    /// Guests that offer memory to KSM, or might.
    pub mergeable_guests: u64,
    /// Merged memory of its guests, zero pages included.
    pub merged_bytes: u64,
    /// Its guests' part of what the host saves.
    pub saved_bytes: u64,
}

/// The consequence of the side channels of merging.
const CHANNEL: &str = "a guest can time a write and so learn whether another guest holds the same page";

impl DomainsReport {
    /// Creates the report. `admitted` is the domain that the guard admits, if there is a guard.
    pub fn from_guests(config: &DomainsConfig, guests: &[Guest], admitted: Option<&str>) -> Self {
        let mut sums: BTreeMap<Option<&str>, DomainFigures> = BTreeMap::new();
        for guest in guests {
            let domain = config.domain_of(guest);
            let figures = sums.entry(domain).or_insert_with(|| DomainFigures {
                domain: domain.map(str::to_owned),
                guests: 0,
                mergeable_guests: 0,
                merged_bytes: 0,
                saved_bytes: 0,
            });
            figures.guests += 1;
            figures.mergeable_guests += u64::from(guest.mergeable != Some(false));
            figures.merged_bytes += guest.figures.merged_bytes;
            figures.saved_bytes += guest.figures.saved_bytes;
        }
        let domains: Vec<DomainFigures> = sums.into_values().collect();
        let active: Vec<&DomainFigures> = domains.iter().filter(|figures| figures.mergeable_guests > 0).collect();
        let offering: u64 = active.iter().map(|figures| figures.mergeable_guests).sum();
        // A guest of no domain may share with no other, not even another of no domain.
        let lone = active.iter().any(|figures| figures.domain.is_none() && figures.mergeable_guests > 1);
        let is_mixed = active.len() > 1 || lone;
        let may_share_across = is_mixed && config.mode == DomainMode::Report;
        let meaning = match (config.mode, admitted) {
            (DomainMode::Report, _) if offering < 2 => {
                "fewer than two guests offer memory: no guest to learn from".to_owned()
            }
            (DomainMode::Report, _) if config.is_unconfigured() => {
                format!("no domains are configured, and all {offering} guests may share pages: {CHANNEL}")
            }
            (DomainMode::Report, _) if may_share_across => {
                format!("guests of {} may share pages: {CHANNEL}", names(&active))
            }
            (DomainMode::Report, _) => {
                format!("only guests of {} may share pages now, and they trust each other", names(&active))
            }
            (DomainMode::One, Some(admitted)) => {
                format!("while the daemon runs, only domain {admitted} may merge; no page is shared across domains")
            }
            (DomainMode::One, None) => {
                "only one domain may merge while the daemon runs; none is admitted now".to_owned()
            }
            (DomainMode::Node, _) => {
                "while the daemon runs, each domain merges on its own NUMA node; no page is shared across domains"
                    .to_owned()
            }
        };
        Self { mode: config.mode, domains, may_share_across, meaning }
    }
}

/// `2 domains (a, b)`
fn names(active: &[&DomainFigures]) -> String {
    let names: Vec<&str> = active.iter().map(|figures| figures.domain.as_deref().unwrap_or("none")).collect();
    match names[..] {
        [name] => format!("domain {name}"),
        _ => format!("{} domains ({})", names.len(), names.join(", ")),
    }
}
