//! The guard's view of each guest.

use std::collections::{BTreeMap, BTreeSet};

use ksmith_core::decide::domains::{DomainGuest, DomainMode, TrustDomainGuard};
use ksmith_core::guest::{Guest, GuestId};
use ksmith_core::kernel::RMAP_ITEM_BYTES;
use ksmith_core::sample::{ProcessId, ProcessSample, Sample};
use ksmith_core::units::Bytes;
use ksmith_host::guests::GuestSnapshot;
use ksmith_host::root::Root;

use super::hidden_marks::HiddenMarks;
use super::nodes::NodeBindings;
use super::remaining::RemainingMergeable;

/// Error text of a guest that may merge although it reports that it is off.
const UNTOLD: &str = "this kernel does not show whether its memory is mergeable, and the guest's own word does \
    not count: it is not verified (/usr/share/doc/ksmith/docs/reference/guests.md)";

/// Error text of a guest that has un-marked its memory.
const TRACKED: &str = "it is off, but ksmd still knows pages of it, which it could mark again: `ksmith unmerge` makes \
                       ksmd forget them";

/// Error text of a verified guest that is off, and has marked memory all the same.
const HIDDEN: &str = "it is off, but ksmd knows more of it than it can unless memory was marked for its visits alone: its \
                      monitor may be an attacker's. `ksmith unmerge` makes ksmd forget it";

/// Builds views of guests, and caches what is expensive to find out.
#[derive(Debug)]
pub(super) struct GuestViews {
    root: Root,
    bindings: NodeBindings,
    remaining: RemainingMergeable,
    hidden: HiddenMarks,
}

impl GuestViews {
    pub(super) fn new(root: &Root) -> Self {
        Self {
            root: root.clone(),
            bindings: NodeBindings::new(root),
            remaining: RemainingMergeable::new(root),
            hidden: HiddenMarks::default(),
        }
    }

    /// Drops the figures of a guest that was switched.
    pub(super) fn forget(&mut self, id: GuestId) {
        self.remaining.forget(id.process());
    }

    /// Returns the guests of a sample as the decision sees them.
    pub(super) fn build_views(
        &mut self,
        sample: &Sample,
        guests: &[Guest],
        known: &GuestSnapshot,
        domains: &TrustDomainGuard,
    ) -> Vec<DomainGuest> {
        let processes: BTreeMap<ProcessId, &ProcessSample> =
            sample.processes.iter().map(|process| (process.id, process)).collect();
        let ids: BTreeSet<GuestId> = guests.iter().map(Guest::id).collect();
        self.hidden.keep(|id| ids.contains(&id));
        guests.iter().map(|guest| self.one(sample, guest, known, domains, &processes)).collect()
    }

    /// Returns true if a verified guest must have marked memory that does not show. ksmd still knows pages of an honest one
    /// that was switched off a moment ago. `mergeable` is the kernel's word.
    fn has_hidden_marks(
        &mut self,
        sample: &Sample,
        guest: &Guest,
        mergeable: Option<bool>,
        domains: &TrustDomainGuard,
    ) -> bool {
        let (id, tracked) = (guest.id(), tracked_pages(guest));
        match mergeable {
            Some(false) => return self.hidden.find(id, tracked, 0, sample.ksm.full_scans.get()),
            Some(true) if domains.wants_off(id) => self.hidden.show(id, tracked),
            Some(true) => self.hidden.forget(id),
            None => {}
        }
        false
    }

    fn one(
        &mut self,
        sample: &Sample,
        guest: &Guest,
        known: &GuestSnapshot,
        domains: &TrustDomainGuard,
        processes: &BTreeMap<ProcessId, &ProcessSample>,
    ) -> DomainGuest {
        let config = domains.config();
        let of_guest = || guest.processes.iter().map(|id| processes.get(id));
        let has_names = of_guest().flatten().all(|process| known.knows(process));
        // Without a target nothing is known of a guest but its process: it belongs to no domain, whatever its name.
        let target = known.target(guest).filter(|_| has_names);
        let domain = target.as_ref().and_then(|_| config.domain_of(guest)).map(str::to_owned);
        let unswitchable = target.and_then(|target| target.check(false).err()).map(|error| error.to_string());
        let mut mergeable = any_mergeable(of_guest().map(|process| process.and_then(|it| it.ksm.mergeable)));
        let tracked = match guest.is_verified {
            false => has_pages_in_trees(guest).then_some(TRACKED),
            true => self.has_hidden_marks(sample, guest, mergeable, domains).then_some(HIDDEN),
        };
        // A guest of no domain that can't be switched is not asked about: any user may have thousands.
        let is_settled =
            guest.mergeable == Some(false) && tracked.is_none() || domain.is_none() && unswitchable.is_some();
        let is_same = |id: &ProcessId| known.has_its_user(&self.root, *id) && !known.was_moved(&self.root, *id);
        let is_known = has_names && (is_settled || guest.processes.iter().all(is_same));
        let domain = domain.filter(|_| is_known);
        let mut unswitchable = unswitchable.filter(|_| is_known);
        if mergeable.is_none() && !guest.is_verified {
            unswitchable.get_or_insert(UNTOLD.to_owned());
        }
        if let Some(why) = tracked.filter(|_| mergeable == Some(false)) {
            (mergeable, unswitchable) = (Some(true), Some(why.to_owned()));
        } else if mergeable == Some(true) && domains.is_switched_off(guest.id()) {
            // What is tolerated is QEMU's firmware. A process that only calls itself QEMU has none.
            let tolerated = u64::from(config.remaining_mergeable_mib) << 20;
            let tracked = tracked_pages(guest);
            match self.remaining.bytes(&guest.processes, sample.at, tracked) {
                Some(left) if !guest.is_verified => {
                    unswitchable = Some(format!(
                        "{} of its memory stays mergeable, and whether that is firmware can't be told: it is not verified \
                         (/usr/share/doc/ksmith/docs/reference/guests.md)",
                        Bytes::from(left)
                    ));
                }
                Some(left) if left <= tolerated => {
                    let (shown, full_scans) = (left / sample.page_size.max(1), sample.ksm.full_scans.get());
                    match self.hidden.find(guest.id(), tracked, shown, full_scans) {
                        true => unswitchable = Some(HIDDEN.to_owned()),
                        false => mergeable = Some(false),
                    }
                }
                Some(left) => {
                    let left = Bytes::from(left);
                    unswitchable = Some(format!(
                        "{left} of its firmware's and devices' memory stays mergeable, for which QEMU has no switch; \
                         start it with -machine mem-merge=off (libvirt: <nosharepages/>), or tolerate it by \
                         domains.remaining_mergeable_mib"
                    ));
                }
                None => {}
            }
        }
        let is_node = config.mode == DomainMode::Node;
        let nodes = if is_node { self.bindings.nodes(&guest.processes, sample.at) } else { None };
        DomainGuest {
            id: guest.id(),
            name: guest.shown_name(),
            is_known,
            domain,
            mergeable,
            unswitchable,
            profit_bytes: guest.figures.profit_bytes,
            rss_bytes: guest.figures.known_rss_bytes(),
            nodes,
        }
    }
}

/// Returns the pages of a guest that ksmd knows.
fn tracked_pages(guest: &Guest) -> u64 {
    guest.figures.metadata_bytes / RMAP_ITEM_BYTES
}

/// Returns true if ksmd knows pages of a guest.
///
/// It keeps what it knows of a page that a process un-marks, with its checksum, until it visits that process again
/// (`remove_trailing_rmap_items`, `mm/ksm.c`). A process that marks its memory for ksmd's visits and un-marks it for the
/// looks in between merges all the same.
fn has_pages_in_trees(guest: &Guest) -> bool {
    let figures = &guest.figures;
    figures.metadata_bytes > 0 || figures.merged_bytes > figures.zero_bytes
}

/// Returns true if any process of a guest is mergeable; `None` if none is and one is not known.
fn any_mergeable(processes: impl Iterator<Item = Option<bool>>) -> Option<bool> {
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
        let of = |processes: &[Option<bool>]| any_mergeable(processes.iter().copied());
        assert_eq!(of(&[Some(false), Some(false)]), Some(false));
        assert_eq!(of(&[Some(false), None]), None);
        assert_eq!(of(&[None, Some(true)]), Some(true));
    }
}
