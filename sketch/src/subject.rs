//! The identity and metadata of a guest in a sketch file.

use std::collections::BTreeMap;

use ksmith_core::balance::BalanceConfig;
use ksmith_core::decide::domains::DomainsConfig;
use ksmith_core::guest::{Guest, GuestKind};
use ksmith_core::sample::ProcessId;
use ksmith_host::memory::process::OpenProcess;
use serde::Serialize;

/// A guest to be sketched.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SketchSubject {
    /// The guest's identity in the fleet: its UUID, if it has one. See [`identify`].
    pub guest_id: String,
    /// The guest's name.
    pub name: String,
    /// Its UUID, in lower case with dashes.
    pub uuid: Option<String>,
    /// True if name and UUID are verified. Otherwise the guest's own user chose them.
    pub verified: bool,
    /// The kind of the guest.
    pub kind: GuestKind,
    /// The trust domain that the configuration assigns it to.
    pub domain: Option<String>,
    /// The class that the configuration assigns it to.
    pub class: String,
    /// The PID of its first process.
    pub pid: u32,
    /// The user of its first process.
    pub user: Option<String>,
    /// Memory size that the guest sees, for virtual machines.
    pub memory_bytes: Option<u64>,
    /// Virtual CPUs by the command line, for virtual machines. `None` until its memory is opened.
    pub vcpus: Option<u32>,
    /// Memory by the command line, which a balloon may have made less. `None` until its memory is opened.
    pub configured_bytes: Option<u64>,
    /// Resident memory; merged pages count in full.
    pub rss_bytes: u64,
    /// Swapped memory, which would move with the guest. `None` until its memory is opened.
    pub swap_bytes: Option<u64>,
    /// Its share of KSM's current savings, including zero pages.
    pub saved_bytes: u64,
    /// The part of those savings that is due to the kernel's zero page: KSM's zero pages, and zeros that splits of huge
    /// pages have freed. They are no equal pages.
    pub zero_saved_bytes: u64,
    /// True if any of its memory is offered to KSM.
    pub mergeable: Option<bool>,
    /// Its processes, the first one first.
    #[serde(skip)]
    pub processes: Vec<ProcessId>,
}

impl SketchSubject {
    /// Creates the subject for a guest, with the domain and class that the configuration assigns to it.
    pub fn from_guest(guest: &Guest, domains: &DomainsConfig, classes: &BalanceConfig) -> Self {
        let zero_bytes = guest.figures.zero_bytes.saturating_add(guest.folded_bytes.unwrap_or(0));
        let class = classes.terms(&guest.name, guest.uuid.as_deref(), guest.is_verified).class.name;
        Self {
            guest_id: String::new(),
            name: guest.name.clone(),
            uuid: guest.uuid.clone(),
            verified: guest.is_verified,
            kind: guest.kind,
            domain: domains.domain_of(guest).map(str::to_owned),
            class,
            pid: guest.id().pid(),
            user: guest.user.clone(),
            memory_bytes: guest.memory_bytes,
            vcpus: None,
            configured_bytes: None,
            rss_bytes: guest.figures.known_rss_bytes(),
            swap_bytes: None,
            saved_bytes: guest.figures.saved_bytes,
            zero_saved_bytes: zero_bytes.min(guest.figures.saved_bytes),
            mergeable: guest.mergeable,
            processes: guest.processes.clone(),
        }
    }

    /// Creates the subject for a process that is not a guest: it offers no memory, and the user named it.
    pub fn from_process(process: &OpenProcess, classes: &BalanceConfig) -> Self {
        Self {
            guest_id: String::new(),
            name: process.name.to_string(),
            uuid: None,
            verified: false,
            kind: GuestKind::PROCESS,
            domain: None,
            class: classes.default_class.clone(),
            pid: process.pid,
            user: process.user().map(|user| user.to_string()),
            memory_bytes: None,
            vcpus: None,
            configured_bytes: None,
            rss_bytes: 0,
            swap_bytes: None,
            saved_bytes: 0,
            zero_saved_bytes: 0,
            mergeable: Some(process.is_involved()),
            processes: vec![ProcessId { pid: process.pid, start_ticks: process.start_ticks }],
        }
    }
}

/// Sets each guest's identity: the UUID, else `kind/name`. If several guests of a host claim the same identity, the
/// process is appended to those that are not verified, or to all of them.
pub fn identify(subjects: &mut [SketchSubject]) {
    let plain = |subject: &SketchSubject| match &subject.uuid {
        Some(uuid) => uuid.clone(),
        None => format!("{}/{}", subject.kind, subject.name),
    };
    let mut claims: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for subject in subjects.iter() {
        claims.entry(plain(subject)).or_default()[usize::from(subject.verified)] += 1;
    }
    for subject in subjects {
        let id = plain(subject);
        let [claimed, verified] = claims.get(&id).copied().unwrap_or_default();
        let is_its_own = if subject.verified { verified == 1 } else { claimed + verified == 1 };
        subject.guest_id = match subject.processes.first() {
            Some(process) if !is_its_own => format!("{id}/{}.{}", process.pid, process.start_ticks),
            _ => id,
        };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn subject(name: &str, pid: u32, uuid: Option<&str>, verified: bool) -> SketchSubject {
        SketchSubject {
            guest_id: String::new(),
            name: name.to_owned(),
            uuid: uuid.map(str::to_owned),
            verified,
            kind: GuestKind::new("qemu"),
            domain: None,
            class: "silver".to_owned(),
            pid,
            user: None,
            memory_bytes: Some(1 << 30),
            vcpus: None,
            configured_bytes: None,
            rss_bytes: 1 << 20,
            swap_bytes: None,
            saved_bytes: 0,
            zero_saved_bytes: 0,
            mergeable: Some(true),
            processes: vec![ProcessId { pid, start_ticks: 70 + u64::from(pid) }],
        }
    }

    #[test]
    fn zeros_that_splits_freed_are_no_equal_pages() {
        let mut guest = Guest::plain("web", ProcessId { pid: 7, start_ticks: 1 });
        (guest.figures.saved_bytes, guest.figures.zero_bytes, guest.folded_bytes) = (900, 100, Some(500));
        let zero_saved = |guest: &Guest| {
            let subject = SketchSubject::from_guest(guest, &DomainsConfig::default(), &BalanceConfig::default());
            subject.zero_saved_bytes
        };
        assert_eq!(zero_saved(&guest), 600);
        guest.folded_bytes = Some(u64::MAX);
        assert_eq!(zero_saved(&guest), 900);
    }

    #[test]
    fn each_guest_has_an_identity_of_its_own_and_none_can_take_anothers() {
        let mut all = [
            subject("web", 1, Some("u-1"), true),
            subject("web", 2, Some("u-1"), false),
            subject("db", 3, None, false),
            subject("db", 4, None, false),
            subject("mail", 5, None, false),
            subject("twin", 6, Some("u-2"), true),
            subject("twin", 7, Some("u-2"), true),
        ];
        identify(&mut all);
        let ids = all.map(|subject| subject.guest_id);
        let wanted = ["u-1", "u-1/2.72", "qemu/db/3.73", "qemu/db/4.74", "qemu/mail", "u-2/6.76", "u-2/7.77"];
        assert_eq!(ids, wanted);
    }
}
