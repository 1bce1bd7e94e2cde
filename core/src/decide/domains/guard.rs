//! The guard: it decides which guests must be switched off, and parks ksmd until then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::config::{DomainMode, DomainsConfig, UnswitchableMode};
use crate::guest::GuestId;
use crate::units::CountedNoun;

/// A switch that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(5);

/// A guest, as far as the guard is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DomainGuest {
    /// Its first process.
    pub id: GuestId,
    /// The guest's name.
    pub name: String,
    /// True if all its processes are known. An unknown guest counts as outside, and is not switched yet.
    pub is_known: bool,
    /// Its domain; `None` if it belongs to none or is not known.
    pub domain: Option<String>,
    /// True if any of its memory is mergeable; `None` if that is not known, which counts as true.
    pub mergeable: Option<bool>,
    /// The reason why it can't be switched off, if so.
    pub unswitchable: Option<String>,
    /// Saved less metadata.
    pub profit_bytes: i64,
    /// The guest's resident bytes.
    pub rss_bytes: u64,
    /// The NUMA nodes that its mergeable memory may lie on. `None`: not bound, or not known.
    pub nodes: Option<BTreeSet<u32>>,
}

/// A decision of the guard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GuardRuling {
    /// The reason why ksmd must be parked; `None` if it may scan.
    pub park: Option<String>,
    /// Guests to be switched off.
    pub off: Vec<GuestId>,
    /// Guests to be switched on again, which were switched off here.
    pub on: Vec<GuestId>,
    /// Guests that may not merge here, off or not.
    pub outside: Vec<GuestId>,
}

/// The last order to switch a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SwitchOrder {
    /// Under way.
    Going { on: bool },
    /// Done: it was switched off then.
    Off { at: Duration },
    /// It failed then.
    Failed { at: Duration },
}

/// The guard of the trust domains, which decides over time which guests may merge.
#[derive(Debug, Clone)]
pub struct TrustDomainGuard {
    config: DomainsConfig,
    admitted: Option<String>,
    orders: BTreeMap<GuestId, SwitchOrder>,
    errors: BTreeMap<GuestId, String>,
}

impl TrustDomainGuard {
    /// Creates the guard before the first sample.
    pub fn new(config: DomainsConfig) -> Self {
        Self { config, admitted: None, orders: BTreeMap::new(), errors: BTreeMap::new() }
    }

    /// Replaces the configuration; the guests that were switched off are remembered.
    pub fn configure(&mut self, config: DomainsConfig) {
        self.config = config;
        self.admitted = None;
    }

    /// The configuration of the domains.
    pub fn config(&self) -> &DomainsConfig {
        &self.config
    }

    /// The domain that may merge, in mode `one`.
    pub fn admitted(&self) -> Option<&str> {
        self.admitted.as_deref()
    }

    /// Returns true if an order of this guard has switched the guest off.
    pub fn is_switched_off(&self, id: GuestId) -> bool {
        matches!(self.orders.get(&id), Some(SwitchOrder::Off { .. }))
    }

    /// Returns true if this guard wants the guest off: it has ordered that, whatever came of it.
    pub fn wants_off(&self, id: GuestId) -> bool {
        self.orders.get(&id).is_some_and(|order| !matches!(order, SwitchOrder::Going { on: true }))
    }

    /// Adopts a guest that an earlier guard switched off.
    pub fn adopt(&mut self, id: GuestId) {
        self.orders.insert(id, SwitchOrder::Off { at: Duration::ZERO });
    }

    /// Decides on these guests, which are all guests but `hidden` processes that cannot be looked into.
    pub fn rule(
        &mut self,
        now: Duration,
        guests: &[DomainGuest],
        hidden: u64,
        merge_across_nodes: Option<u64>,
    ) -> GuardRuling {
        let is_there = |id: &GuestId| guests.iter().any(|guest| guest.id == *id);
        self.orders.retain(|id, _| is_there(id));
        self.errors.retain(|id, _| is_there(id));
        let mut ruling = GuardRuling::default();
        if !self.config.is_enforced() {
            return ruling;
        }
        self.admit(guests);
        let mut reasons = Vec::new();
        if hidden > 0 {
            let hidden = CountedNoun { count: hidden, noun: "process" }
                .with_verb("hides whether it may merge", "hide whether they may merge");
            reasons.push(format!("{hidden}; run ksmith as root"));
        }
        if self.config.mode == DomainMode::Node && merge_across_nodes != Some(0) {
            reasons.push(
                "merge_across_nodes is not 0: `ksmith unmerge`, then `ksmith set merge_across_nodes=0`".to_owned(),
            );
        }
        for guest in guests {
            self.judge(now, guest, &mut ruling, &mut reasons);
        }
        let more = reasons.len().saturating_sub(1);
        ruling.park = reasons.into_iter().next().map(|reason| match more {
            0 => reason,
            _ => format!("{reason} (and {more} more)"),
        });
        ruling
    }

    /// Records the outcome of an order: success, or the reason for its failure.
    pub fn record_outcome(&mut self, id: GuestId, now: Duration, failure: Option<String>) {
        let Some(SwitchOrder::Going { on }) = self.orders.get(&id).copied() else { return };
        match failure {
            None if on => {
                self.orders.remove(&id);
            }
            None => {
                self.orders.insert(id, SwitchOrder::Off { at: now });
            }
            Some(why) => {
                self.orders.insert(id, SwitchOrder::Failed { at: now });
                self.errors.insert(id, why);
                return;
            }
        }
        self.errors.remove(&id);
    }

    /// Chooses the admitted domain, and keeps it as long as it has guests: the gain of guests that are switched off is
    /// not known.
    fn admit(&mut self, guests: &[DomainGuest]) {
        if self.config.mode != DomainMode::One {
            return;
        }
        if let Some(named) = &self.config.admit {
            self.admitted = Some(named.clone());
            return;
        }
        let is_there = |domain: &String| guests.iter().any(|guest| guest.domain.as_ref() == Some(domain));
        if self.admitted.as_ref().is_some_and(is_there) {
            return;
        }
        let mut gains: BTreeMap<&String, (i64, u64)> = BTreeMap::new();
        for guest in guests.iter().filter(|guest| guest.mergeable != Some(false)) {
            let Some(domain) = &guest.domain else { continue };
            let gain = gains.entry(domain).or_default();
            gain.0 = gain.0.saturating_add(guest.profit_bytes);
            gain.1 = gain.1.saturating_add(guest.rss_bytes);
        }
        let best = gains.into_iter().max_by_key(|&(domain, gain)| (gain, std::cmp::Reverse(domain)));
        self.admitted = best.map(|(domain, _)| domain.clone());
    }

    /// Returns true if the guest may merge under the present mode.
    fn is_inside(&self, guest: &DomainGuest) -> bool {
        let Some(domain) = &guest.domain else { return false };
        match self.config.mode {
            DomainMode::Report => true,
            DomainMode::One => self.admitted.as_ref() == Some(domain),
            DomainMode::Node => {
                let own = self.config.nodes.get(domain);
                let is_bound =
                    |node: &u32| guest.nodes.as_ref().is_some_and(|nodes| *nodes == BTreeSet::from([*node]));
                own.is_some_and(is_bound)
            }
        }
    }

    fn judge(&mut self, now: Duration, guest: &DomainGuest, ruling: &mut GuardRuling, reasons: &mut Vec<String>) {
        let order = self.orders.get(&guest.id).copied();
        if self.is_inside(guest) {
            match order {
                Some(SwitchOrder::Off { .. }) => {
                    self.orders.insert(guest.id, SwitchOrder::Going { on: true });
                    ruling.on.push(guest.id);
                }
                Some(SwitchOrder::Failed { .. }) => {
                    self.orders.remove(&guest.id);
                }
                Some(SwitchOrder::Going { .. }) | None => {}
            }
            return;
        }
        ruling.outside.push(guest.id);
        if !guest.is_known && guest.mergeable != Some(false) {
            reasons.push(format!("{} (pid {}) is not known yet", guest.name, guest.id.pid()));
            return;
        }
        // The kernel's word counts; where it says nothing, what the switch reported, of a guest that can be switched.
        let is_off = match guest.mergeable {
            Some(mergeable) => !mergeable,
            None => matches!(order, Some(SwitchOrder::Off { .. })) && guest.unswitchable.is_none(),
        };
        if is_off {
            return;
        }
        if let Some(why) = &guest.unswitchable {
            if self.config.unswitchable == UnswitchableMode::Park {
                reasons.push(format!("{} and may merge: {why}", self.outside(guest)));
            }
            return;
        }
        let is_due = match order {
            None => true,
            Some(SwitchOrder::Going { .. }) => false,
            // It was reported off and still is mergeable: it was switched on again, or not all of it went off.
            Some(SwitchOrder::Off { at } | SwitchOrder::Failed { at }) => now.saturating_sub(at) >= RETRY,
        };
        if is_due {
            self.orders.insert(guest.id, SwitchOrder::Going { on: false });
            ruling.off.push(guest.id);
        }
        let state = match self.errors.get(&guest.id) {
            Some(error) => format!("and could not be switched off: {error}"),
            None => "and is being switched off".to_owned(),
        };
        reasons.push(format!("{} {state}", self.outside(guest)));
    }

    /// `web (pid 12) is outside the admitted domain a`
    fn outside(&self, guest: &DomainGuest) -> String {
        let name = format!("{} (pid {})", guest.name, guest.id.pid());
        match (self.config.mode, &guest.domain, &self.admitted) {
            (_, None, _) => format!("{name} belongs to no domain"),
            (DomainMode::Node, Some(domain), _) => match self.config.nodes.get(domain) {
                Some(node) => {
                    format!("{name} of domain {domain} is not bound to its node {node}, or has memory on another")
                }
                None => format!("{name} is of domain {domain}, which has no node"),
            },
            (_, Some(domain), Some(admitted)) => {
                format!("{name} is of domain {domain} ({admitted} is admitted)")
            }
            (_, Some(domain), None) => format!("{name} is of domain {domain} (none is admitted)"),
        }
    }
}
