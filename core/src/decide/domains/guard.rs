//! The guard: who must be switched off, and whether ksmd must be parked until then.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::config::{DomainMode, DomainsConfig, Unswitchable};
use crate::sample::ProcessId;

/// A switch that failed is tried again after this.
const RETRY: Duration = Duration::from_secs(5);

/// A guest, as far as it matters who may share with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Its first process.
    pub id: ProcessId,
    /// Its name.
    pub name: String,
    /// Its domain; `None` if it belongs to none or is not known.
    pub domain: Option<String>,
    /// Whether any of its memory is mergeable. `None`: not known, which counts as yes.
    pub mergeable: Option<bool>,
    /// Why it can't be switched off, if so.
    pub unswitchable: Option<String>,
    /// Saved less metadata.
    pub profit_bytes: i64,
    /// Resident bytes.
    pub rss_bytes: u64,
    /// The NUMA nodes that its mergeable memory may lie on. `None`: not bound, or not known.
    pub nodes: Option<BTreeSet<u32>>,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ruling {
    /// Why ksmd must be parked. `None`: it may scan.
    pub park: Option<String>,
    /// Guests to be switched off.
    pub off: Vec<ProcessId>,
    /// Guests to be switched on again, which were switched off here.
    pub on: Vec<ProcessId>,
    /// Guests that may not merge here, off or not.
    pub outside: Vec<ProcessId>,
}

/// What is remembered of a guest that was ordered to be switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Under way.
    Going { on: bool },
    /// Done: it was switched off then.
    Off { at: Duration },
    /// It failed then.
    Failed { at: Duration },
}

/// Decides over time.
#[derive(Debug, Clone)]
pub struct Domains {
    config: DomainsConfig,
    admitted: Option<String>,
    orders: BTreeMap<ProcessId, Order>,
    errors: BTreeMap<ProcessId, String>,
}

impl Domains {
    /// Has seen nothing yet.
    pub fn new(config: DomainsConfig) -> Self {
        Self { config, admitted: None, orders: BTreeMap::new(), errors: BTreeMap::new() }
    }

    /// Goes by another configuration from now on; what was switched off is remembered.
    pub fn configure(&mut self, config: DomainsConfig) {
        self.config = config;
        self.admitted = None;
    }

    /// The configuration.
    pub fn config(&self) -> &DomainsConfig {
        &self.config
    }

    /// The domain that may merge, in mode `one`.
    pub fn admitted(&self) -> Option<&str> {
        self.admitted.as_deref()
    }

    /// Whether a guest was switched off by an order of this guard.
    pub fn is_switched_off(&self, id: ProcessId) -> bool {
        matches!(self.orders.get(&id), Some(Order::Off { .. }))
    }

    /// Takes over a guest that an earlier guard switched off.
    pub fn adopt(&mut self, id: ProcessId) {
        self.orders.insert(id, Order::Off { at: Duration::ZERO });
    }

    /// What to do about these guests, which are all there are but `hidden` processes that nobody sees into.
    pub fn rule(
        &mut self,
        now: Duration,
        tenants: &[Tenant],
        hidden: u64,
        merge_across_nodes: Option<u64>,
    ) -> Ruling {
        let is_there = |id: &ProcessId| tenants.iter().any(|tenant| tenant.id == *id);
        self.orders.retain(|id, _| is_there(id));
        self.errors.retain(|id, _| is_there(id));
        let mut ruling = Ruling::default();
        if !self.config.is_enforced() {
            return ruling;
        }
        self.admit(tenants);
        let mut reasons = Vec::new();
        if hidden > 0 {
            reasons.push(format!("{hidden} processes hide whether they may merge; run ksmith as root"));
        }
        if self.config.mode == DomainMode::Node && merge_across_nodes != Some(0) {
            reasons.push(
                "merge_across_nodes is not 0: `ksmith unmerge`, then `ksmith set merge_across_nodes=0`".to_owned(),
            );
        }
        for tenant in tenants {
            self.judge(now, tenant, &mut ruling, &mut reasons);
        }
        let more = reasons.len().saturating_sub(1);
        ruling.park = reasons.into_iter().next().map(|reason| match more {
            0 => reason,
            _ => format!("{reason} (and {more} more)"),
        });
        ruling
    }

    /// Learns what came of an order.
    pub fn done(&mut self, id: ProcessId, now: Duration, outcome: Result<(), String>) {
        let Some(Order::Going { on }) = self.orders.get(&id).copied() else { return };
        match outcome {
            Ok(()) if on => {
                self.orders.remove(&id);
            }
            Ok(()) => {
                self.orders.insert(id, Order::Off { at: now });
            }
            Err(why) => {
                self.orders.insert(id, Order::Failed { at: now });
                self.errors.insert(id, why);
                return;
            }
        }
        self.errors.remove(&id);
    }

    /// Chooses who may merge, and stays with it as long as there is anybody of that domain: whoever is switched
    /// off gains nothing that could be compared.
    fn admit(&mut self, tenants: &[Tenant]) {
        if self.config.mode != DomainMode::One {
            return;
        }
        if let Some(named) = &self.config.admit {
            self.admitted = Some(named.clone());
            return;
        }
        let is_there = |domain: &String| tenants.iter().any(|tenant| tenant.domain.as_ref() == Some(domain));
        if self.admitted.as_ref().is_some_and(is_there) {
            return;
        }
        let mut gains: BTreeMap<&String, (i64, u64)> = BTreeMap::new();
        for tenant in tenants.iter().filter(|tenant| tenant.mergeable != Some(false)) {
            let Some(domain) = &tenant.domain else { continue };
            let gain = gains.entry(domain).or_default();
            gain.0 = gain.0.saturating_add(tenant.profit_bytes);
            gain.1 = gain.1.saturating_add(tenant.rss_bytes);
        }
        let best = gains.into_iter().max_by_key(|&(domain, gain)| (gain, std::cmp::Reverse(domain)));
        self.admitted = best.map(|(domain, _)| domain.clone());
    }

    /// Whether a guest may merge here.
    fn is_inside(&self, tenant: &Tenant) -> bool {
        let Some(domain) = &tenant.domain else { return false };
        match self.config.mode {
            DomainMode::Report => true,
            DomainMode::One => self.admitted.as_ref() == Some(domain),
            DomainMode::Node => {
                let own = self.config.nodes.get(domain);
                let is_bound =
                    |node: &u32| tenant.nodes.as_ref().is_some_and(|nodes| *nodes == BTreeSet::from([*node]));
                own.is_some_and(is_bound)
            }
        }
    }

    fn judge(&mut self, now: Duration, tenant: &Tenant, ruling: &mut Ruling, reasons: &mut Vec<String>) {
        let order = self.orders.get(&tenant.id).copied();
        if self.is_inside(tenant) {
            match order {
                Some(Order::Off { .. }) => {
                    self.orders.insert(tenant.id, Order::Going { on: true });
                    ruling.on.push(tenant.id);
                }
                Some(Order::Failed { .. }) => {
                    self.orders.remove(&tenant.id);
                }
                Some(Order::Going { .. }) | None => {}
            }
            return;
        }
        ruling.outside.push(tenant.id);
        // The kernel's word counts; where it says nothing, the word of who switched it.
        let is_off = match tenant.mergeable {
            Some(mergeable) => !mergeable,
            None => matches!(order, Some(Order::Off { .. })),
        };
        if is_off {
            return;
        }
        if let Some(why) = &tenant.unswitchable {
            if self.config.unswitchable == Unswitchable::Park {
                reasons.push(format!("{} and may merge: {why}", self.outside(tenant)));
            }
            return;
        }
        let is_due = match order {
            None => true,
            Some(Order::Going { .. }) => false,
            // Off, it was said, and it still is mergeable: somebody has switched it on, or not all of it went off.
            Some(Order::Off { at } | Order::Failed { at }) => now.saturating_sub(at) >= RETRY,
        };
        if is_due {
            self.orders.insert(tenant.id, Order::Going { on: false });
            ruling.off.push(tenant.id);
        }
        let state = match self.errors.get(&tenant.id) {
            Some(error) => format!("and could not be switched off: {error}"),
            None => "and is being switched off".to_owned(),
        };
        reasons.push(format!("{} {state}", self.outside(tenant)));
    }

    /// `web (pid 12) is outside the admitted domain a`
    fn outside(&self, tenant: &Tenant) -> String {
        let who = format!("{} (pid {})", tenant.name, tenant.id.pid);
        match (self.config.mode, &tenant.domain, &self.admitted) {
            (_, None, _) => format!("{who} belongs to no domain"),
            (DomainMode::Node, Some(domain), _) => match self.config.nodes.get(domain) {
                Some(node) => format!("{who} of domain {domain} is not bound to its node {node}"),
                None => format!("{who} is of domain {domain}, which has no node"),
            },
            (_, Some(domain), Some(admitted)) => format!("{who} is of domain {domain}, {admitted} is admitted"),
            (_, Some(domain), None) => format!("{who} is of domain {domain}, none is admitted"),
        }
    }
}
