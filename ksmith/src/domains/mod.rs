//! The guard of the trust domains on the live host: it has the guests outside switched off, and keeps ksmd parked as
//! long as anybody who may merge is outside or unknown.
//!
//! The decision is [`ksmith_core::decide::domains`]; here are the looks that it needs and the switches it orders.

mod binding;
mod leave;
mod residue;
mod sharing;
mod sweep;
mod switcher;

use std::collections::BTreeMap;
use std::time::Duration;

use ksmith_core::decide::Decision;
use ksmith_core::decide::domains::{
    DomainMode, Domains, DomainsConfig, GUARD_LOOK, GUARDED, PassBudget, Ruling, Tenant, paced, parked,
};
use ksmith_core::guest::Guest;
use ksmith_core::kernel::RMAP_ITEM_BYTES;
use ksmith_core::sample::{ProcessId, Sample};
use ksmith_core::units::{Bytes, Span};
use tracing::{info, warn};

pub use self::leave::give_back;
pub use self::sharing::{SharingError, sharing};

use self::binding::Bindings;
use self::residue::Residues;
use self::switcher::Switcher;
use crate::guests::{Guests, ListError, OffList, SharedGuests, Why};
use crate::root::Root;

/// How soon to look again while ksmd is parked and somebody is being switched off.
const SOON: Duration = Duration::from_millis(100);

/// Guards the domains of one host.
#[derive(Debug)]
pub struct Warden {
    root: Root,
    domains: Domains,
    budget: Option<PassBudget>,
    switcher: Switcher,
    /// Who was switched off, on disk.
    off: Option<OffList>,
    bindings: Bindings,
    residues: Residues,
    /// Why ksmd was parked at the last look.
    parked: Option<String>,
    /// Processes that ksmd tracks and that the observer has not found yet.
    unknown: Vec<u32>,
}

impl Warden {
    /// A guard that goes by this configuration. Whom an earlier one switched off, by the list, it takes over.
    pub fn new(root: Root, config: DomainsConfig, off: Option<OffList>) -> Self {
        let mut domains = Domains::new(config.clone());
        for guest in off.iter().flat_map(|off| off.listed(Why::Domain)) {
            domains.adopt(guest.process);
        }
        Self {
            off,
            domains,
            budget: config.max_passes_per_hour.map(PassBudget::new),
            switcher: Switcher::new(root.clone()),
            bindings: Bindings::default(),
            residues: Residues::default(),
            parked: None,
            unknown: Vec::new(),
            root,
        }
    }

    /// Goes by another configuration from now on.
    pub fn configure(&mut self, config: DomainsConfig) {
        if config.max_passes_per_hour != self.domains.config().max_passes_per_hour {
            self.budget = config.max_passes_per_hour.map(PassBudget::new);
        }
        self.domains.configure(config);
    }

    /// Whether there is anything to guard.
    pub fn is_on_guard(&self) -> bool {
        self.domains.config().is_enforced() || self.budget.is_some()
    }

    /// The domain that may merge, in mode `one`.
    pub fn admitted(&self) -> Option<&str> {
        self.domains.admitted()
    }

    /// Why ksmd was parked at the last look; `None` if it was not.
    pub fn parked(&self) -> Option<&str> {
        self.parked.as_deref()
    }

    /// Processes that the observer should look at without delay.
    pub fn take_unknown(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unknown)
    }

    /// Holds the policy's decision to what the domains allow, and has guests switched.
    pub fn guard(&mut self, sample: &Sample, guests: &SharedGuests, decision: Decision) -> Decision {
        if !self.is_on_guard() {
            return decision;
        }
        let ruling = if self.domains.config().is_enforced() {
            self.rule(sample, &mut guests.lock())
        } else {
            Ruling::default()
        };
        let wait = self.budget.as_mut().and_then(|budget| budget.look(sample.at, sample.ksm.full_scans.get()));
        let why = ruling.park.map(|why| (GUARDED, why, SOON));
        let why = why.or_else(|| {
            let wait = wait?;
            let why = format!("max_passes_per_hour is reached; the next pass may begin in {}", Span(wait));
            Some(("metered", why, wait))
        });
        let decision = paced(decision);
        let before = self.parked.take();
        match why {
            None => decision,
            Some((state, why, again)) => {
                if before.as_ref() != Some(&why) && state == GUARDED {
                    info!("ksmd is kept parked: {why}");
                }
                self.parked = Some(why.clone());
                let again = again.max(SOON);
                parked(Decision { check_after: again, ..decision }, state, why, again)
            }
        }
    }

    fn rule(&mut self, sample: &Sample, guests: &mut Guests) -> Ruling {
        while let Some(done) = self.switcher.outcome() {
            match &done.result {
                Ok(()) => info!("merging of {} switched {}", done.name, if done.on { "on" } else { "off" }),
                Err(why) => warn!("{why}"),
            }
            self.residues.forget(done.id);
            if done.result.is_ok() {
                guests.was_switched(done.id.pid, done.on);
            }
            if done.on && done.result.is_ok() {
                self.note(|off| off.strike(done.id));
            }
            self.domains.done(done.id, sample.at, done.result);
        }
        let list = guests.list(sample);
        let mergeable: BTreeMap<ProcessId, Option<bool>> =
            sample.processes.iter().map(|process| (process.id, process.ksm.mergeable)).collect();
        let tenants: Vec<Tenant> =
            list.guests.iter().map(|guest| self.tenant(sample, guest, guests, &mergeable)).collect();
        let across = sample.ksm.merge_across_nodes.get();
        let mut ruling = self.domains.rule(sample.at, &tenants, sample.hidden_processes, across);
        self.unknown = sweep::untold(&self.root, sample);
        if let Some(pid) = self.unknown.first() {
            let more = format!("process {pid} offers memory to KSM and is not known yet");
            ruling.park = Some(ruling.park.map_or(more.clone(), |park| park));
        }
        // Who was pruned and is outside must not come back when pruning ends.
        for id in &ruling.outside {
            if self.note(|off| off.claim(*id)) == Some(true) {
                self.domains.adopt(*id);
            }
        }
        for (ids, on) in [(&ruling.off, false), (&ruling.on, true)] {
            for id in ids {
                let target =
                    list.guests.iter().find(|guest| guest.id() == *id).and_then(|guest| guests.target(guest));
                match target {
                    Some(target) => {
                        if !on {
                            self.note(|off| off.note(&target, Why::Domain));
                        }
                        self.switcher.order(target, on);
                    }
                    None => self.domains.done(*id, sample.at, Err("who it is is not known yet".to_owned())),
                }
            }
        }
        ruling
    }

    /// Changes the list. That it can't be written keeps nobody from being switched off: only from being switched on
    /// again later.
    fn note<T>(&self, change: impl FnOnce(&OffList) -> Result<T, ListError>) -> Option<T> {
        change(self.off.as_ref()?).inspect_err(|error| warn!("{error}")).ok()
    }

    fn tenant(
        &mut self,
        sample: &Sample,
        guest: &Guest,
        guests: &Guests,
        mergeable: &BTreeMap<ProcessId, Option<bool>>,
    ) -> Tenant {
        let config = self.domains.config();
        // A guest of which nothing is known but its process belongs to no domain, whatever its name.
        let is_known = guests.identity(&guest.id()).is_some();
        let domain = config.domain_of(guest).filter(|_| is_known).map(str::to_owned);
        let mut unswitchable =
            guests.target(guest).and_then(|target| target.check(false).err()).map(|error| error.to_string());
        let mut mergeable = of_all(guest.processes.iter().map(|id| mergeable.get(id).copied().flatten()));
        if mergeable == Some(true) && self.domains.is_switched_off(guest.id()) {
            let tolerated = u64::from(config.residue_mib) << 20;
            let tracked = guest.figures.metadata_bytes / RMAP_ITEM_BYTES;
            match self.residues.bytes(&self.root, &guest.processes, sample.at, tracked) {
                Some(left) if left <= tolerated => mergeable = Some(false),
                Some(left) => {
                    let left = Bytes::from(left);
                    unswitchable = Some(format!(
                        "{left} of its firmware's and devices' memory stays mergeable, for which QEMU has no switch; \
                         start it with -machine mem-merge=off (libvirt: <nosharepages/>), or tolerate it by \
                         domains.residue_mib"
                    ));
                }
                None => {}
            }
        }
        let is_node = config.mode == DomainMode::Node;
        let nodes = if is_node { self.bindings.nodes(&self.root, &guest.processes, sample.at) } else { None };
        Tenant {
            id: guest.id(),
            name: guest.name.clone(),
            domain,
            mergeable,
            unswitchable,
            profit_bytes: guest.figures.profit_bytes,
            rss_bytes: guest.figures.rss_bytes,
            nodes,
        }
    }

    /// The longest time between two looks at the present state.
    pub fn longest_wait(&self) -> Duration {
        if self.is_on_guard() { GUARD_LOOK * 8 } else { Duration::MAX }
    }
}

/// Whether any process of a guest is mergeable: one that is not known leaves it unknown.
fn of_all(processes: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    let mut all = Some(false);
    for mergeable in processes {
        match mergeable {
            Some(true) => return Some(true),
            Some(false) => {}
            None => all = None,
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_that_is_not_known_leaves_a_guest_unknown() {
        let of = |processes: &[Option<bool>]| of_all(processes.iter().copied());
        assert_eq!(of(&[Some(false), Some(false)]), Some(false));
        assert_eq!(of(&[Some(false), None]), None);
        assert_eq!(of(&[None, Some(true)]), Some(true));
    }
}
