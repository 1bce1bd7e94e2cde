//! The `[domains]` table.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use super::assign::DomainRule;
use crate::contradiction::Contradiction;
use crate::field::KernelVersion;
use crate::guest::Guest;

/// The first kernel on which a page never merges on its first visit.
///
/// Earlier ones look a page up among the merged pages before they compare checksums (`cmp_and_merge_page` in
/// `mm/ksm.c`). So a new guest's pages may merge with another domain's in the batch that finds them first, before any
/// guard can look at that guest. Nothing below `/sys` or `/proc` shows which of the two a kernel does, so its version
/// decides. A distribution that brought the change to an older version is refused too.
pub const MERGES_ON_SECOND_VISIT: KernelVersion = KernelVersion::new(6, 11);

/// The trust domains, and their enforcement.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DomainsConfig {
    /// The treatment of guests of different domains.
    pub mode: DomainMode,
    /// The domain that may merge in mode `one`; without it, the one that gains most.
    pub admit: Option<String>,
    /// The NUMA node of each domain in mode `node`. Domains without one may not merge.
    pub nodes: BTreeMap<String, u32>,
    /// The domain of verified guests that no rule fits. Without it they belong to none, and may not merge with others.
    pub default: Option<String>,
    /// The treatment of a guest outside that can't be switched off.
    pub unswitchable: UnswitchableMode,
    /// The most memory, in MiB, that may stay mergeable in a guest outside that was switched off: QEMU can't switch
    /// its firmware's and devices' memory. What stays may be merged with the admitted domain's.
    pub remaining_mergeable_mib: u32,
    /// The treatment of switched-off guests when the daemon ends.
    pub on_exit: OnExit,
    /// The most passes in any hour: merging is an attacker's clock, and this is how fast it ticks.
    pub max_passes_per_hour: Option<NonZeroU32>,
    /// Rules in their order.
    pub rule: Vec<DomainRule>,
}

/// The treatment of guests of different domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainMode {
    /// Report which guests may share pages.
    #[default]
    Report,
    /// One domain may merge.
    One,
    /// Each domain merges on its own NUMA node.
    Node,
}

/// The treatment of a guest outside that can't be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnswitchableMode {
    /// Keep ksmd parked as long as it is there.
    #[default]
    Park,
    /// Let it merge with the admitted domain.
    Allow,
}

/// The treatment of switched-off guests when the daemon ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnExit {
    /// They are switched on again if ksmd stands still from then on, and else they stay off.
    #[default]
    Restore,
    /// They stay off.
    Keep,
}

impl DomainsConfig {
    /// Returns the domain of a guest; `None` if it belongs to none.
    ///
    /// A guest that is not verified never gets into the default domain: it could get there by another name than the one
    /// that a rule fits.
    ///
    /// A guest with processes that the rules tell apart, by their cgroups or users, belongs to none: its own pages would
    /// be shared across domains.
    pub fn domain_of(&self, guest: &Guest) -> Option<&str> {
        let default = self.default.as_deref().filter(|_| guest.is_verified);
        let of = |cgroup: Option<&str>, user: Option<&str>| {
            let rule = self.rule.iter().find(|rule| rule.fits(guest, cgroup, user));
            rule.map(DomainRule::domain).or(default)
        };
        guest.rule_of_all(of)
    }

    /// Sets the domain of each guest.
    pub fn assign(&self, guests: &mut [Guest]) {
        for guest in guests {
            guest.domain = self.domain_of(guest).map(str::to_owned);
        }
    }

    /// Returns true if domains are kept apart, and not only reported.
    pub fn is_enforced(&self) -> bool {
        self.mode != DomainMode::Report
    }

    /// Returns the reason why the domains can't be kept apart on this kernel, with the remedy; `None` if they can be,
    /// or need not be. A kernel of unknown version is refused.
    pub fn refused_on(&self, kernel: Option<KernelVersion>) -> Option<String> {
        let mode = match self.mode {
            DomainMode::Report => return None,
            DomainMode::One => "one",
            DomainMode::Node => "node",
        };
        let running = match kernel {
            Some(version) if version >= MERGES_ON_SECOND_VISIT => return None,
            Some(version) => format!("Linux {version}"),
            None => "a kernel that does not say its version".to_owned(),
        };
        Some(format!(
            "domains.mode = \"{mode}\" can't be kept on {running}: before Linux {MERGES_ON_SECOND_VISIT} a page that equals a \
             merged one merges when ksmd first visits it, and that may be before a new guest is looked at. Run Linux \
             {MERGES_ON_SECOND_VISIT} or later; or keep mode = \"report\" and offer the memory of one domain only \
             (/usr/share/doc/ksmith/docs/how-to/domains.md)"
        ))
    }

    /// Returns true if ksmd may scan only while a daemon watches.
    pub fn needs_a_guard(&self) -> bool {
        self.is_enforced() || self.max_passes_per_hour.is_some()
    }

    /// Returns true if the configuration assigns no guest to any domain.
    pub fn is_unconfigured(&self) -> bool {
        self.rule.is_empty() && self.default.is_none()
    }

    /// Returns true if the operator has declared that all memory that may merge belongs to one domain.
    ///
    /// Either all verified guests and all users are of one domain, or all that is outside one domain may not merge.
    pub fn declares_one_domain(&self) -> bool {
        let is_of = |domain: &String| self.rule.iter().all(|rule| rule.domain() == domain);
        let is_the_hosts =
            self.default.as_ref().is_some_and(is_of) && self.rule.iter().any(DomainRule::fits_all_users);
        let is_admitted = self.mode == DomainMode::One && self.admit.is_some();
        is_the_hosts || is_admitted && self.unswitchable == UnswitchableMode::Park
    }

    /// Returns the contradictions in the settings.
    pub fn contradictions(&self) -> Vec<Contradiction> {
        let mut found = Vec::new();
        let mut owners: BTreeMap<u32, &str> = BTreeMap::new();
        for (domain, &node) in &self.nodes {
            if let Some(other) = owners.insert(node, domain) {
                let keys: [&[&str]; 2] = [&["domains", "nodes", domain], &["domains", "nodes", other]];
                let message = format!("domains.nodes gives node {node} to both {other} and {domain}");
                found.push(Contradiction::new(&keys, message));
            }
        }
        if self.mode == DomainMode::Node && self.nodes.is_empty() {
            let message = "mode is \"node\", and domains.nodes gives no domain a node: name them, as in \
                           nodes = { customer-a = 0 }";
            found.push(Contradiction::new(&[&["domains", "mode"], &["domains", "nodes"]], message));
        }
        found
    }

    /// Returns the settings that name a domain to which no rule and no default assigns a guest. That is no
    /// contradiction, since no guest may merge then, but a likely slip.
    pub fn unknown_domains(&self) -> Vec<Contradiction> {
        let known: BTreeSet<&str> =
            self.rule.iter().map(DomainRule::domain).chain(self.default.as_deref()).collect();
        let slip = |domain: &str, key: &[&str]| {
            let list: Vec<_> = known.iter().map(|name| format!("{name:?}")).collect();
            let list = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
            let message = format!(
                "no rule and no default gives a guest the domain {domain:?}: add a [[domains.rule]], or name one that is \
                 there ({list})"
            );
            let others: [&[&str]; 2] = [&["domains", "rule"], &["domains", "default"]];
            (!known.contains(domain)).then(|| Contradiction::new(&[key, others[0], others[1]], message))
        };
        let admitted = self.admit.iter().filter_map(|domain| slip(domain, &["domains", "admit"]));
        let placed = self.nodes.keys().filter_map(|domain| slip(domain, &["domains", "nodes", domain]));
        admitted.chain(placed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_kept_apart_only_where_no_page_merges_on_its_first_visit() {
        let refused = |mode, kernel: Option<(u32, u32)>| {
            let config = DomainsConfig { mode, ..DomainsConfig::default() };
            config.refused_on(kernel.map(|(major, minor)| KernelVersion::new(major, minor)))
        };
        for mode in [DomainMode::One, DomainMode::Node] {
            for kernel in [(6, 11), (6, 18), (7, 0)] {
                assert_eq!(refused(mode, Some(kernel)), None, "{kernel:?}");
            }
            for kernel in [(5, 10), (6, 1), (6, 10)] {
                let why = refused(mode, Some(kernel)).unwrap();
                assert!(why.contains(&format!("Linux {}.{}:", kernel.0, kernel.1)), "{why}");
                assert!(why.contains("Run Linux 6.11 or later"), "{why}");
            }
            assert!(refused(mode, None).unwrap().contains("does not say its version"));
        }
        for kernel in [None, Some((5, 10)), Some((6, 18))] {
            assert_eq!(refused(DomainMode::Report, kernel), None, "reporting promises nothing");
        }
    }
}
