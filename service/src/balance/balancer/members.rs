//! The guests of a balancer: those of its pool, and the cgroups that the configuration names.

use ksmith_core::guest::Guest;
use ksmith_host::guests::GuestTarget;
use ksmith_host::hypervisor::{ResizeMethod, find_by_kind};
use tracing::{debug, warn};

use super::super::actuators::left_to_proxmox;
use super::super::first_poll::FirstPoll;
use super::super::member::{BalanceCandidate, PoolMember, is_machine};
use super::super::pool::is_inside;
use super::super::worker::{ActuatorWorker, MakeActuator};
use super::super::{ActuatorError, actuator, cgroup_actuator};
use super::Balancer;

/// Error text of a guest that is left to Proxmox VE.
const LEFT_TO_PROXMOX: &str = "Proxmox VE has a balance of its own (pvestatd); [balance] proxmox = true leaves those guests to \
     ksmith that pvestatd does not resize";

impl Balancer {
    /// Updates the members to these guests, each with its target, and drops all others.
    ///
    /// Of them, virtual machines and user-mode Linux of the pool count. The cgroups that the configuration names are
    /// added.
    pub fn discover<'a>(&mut self, guests: impl IntoIterator<Item = (&'a Guest, Option<GuestTarget>)>) {
        let mut found: Vec<(BalanceCandidate, Option<MakeActuator>)> = Vec::new();
        for (guest, target) in guests {
            if !is_machine(guest.kind) || !is_inside(&self.root, &self.config.pool, guest.id().pid()) {
                continue;
            }
            let mut candidate = BalanceCandidate::from_guest(guest);
            candidate.folded_bytes = self.folded.guest_bytes(guest).unwrap_or(0);
            // A console may appear later than its guest, so may libvirt's record, and Proxmox VE may leave a guest to
            // ksmith.
            let is_known = |member: &PoolMember| {
                let may_come =
                    candidate.is_of_proxmox || find_by_kind(guest.kind).resize() == ResizeMethod::Console;
                (member.worker.is_some() || !may_come) && member.candidate.is_verified == candidate.is_verified
            };
            let is_known = self.members.get(&candidate.key).is_some_and(is_known);
            let make = target.filter(|_| !is_known).map(|target| {
                let (root, key, ledger) = (self.root.clone(), candidate.key.clone(), self.ledger.clone());
                Box::new(move || match left_to_proxmox(&root, &target) {
                    Some(why) => Err(ActuatorError::Unable(why)),
                    None => actuator(&root, &target, &key, &ledger),
                }) as MakeActuator
            });
            found.push((candidate, make));
        }
        for path in &self.config.cgroups {
            let candidate = BalanceCandidate::from_cgroup(path);
            if found.iter().any(|(it, _)| it.key == candidate.key) {
                continue;
            }
            let (root, key, ledger) = (self.root.clone(), candidate.key.clone(), self.ledger.clone());
            let path = candidate.cgroup().unwrap_or_default().to_owned();
            let make = Box::new(move || cgroup_actuator(&root, &path, &key, &ledger)) as MakeActuator;
            found.push((candidate, Some(make)));
        }
        self.update_members(found);
    }

    /// Updates the members to guests with actuators of the caller's.
    #[cfg(test)]
    pub(in super::super) fn discover_with(&mut self, guests: Vec<(BalanceCandidate, MakeActuator)>) {
        self.update_members(guests.into_iter().map(|(candidate, make)| (candidate, Some(make))).collect());
    }

    fn update_members(&mut self, found: Vec<(BalanceCandidate, Option<MakeActuator>)>) {
        let now = self.now();
        let mut known = std::mem::take(&mut self.members);
        for (candidate, make) in found {
            let mut member = match known.remove(&candidate.key) {
                Some(member)
                    if make.is_none()
                        || member.worker.is_some() && member.candidate.is_verified == candidate.is_verified =>
                {
                    PoolMember { candidate, ..member }
                }
                // A new guest, one that is verified only now, or one that could not be resized and perhaps can now.
                old => {
                    self.numbers += 1;
                    let (sender, account) = (self.sender.clone(), candidate.accountable(&self.root));
                    let worker = make.map(|make| {
                        ActuatorWorker::new(self.numbers, make, sender, &self.pool_of_threads, account)
                    });
                    PoolMember {
                        number: self.numbers,
                        candidate,
                        worker,
                        known: None,
                        error: old.and_then(|old| old.error),
                        looking: false,
                        resizing: None,
                        ordered: None,
                        first_poll: Some(FirstPoll::new(now)),
                    }
                }
            };
            if member.candidate.is_left_to_proxmox(&self.config) {
                (member.known, member.error) = (None, Some(LEFT_TO_PROXMOX.to_owned()));
            }
            self.members.insert(member.candidate.key.clone(), member);
        }
        for gone in known.into_values() {
            debug!("{} is not balanced any more", gone.candidate.name);
        }
        self.remove_ended();
        let members = &self.members;
        self.backoff.keep(|key| members.contains_key(key));
    }

    /// Removes ended guests from the ledger. A guest that is only not seen (in another pool now, or missed in a sample)
    /// must still get its memory back.
    pub(super) fn remove_ended(&self) {
        // All entries, since a thread that was resizing a guest as it ended may have noted a last step since.
        if let Err(error) = self.ledger.strike_ended(&self.root) {
            warn!("{error}");
        }
    }

    /// Removes one ended guest from the ledger and the members.
    pub(super) fn remove(&mut self, key: &str) {
        self.members.remove(key);
        if let Err(error) = self.ledger.strike(key) {
            warn!("{error}");
        }
    }
}
